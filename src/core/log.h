// Messages of the library. They go to the log that the caller passed in; nothing is printed.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error_code.h"

namespace some {

enum class LogLevel { info, warning };

struct LogMessage {
  LogLevel level = LogLevel::info;
  std::string text;
  std::optional<Code> code;         // only for warnings
  std::vector<std::string> values;  // only for warnings; the same as those of an Error (core/error.h)
};

using LogSink = std::function<void(const LogMessage&)>;

// Writes messages to a sink, one at a time, from any thread. Copies share the sink. Without a sink, messages are
// dropped.
class Log {
 public:
  Log() = default;
  explicit Log(LogSink sink);

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    if (target_) write({LogLevel::info, fmt::format(format, std::forward<Args>(args)...), std::nullopt, {}});
  }
  template <typename... Args>
  void warning(Code code, fmt::format_string<Args...> format, Args&&... args) const {
    if (target_) warn(code, format, fmt::make_format_args(args...), sizeof...(Args));
  }

 private:
  struct Target;
  void warn(Code code, fmt::string_view format, fmt::format_args arguments, std::size_t count) const;
  void write(const LogMessage& message) const;
  std::shared_ptr<Target> target_;
};

}  // namespace some
