// Sums over the rows of a matrix, in two stages and a fixed order: the gradients of biases and norms. CUDA only.
#pragma once

#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {

// Returns room for `count` partial sums, which must be passed to add_partials before room is requested again. It comes
// from the context's arena or, while sums are deferred (kernels/reduce/deferred_sums.h), from a buffer in which they
// can stay until they are added up.
float* partial_sums_buffer(Context& ctx, std::int64_t count);

// Computes target[c] += sum over the chunks of partials[chunk, c], in the order of the chunks' numbers modulo 8;
// columns from `split` on go to second[c - split]. While sums are deferred and partials came from partial_sums_buffer,
// this may happen later. The last block of the preceding kernel could do this instead and save a launch, but that was
// measured to be slower (backward pass of a norm over 6,144 rows of 512: 14.9 us instead of 10.9). The cause, waiting
// for the other blocks or the registers used, is not known.
void add_partials(Context& ctx, const float* partials, int chunks, std::int64_t columns, float* target,
                  std::int64_t split = -1, float* second = nullptr);

// Computes target[c] += sum over t of x[t, c], for all columns or the first `wanted`; x: [rows, columns] f32 or bf16.
// If `copy` is not null, x is also written there in bf16.
void add_column_sums(Context& ctx, const void* x, DType type, std::int64_t rows, std::int64_t columns, float* target,
                     __nv_bfloat16* copy = nullptr, std::int64_t wanted = -1);

// Computes dy *= GELU'(pre) and, if target is not null, target[c] += sum of column c of the new dy. pre, dy: [rows,
// columns].
void gelu_backward_with_sums(Context& ctx, const void* pre, void* dy, DType type, std::int64_t rows,
                             std::int64_t columns, float* target);

// Computes y = x in bf16.
void convert_to_bf16(Context& ctx, const float* x, __nv_bfloat16* y, std::int64_t count);

}  // namespace some::cuda
