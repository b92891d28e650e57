// Loaded before a program (LD_PRELOAD): a SIGUSR1 makes its main thread go round in circles, while the process lives.
#include <csignal>

namespace {

volatile std::sig_atomic_t turns = 0;

void go_round(int) {
  for (;;) turns = turns + 1;
}

__attribute__((constructor)) void listen() { std::signal(SIGUSR1, go_round); }

}  // namespace
