#include "runtime/prefetcher.h"

#include <utility>

#include "core/error.h"
#include "runtime/side_stream.h"
#include "tensor/device.h"

namespace some {

Prefetcher::Prefetcher(Context& ctx) : ctx_(ctx), other_(std::make_unique<Arena>(ctx.device)) {}

// What is still ahead may be using the memory that the context goes on with.
Prefetcher::~Prefetcher() {
  try {
    join_side_stream(ctx_);
  } catch (const Error&) {
    // The GPU is lost; what is told is the error that came first.
  }
  if (exchanged_) exchange();
}

void Prefetcher::exchange() {
  std::swap(ctx_.arena, other_);
  exchanged_ = !exchanged_;
}

void Prefetcher::part() { cuda::fork_side_stream(*ctx_.cuda); }

void Prefetcher::put(const std::function<void()>& work) {
  // Also where something is thrown, everything is in its place again.
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
