// Messages from inside the library go to a sink that the program sets; without one they are dropped.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

namespace some {

enum class LogLevel { info, warning };
using LogSink = std::function<void(LogLevel, const std::string&)>;

void set_log_sink(LogSink sink);
void log_message(LogLevel level, const std::string& message);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace some
