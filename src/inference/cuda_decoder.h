// A decoder for Hopper GPUs: fused kernels for a step (cuda/steps.h), recorded as CUDA graphs, with sampling on the
// device. Several steps may be in flight. A sequence has the same tokens alone and in any batch, and for any division
// of its prompt (cuda/steps.h). Steps with a memory, reported routing or hidden states are computed by Model::decode on
// the same cache.
#pragma once

#include <memory>

#include "inference/decoder.h"
#include "runtime/row_products.h"

namespace some {

// Returns null if the device or the model is not supported by these kernels.
std::unique_ptr<Decoder> make_cuda_decoder(Model& model, const DecoderOptions& options);

// Adds its matrix product and attention for Model::decode; none if the device has no such kernels.
void add_gpu_products(const Context& ctx, RowProducts& products);

}  // namespace some
