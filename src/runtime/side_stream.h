// Concurrent stream for small work. GPU work queued while a SideStream exists starts after all work that was on the
// context's stream before it, and runs concurrently with the work that is queued there afterwards. join_side_stream()
// makes later work wait for it. Its scratch memory stays in use until the enclosing scope ends or the arena is reset,
// which must not happen before the join. On the CPU, where work is synchronous, both do nothing.
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

void join_side_stream(Context& ctx);  // no effect if the side stream has no new work

}  // namespace some
