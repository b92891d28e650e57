// A decoder for GPUs of the Hopper generation: fused kernels for a step (cuda/steps.h), recorded as CUDA graphs, with
// sampling on the device. Several steps may be in flight. A sequence's tokens are the same alone and in any batch, and
// however its prompt is divided (cuda/steps.h); steps with a memory, reported routes or hidden states are computed by
// Model::decode on the same cache.
#pragma once

#include <memory>

#include "inference/decoder.h"

namespace some {

// Null if the device or the form of the model has no such kernels.
std::unique_ptr<Decoder> make_cuda_decoder(Model& model, const DecoderOptions& options);

}  // namespace some
