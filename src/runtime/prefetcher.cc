#include "runtime/prefetcher.h"

#include <utility>

#include "core/error.h"
#include "runtime/side_stream.h"
#include "tensor/device.h"

namespace some {

Prefetcher::Prefetcher(Context& ctx) : ctx_(ctx), other_(std::make_unique<Arena>(ctx.device)) {}

// Joins first: prefetched work may still use the arena that the context continues with.
Prefetcher::~Prefetcher() {
  try {
    join_side_stream(ctx_);
  } catch (const Error&) {
    // The GPU is lost; the first error is the one to report.
  }
  if (exchanged_) exchange();
}

void Prefetcher::exchange() {
  std::swap(ctx_.arena, other_);
  exchanged_ = !exchanged_;
}

void Prefetcher::part() { cuda::fork_side_stream(*ctx_.cuda); }

void Prefetcher::put(const std::function<void()>& work) {
  // Restores the stream and the arena at scope exit, also after an exception.
  struct There {
    Prefetcher& ahead;
    explicit There(Prefetcher& one) : ahead(one) {
      ahead.exchange();
      cuda::enter_side_stream(*ahead.ctx_.cuda);
    }
    ~There() {
      cuda::end_side_stream(*ahead.ctx_.cuda);
      ahead.exchange();
    }
    There(const There&) = delete;
    There& operator=(const There&) = delete;
  };
  const There there(*this);
  ctx_.arena->reset();
  work();
}

void Prefetcher::join() {
  join_side_stream(ctx_);
  exchange();
}

}  // namespace some
