// Preloaded into a program (LD_PRELOAD): on SIGUSR1 its main thread loops forever while the process lives. SIGUSR2 also
// blocks its heartbeat (src/comm/backends/mpi.cc, the caller of MPI_Test), like MPI's locks if the looping thread holds
// one.
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
