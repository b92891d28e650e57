// Orthogonal experts on the GPU, in the order of roundings fixed by orthogonal.h. CUDA only.
#pragma once

#include <cstdint>

#include "experts/elements.h"
#include "runtime/context.h"

namespace some::cuda {

// Generates and orthonormalizes the [rows, cols] matrices of these experts into `weights` ([experts, rows, cols],
// compute precision) and adds the elements' hashes to *hash (on the device).
void fill_orthogonal(Context& ctx, LibraryMatrix matrix, RandomStream stream, Block experts, int rows, int cols,
                     const Tensor& weights, unsigned long long* hash);

}  // namespace some::cuda
