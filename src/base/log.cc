#include "base/log.h"

#include <mutex>

namespace some {
namespace {
std::mutex mutex;
LogSink sink;
}  // namespace

void set_log_sink(LogSink new_sink) {
  std::lock_guard lock(mutex);
  sink = std::move(new_sink);
}

void log_message(LogLevel level, const std::string& message) {
  std::lock_guard lock(mutex);
  if (sink) sink(level, message);
}

}  // namespace some
