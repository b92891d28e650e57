#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace some {
namespace {
std::atomic<int> first_signal{0};
std::atomic<bool> saving{false};

// `timeout` and schedulers signal a program and then its whole group: two signals within this time count as one.
constexpr auto one_request = std::chrono::seconds(1);
}  // namespace

void watch_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGTERM);
  struct sigaction lost_terminal {};
  if (sigaction(SIGHUP, nullptr, &lost_terminal) == 0 && lost_terminal.sa_handler != SIG_IGN)
    sigaddset(&wanted, SIGHUP);                  // SIGHUP is ignored under nohup, where the run must continue
  signal(SIGPIPE, SIG_IGN);                      // the command continues if the reader of its output leaves
  pthread_sigmask(SIG_BLOCK, &wanted, nullptr);  // threads created later inherit the mask
  std::thread([wanted] {
    std::chrono::steady_clock::time_point first;
    for (int number = 0; sigwait(&wanted, &number) == 0;) {
      const auto now = std::chrono::steady_clock::now();
      if (first_signal.load() == 0) {
        first = now;
        first_signal = number;
      } else if (now - first >= one_request) {
        while (saving) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::_Exit(128 + number);
      }
    }
  }).detach();
}

void set_saving(bool now) { saving = now; }

int received_signal() { return first_signal.load(); }

}  // namespace some
