#include "core/log.h"

#include <mutex>

#include "core/error.h"

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

void Log::warn(Code code, fmt::string_view format, fmt::format_args arguments, std::size_t count) const {
  write({LogLevel::warning, fmt::vformat(format, arguments), code, values_of(arguments, count)});
}

void Log::write(const LogMessage& message) const {
  const std::lock_guard lock(target_->mutex);
  target_->sink(message);
}

}  // namespace some
