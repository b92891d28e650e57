// The routing slots of a batch sorted by expert, as read by grouped GEMMs and the sums over a token's experts.
#pragma once

#include "tensor/tensor.h"

namespace some {

struct DispatchPlan {
  Tensor order;    // i32 [T*k]: the routing slots t*k+i sorted by expert, and within an expert by t*k+i
  Tensor place;    // i32 [T*k]: position of routing slot t*k+i in `order`
  Tensor offsets;  // i32 [E+1]: expert e has order[offsets[e]] .. order[offsets[e+1]-1]
  int experts = 0;
  Tensor tiles;  // the GPU's table of row tiles (kernels/gemm/grouped_gemm.h); empty on the CPU, and rebuilt if missing
};

}  // namespace some
