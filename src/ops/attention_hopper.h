// Attention with heads of 64 columns on Hopper, in bf16 (attention_hopper.cu). `arguments` as for the other kernels, but
// no delta is needed.
#pragma once

#include "base/rooms.h"
#include "ops/attention.h"
#include "ops/cuda_attention.cuh"

namespace some::ops::cuda {

bool fits_hopper(const Context& ctx, const AttentionArguments& arguments);
void launch_hopper_forward(Context& ctx, const AttentionArguments& arguments, const Sequences& sequences);
void launch_hopper_backward(Context& ctx, const AttentionArguments& arguments, const Sequences& sequences);

}  // namespace some::ops::cuda
