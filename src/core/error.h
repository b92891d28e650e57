// The one error type of the library. The library never prints and never exits: it throws this, and the
// command line turns it into one line and an exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error_code.h"

namespace some {

// What kind of fault it was decides the exit code: 2 for input the user can correct, 1 for everything else.
enum class Fault { input, failure };

// The code and the values say what is wrong to programs and tests; the message says it to people and may be reworded.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, Code code, const std::string& message, std::vector<std::string> values = {})
      : std::runtime_error(message), fault_(fault), code_(code), values_(std::move(values)) {}
  Fault fault() const { return fault_; }
  Code code() const { return code_; }
  // The arguments of the message, each written by itself: names, paths and numbers.
  const std::vector<std::string>& values() const { return values_; }
  // The same error with where it happened in its message; `where` becomes the first value.
  Error within(std::string_view where, const std::string& message) const;

 private:
  Fault fault_;
  Code code_;
  std::vector<std::string> values_;
};

// Each argument of a message as text, without the format that the message gives it.
std::vector<std::string> values_of(fmt::format_args arguments, std::size_t count);
Error error_from(Fault fault, Code code, fmt::string_view format, fmt::format_args arguments, std::size_t count);
[[noreturn]] void throw_error(Fault fault, Code code, fmt::string_view format, fmt::format_args arguments,
                              std::size_t count);

// An error that is thrown later, or with more around it.
template <typename... Args>
Error make_error(Fault fault, Code code, fmt::format_string<Args...> format, Args&&... args) {
  return error_from(fault, code, format, fmt::make_format_args(args...), sizeof...(Args));
}

// Bad usage or bad input. The message says what is wrong, where, and what would be right.
template <typename... Args>
[[noreturn]] void bad_input(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(Fault::input, code, format, fmt::make_format_args(args...), sizeof...(Args));
}

// The task failed although the input was right (no space left, no GPU, a loss that is not a number).
template <typename... Args>
[[noreturn]] void failed(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(Fault::failure, code, format, fmt::make_format_args(args...), sizeof...(Args));
}

}  // namespace some
