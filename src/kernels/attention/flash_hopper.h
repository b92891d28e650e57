// Attention with heads of 64 columns on Hopper, in bf16 (flash_hopper.cu). `arguments` is the same as for the other
// kernels, but delta is not needed.
#pragma once

#include "kernels/attention/sequences.h"
#include "kernels/attention/tiles.cuh"

namespace some::cuda {

bool fits_hopper(const Context& ctx, const AttentionArguments& arguments);
void launch_hopper_forward(Context& ctx, const AttentionArguments& arguments, const Sequences& sequences);
void launch_hopper_backward(Context& ctx, const AttentionArguments& arguments, const Sequences& sequences);

}  // namespace some::cuda
