// The CPU finishes every sum immediately, so nothing is deferred.
#include "kernels/reduce/deferred_sums.h"

namespace some::cpu {

void defer_sums(Context&) {}
void finish_sums(Context&) {}
void discard_sums(Context&) {}

}  // namespace some::cpu
