#include "runtime/prefetcher.h"

#include "core/error.h"
#include "tensor/device.h"

namespace some {

Prefetcher::Prefetcher(Context& ctx) {
  steps_[0].use = &ctx;
  steps_[1].owned = ctx.on(*ctx.cuda, std::make_unique<Arena>(ctx.device));
  steps_[1].use = steps_[1].owned.get();
  for (Step& step : steps_)
    step.make = ctx.on(cuda::side_of(*ctx.cuda), std::make_unique<Arena>(*step.use->arena, Arena::Scopes::release));
}

// Prefetched work may still use memory that the caller's context continues with.
Prefetcher::~Prefetcher() {
  try {
    if (apart_) join();
  } catch (const Error&) {
    // The GPU is lost; the first error is the one to report.
  }
}

void Prefetcher::fork() { cuda::wait_for(*current().cuda, cuda::side_of(*current().cuda)); }

Context& Prefetcher::ahead() {
  apart_ = true;
  Context& context = *steps_[1 - at_].make;
  context.arena->reset();
  return context;
}

void Prefetcher::join() {
  if (apart_) cuda::wait_for(cuda::side_of(*current().cuda), *current().cuda);
  apart_ = false;
  at_ = 1 - at_;
}

}  // namespace some
