// The CPU finishes every sum where it is made.
#include "ops/held_sums.h"

namespace some::ops::cpu {

void hold_sums(Context&) {}
void finish_sums(Context&) {}
void drop_sums(Context&) {}

}  // namespace some::ops::cpu
