// Assertions on errors: tests compare code and values (core/error.h), not messages, which may be reworded.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/log.h"

namespace some {

// An error in one line: "setting-out-of-range: some.top_k | 65", and its message below it.
inline std::string described(const Error& error) {
  std::string out(name_of(error.code()));
  for (std::size_t i = 0; i < error.values().size(); ++i) out += (i == 0 ? ": " : " | ") + error.values()[i];
  return out + "\n  " + error.what();
}

// Returns the Error thrown by `work`, if any.
template <typename Work>
std::optional<Error> error_in(Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// True if `error` has this code and all of these values in this order, possibly with others between them.
inline ::testing::AssertionResult is_error(const std::optional<Error>& error, Code code,
                                           const std::vector<std::string>& values = {}) {
  std::string wanted(name_of(code));
  for (std::size_t i = 0; i < values.size(); ++i) wanted += (i == 0 ? ": " : " | ") + values[i];
  if (!error) return ::testing::AssertionFailure() << "no error, where there should be " << wanted;
  std::size_t next = 0;
  for (const std::string& value : error->values()) next += next < values.size() && value == values[next] ? 1 : 0;
  const std::string message = error->what();
  if (message.empty() || message.find('\n') != std::string::npos)
    return ::testing::AssertionFailure() << "the message is not one line: " << message;
  if (error->code() == code && next == values.size()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << described(*error) << "\nwanted: " << wanted;
}

// True if the error is one that a user can correct.
inline ::testing::AssertionResult is_bad_input(const std::optional<Error>& error, Code code,
                                               const std::vector<std::string>& values = {}) {
  if (error && error->fault() != Fault::input)
    return ::testing::AssertionFailure() << "a failure: " << described(*error);
  return is_error(error, code, values);
}

// True if one of the warnings has this code and these values.
inline ::testing::AssertionResult has_warning(const std::vector<LogMessage>& messages, Code code,
                                              const std::vector<std::string>& values = {}) {
  std::string received;
  for (const LogMessage& one : messages) {
    if (!one.code) continue;
    const Error error(Fault::input, *one.code, one.text, one.values);
    if (is_error(error, code, values)) return ::testing::AssertionSuccess();
    received += "\n" + described(error);
  }
  return ::testing::AssertionFailure() << "no such warning: " << name_of(code)
                                       << (received.empty() ? "" : "; there are:") << received;
}

}  // namespace some

// EXPECT_ERROR(load(path), Code::file_not_found, path): the code, then values in the order of the message. A statement
// with commas in braces needs parentheses around it.
#define EXPECT_ERROR(statement, code, ...) \
  EXPECT_TRUE(some::is_error(some::error_in([&] { static_cast<void>(statement); }), code, {__VA_ARGS__}))
