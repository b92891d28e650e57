// Thread pool. Work is cut into pieces whose number and borders depend only on the work, never on the number of
// threads; any thread may execute any piece. Results are therefore independent of the thread count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace some {

// A thread pool owned by its creator. OpenMP is not used for two reasons: it has one pool per process, so two models
// could not have their own thread counts; and its waiting threads spin, which takes cores from other processes. The
// threads of this pool sleep, after a short spin that is skipped while other processes seem to need the cores.
//
// Threads start with the first work that needs more than one. A pool may be used from several threads: a caller that
// finds it busy executes its work serially.
class Threads {
 public:
  explicit Threads(int count = 0);  // 0: usable_cpus() (core/cpus.h)
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  int count() const { return count_; }

  using Piece = void (*)(void* body, std::int64_t piece);
  void run(std::int64_t pieces, Piece piece, void* body);  // for parallel_for

 private:
  struct Pool;
  int count_;
  std::unique_ptr<Pool> pool_;  // null if there is only one thread
};

// Calls body(piece) once for each piece in [0, pieces), on all threads, in any order. A nested parallel_for runs
// serially. An exception thrown by a body is rethrown here.
template <typename Body>
void parallel_for(Threads& threads, std::int64_t pieces, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  threads.run(
      pieces, [](void* it, std::int64_t piece) { (*static_cast<Plain*>(it))(piece); },
      const_cast<std::remove_const_t<Plain>*>(&body));
}

// Cuts [0, n) into chunks of `grain` and calls body(begin, end) for each.
template <typename Body>
void parallel_chunks(Threads& threads, std::int64_t n, std::int64_t grain, Body&& body) {
  parallel_for(threads, (n + grain - 1) / grain,
               [&](std::int64_t i) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

// Executes one iteration of a spin loop: frees the core's shared units for the thread it waits for.
inline void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace some
