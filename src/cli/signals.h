// Signals that end the program in order.
#pragma once

namespace some {

// SIGINT, SIGTERM and SIGHUP (a lost terminal; not under nohup) are taken by a thread of their own, from this call on
// (before other threads begin). No handler ever interrupts a computing thread: generated matrix kernels do not keep to
// the rules a handler's stack frame relies on. A second signal, at least a second after the first, ends the program at
// once, or when a checkpoint that is being written is done; so does the first while ranks have not met.
void watch_signals();
int received_signal();      // 0: none
void set_saving(bool now);  // a checkpoint is being written

}  // namespace some
