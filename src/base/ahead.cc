#include "base/ahead.h"

#include <utility>

#include "base/beside.h"
#include "base/device.h"
#include "base/error.h"

namespace some {

Ahead::Ahead(Context& ctx) : ctx_(ctx), other_(std::make_unique<Arena>(ctx.device)) {}

// What is still ahead may be using the memory that the context goes on with.
Ahead::~Ahead() {
  try {
    join_beside(ctx_);
  } catch (const Error&) {
    // The GPU is lost; what is told is the error that came first.
  }
  if (exchanged_) exchange();
}

void Ahead::exchange() {
  std::swap(ctx_.arena, other_);
  exchanged_ = !exchanged_;
}

void Ahead::part() { cuda::part_beside(*ctx_.cuda); }

void Ahead::put(const std::function<void()>& work) {
  // Also where something is thrown, everything is in its place again.
  struct There {
    Ahead& ahead;
    explicit There(Ahead& one) : ahead(one) {
      ahead.exchange();
      cuda::enter_beside(*ahead.ctx_.cuda);
    }
    ~There() {
      cuda::end_beside(*ahead.ctx_.cuda);
      ahead.exchange();
    }
    There(const There&) = delete;
    There& operator=(const There&) = delete;
  };
  const There there(*this);
  ctx_.arena->reset();
  work();
}

void Ahead::join() {
  join_beside(ctx_);
  exchange();
}

}  // namespace some
