#include "core/log.h"

#include <mutex>

namespace some {

struct Log::Target {
  std::mutex mutex;
  LogSink sink;
};

Log::Log(LogSink sink) {
  if (!sink) return;
  target_ = std::make_shared<Target>();
  target_->sink = std::move(sink);
}

void Log::write(LogLevel level, const std::string& message) const {
  const std::lock_guard lock(target_->mutex);
  target_->sink(level, message);
}

}  // namespace some
