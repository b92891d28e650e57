// Threads. Work is cut into pieces whose number and borders depend only on the work, never on the number of
// threads; which thread does a piece may vary. That is what makes results independent of the thread count.
#pragma once

#include <cstdint>

namespace some {

void set_threads(int count);  // 0: as many as the machine has
int threads();

// Calls body(piece) once for each piece in [0, pieces), on all threads, in any order. Inside another parallel_for it
// runs serially. An exception thrown by a body is rethrown here.
template <typename Body>
void parallel_for(std::int64_t pieces, Body&& body);

// Cuts [0, n) into chunks of `grain` and calls body(begin, end) for each.
template <typename Body>
void parallel_chunks(std::int64_t n, std::int64_t grain, Body&& body);

}  // namespace some

#include "base/threads_impl.h"
