// A decoder for GPUs of the Hopper generation: steps are recorded as CUDA graphs, with sampling on the device, and
// several may be in flight. How rows go through the model is a StepModel (cuda/step_model.h). A sequence's tokens are
// the same alone and in any batch, and however its prompt is divided (cuda/steps.h). Few steps are left to
// Model::decode and the host, on the same cache.
#pragma once

#include <memory>

#include "inference/decoder.h"
#include "runtime/row_products.h"

namespace some {

// Null if the device or the model is not supported.
std::unique_ptr<Decoder> make_cuda_decoder(Model& model, const DecoderOptions& options);

// Its matrix product and attention, for Model::decode. Nothing if the device has none.
void add_gpu_products(const Context& ctx, RowProducts& products);

}  // namespace some
