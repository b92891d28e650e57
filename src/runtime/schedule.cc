#include "runtime/schedule.h"

#include "core/error.h"
#include "tensor/device.h"

namespace some {

Schedule::Schedule(Context& ctx) : main_(ctx) {
  if (ctx.device.is_cpu()) return;
  deferring_ = ctx.on(*ctx.cuda, std::make_unique<Arena>(*ctx.arena, Arena::Scopes::release));
  side_ = ctx.on(cuda::side_of(*ctx.cuda), std::make_unique<Arena>(*ctx.arena, Arena::Scopes::keep));
  for (Context* const one : {deferring_.get(), side_.get()}) one->deferred = &deferred_;
}

Schedule::~Schedule() {
  try {
    join();
  } catch (const Error&) {
    // The GPU is lost; the first error is the one to report.
  }
}

Context& Schedule::fork() {
  if (!side_) return main_;
  cuda::wait_for(*main_.cuda, *side_->cuda);
  apart_ = true;
  return *side_;
}

void Schedule::join() {
  if (!apart_) return;
  apart_ = false;
  cuda::wait_for(cuda::side_of(*main_.cuda), *main_.cuda);
}

}  // namespace some
