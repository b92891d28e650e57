// Further streams of a GPU. CUDA builds only.
#pragma once

#include <memory>

#include "tensor/cuda_state.h"

namespace some::cuda {

// Returns another stream of the same device with the priority of `state`, which must outlive it. It has no workspace:
// it runs kernels only.
std::unique_ptr<CudaState> stream_like(CudaState& state);

}  // namespace some::cuda
