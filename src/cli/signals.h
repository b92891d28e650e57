// Signals that end the program cleanly.
#pragma once

namespace some {

// Starts a thread that receives SIGINT, SIGTERM and SIGHUP (a lost terminal; not under nohup). Call before other
// threads start. No handler ever interrupts a computing thread: generated matrix kernels do not keep to the rules a
// handler's stack frame relies on. A second signal, at least one second after the first, ends the program immediately,
// or as soon as a checkpoint being written is complete.
// Ignores SIGPIPE: a run does not end because `head` or a dying `tee` reads its log no longer.
void watch_signals();
int received_signal();      // 0: none
void set_saving(bool now);  // true while a checkpoint is being written

}  // namespace some
