#include "runtime/side_stream.h"

namespace some {

SideStream::SideStream(Context& ctx) : ctx_(ctx) {
  if (ctx_.device.is_cpu()) return;
  cuda::begin_side_stream(*ctx_.cuda);
  ctx_.arena->keep(true);
}

SideStream::~SideStream() {
  if (ctx_.device.is_cpu()) return;
  ctx_.arena->keep(false);
  cuda::end_side_stream(*ctx_.cuda);
}

void join_side_stream(Context& ctx) {
  if (ctx.device.is_cuda()) cuda::join_side_stream(*ctx.cuda);
}

}  // namespace some
