// The CPU finishes every sum where it is made.
#include "kernels/reduce/deferred_sums.h"

namespace some::cpu {

void defer_sums(Context&) {}
void finish_sums(Context&) {}
void drop_sums(Context&) {}

}  // namespace some::cpu
