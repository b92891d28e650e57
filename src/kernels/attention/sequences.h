// Boundaries of the sequences in an unpadded batch.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace some {

struct Sequences {
  Tensor offsets;            // i32 [B+1]: sequence s holds tokens offsets[s] .. offsets[s+1]-1
  std::int64_t count = 0;    // B
  std::int64_t longest = 0;  // in tokens
  std::int64_t tokens = 0;   // T
};

}  // namespace some
