// The only error type of the library. The library never prints and never exits: it throws an Error, and the command
// line turns the Error into one line and an exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error_code.h"

namespace some {

// Decides the exit code: 2 for input that the user can correct, 1 for every other failure.
enum class Fault { input, failure };

// An error for programs and for people: programs and tests compare the code and the values; people read the message,
// which may be reworded at any time.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, Code code, const std::string& message, std::vector<std::string> values = {})
      : std::runtime_error(message), fault_(fault), code_(code), values_(std::move(values)) {}
  Fault fault() const { return fault_; }
  Code code() const { return code_; }
  // Returns the arguments of the message, each formatted separately: names, paths and numbers.
  const std::vector<std::string>& values() const { return values_; }
  // Returns the same error with its location in the message. `where` becomes the first value.
  Error within(std::string_view where, const std::string& message) const;

 private:
  Fault fault_;
  Code code_;
  std::vector<std::string> values_;
};

// Formats each argument of a message as text, without the format specification used in the message.
std::vector<std::string> values_of(fmt::format_args arguments, std::size_t count);
Error error_from(Fault fault, Code code, fmt::string_view format, fmt::format_args arguments, std::size_t count);
[[noreturn]] void throw_error(Fault fault, Code code, fmt::string_view format, fmt::format_args arguments,
                              std::size_t count);

// Returns an error to be thrown later, or to be extended first.
template <typename... Args>
Error make_error(Fault fault, Code code, fmt::format_string<Args...> format, Args&&... args) {
  return error_from(fault, code, format, fmt::make_format_args(args...), sizeof...(Args));
}

// Throws for bad usage or bad input. The message states what is wrong, where, and what would be right.
template <typename... Args>
[[noreturn]] void bad_input(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(Fault::input, code, format, fmt::make_format_args(args...), sizeof...(Args));
}

// Throws if a task failed although its input was right (no space left, no GPU, a loss that is not a number).
template <typename... Args>
[[noreturn]] void failed(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(Fault::failure, code, format, fmt::make_format_args(args...), sizeof...(Args));
}

}  // namespace some
