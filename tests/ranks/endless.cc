// Loaded before a program (LD_PRELOAD): a SIGUSR1 makes its main thread go round in circles, while the process lives. A
// SIGUSR2 holds up its pulse with it (src/comm/backends/mpi.cc, the one who calls MPI_Test), as MPI's locks do where
// the thread that goes round in circles has one.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace {

volatile std::sig_atomic_t turns = 0;
std::atomic<bool> pulse_hangs{false};

void go_round(int number) {
  pulse_hangs = number == SIGUSR2;
  for (;;) turns = turns + 1;
}

__attribute__((constructor)) void token_shift() {
  std::signal(SIGUSR1, go_round);
  std::signal(SIGUSR2, go_round);
}

}  // namespace

extern "C" int MPI_Test(void* request, int* flag, void* status) {
  while (pulse_hangs) pause();
  using Test = int (*)(void*, int*, void*);
  static const auto test = reinterpret_cast<Test>(dlsym(RTLD_DEFAULT, "PMPI_Test"));
  return test(request, flag, status);
}
