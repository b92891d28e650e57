// LoRA: a low-rank correction of every expert's matrix, computed in factored form: w x + b (a x). Neither b a nor its
// gradient, which have w's size, is ever materialized:
//   forward   low = a x,            y  += b low
//   backward  pulled = b^T dy,      dx += a^T pulled,   da += pulled x^T,   db += dy low^T
#pragma once

#include "tensor/param.h"

namespace some {

struct LowRank {
  Param a;  // [E, r, in]
  Param b;  // [E, out, r]
  explicit operator bool() const { return static_cast<bool>(a); }
  std::int64_t rank() const { return a.compute.dim(1); }
};

}  // namespace some
