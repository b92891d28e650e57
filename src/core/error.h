// The one error type of the library. The library never prints and never exits: it throws this, and the
// command line turns it into one line and an exit code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace some {

// What kind of fault it was decides the exit code: 2 for input the user can correct, 1 for everything else.
enum class Fault { input, failure };

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// Bad usage or bad input. The message says what is wrong, where, and what would be right.
template <typename... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::input, fmt::format(format, std::forward<Args>(args)...));
}

// The task failed although the input was right (no space left, no GPU, a loss that is not a number).
template <typename... Args>
[[noreturn]] void failed(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::failure, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace some
