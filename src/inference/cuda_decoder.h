// A decoder for Hopper GPUs: steps are recorded as CUDA graphs, with sampling on the device. Several steps may be in
// flight. A StepModel computes the rows of a step (cuda/step_model.h). A sequence has the same tokens alone and in any
// batch, and for any division of its prompt (cuda/steps.h). A few kinds of steps are computed by Model::decode and the
// host on the same cache.
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
