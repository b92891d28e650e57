// Ends the mpirun that started this process. Included by a backend too, so it uses nothing of the program.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace some {

// True if a process belongs to Open MPI itself, which starts and ends the ranks.
inline bool is_launcher(pid_t process) {
  char path[64], name[16] = "";
  std::snprintf(path, sizeof path, "/proc/%ld/comm", static_cast<long>(process));
  std::FILE* const file = std::fopen(path, "r");
  if (file == nullptr) return false;
  const bool read = std::fscanf(file, "%15s", name) == 1;
  std::fclose(file);
  constexpr std::array launchers = {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prte", "prted"};
  return read &&
         std::any_of(launchers.begin(), launchers.end(), [&](const char* one) { return std::strcmp(name, one) == 0; });
}

// Ends this machine's mpirun or daemon if it is still running some seconds after this process ends: it may wait for the
// daemon of an unreachable machine for hours. A separate process does this, because the launcher may end this process
// first.
inline void end_launcher_later() noexcept {
  const pid_t launcher = getppid();
  if (!is_launcher(launcher)) return;
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, launcher, 0));
  if (descriptor < 0 || fork() != 0) return;
  setsid();
  // mpirun waits until no process holds the pipes of a rank's output.
  if (descriptor > 0) syscall(SYS_close_range, 0U, static_cast<unsigned>(descriptor - 1), 0U);
  syscall(SYS_close_range, static_cast<unsigned>(descriptor + 1), ~0U, 0U);
  // SIGKILL, because Open MPI's own signal handlers would wait for the unreachable machine.
  pollfd ended{descriptor, POLLIN, 0};
  if (poll(&ended, 1, 3000) == 0) syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, nullptr, 0U);
  _exit(0);
}

}  // namespace some
