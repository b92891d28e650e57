#include "base/beside.h"

namespace some {

Beside::Beside(Context& ctx) : ctx_(ctx) {
  if (ctx_.device.is_cpu()) return;
  cuda::begin_beside(*ctx_.cuda);
  ctx_.arena->keep(true);
}

Beside::~Beside() {
  if (ctx_.device.is_cpu()) return;
  ctx_.arena->keep(false);
  cuda::end_beside(*ctx_.cuda);
}

void join_beside(Context& ctx) {
  if (ctx.device.is_cuda()) cuda::join_beside(*ctx.cuda);
}

}  // namespace some
