#include "base/threads.h"

#include <thread>

namespace some {
namespace {
int count = 0;
}

void set_threads(int wanted) {
  count = wanted > 0 ? wanted : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // Our own parallel regions name their thread count. Libraries called outside of one (oneDNN) must not start
  // threads of their own, since that would change how they cut their sums.
  omp_set_num_threads(1);
}

int threads() {
  if (count == 0) set_threads(0);
  return count;
}

}  // namespace some
