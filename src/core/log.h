// Messages from inside the library. They go to the log that the caller handed in; nothing is printed.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace some {

enum class LogLevel { info, warning };
using LogSink = std::function<void(LogLevel, const std::string&)>;

// Copies write to the same sink, one message at a time, from any thread. Without a sink messages are dropped.
class Log {
 public:
  Log() = default;
  explicit Log(LogSink sink);

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    if (target_) write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    if (target_) write(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Target;
  void write(LogLevel level, const std::string& message) const;
  std::shared_ptr<Target> target_;
};

}  // namespace some
