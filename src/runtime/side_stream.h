// Small work beside large work: what a GPU is given while a Beside exists begins after all that was put on the
// context's stream before it, and runs next to what is put there afterwards. join_side_stream() makes what follows wait
// for it. Its scratch memory stays in use until the scope around it ends or the arena is reset, so that must not be
// before the join. On the CPU, where everything is done at once, neither does anything.
#pragma once

#include "runtime/context.h"

namespace some {

class SideStream {
 public:
  explicit SideStream(Context& ctx);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

 private:
  Context& ctx_;
};

void join_side_stream(Context& ctx);  // nothing to do where nothing was put beside since the last time

}  // namespace some
