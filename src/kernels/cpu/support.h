// Shared by the CPU operations: dispatch on float or double, scratch memory per thread, and sums over rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/threads.h"
#include "runtime/context.h"

namespace some::cpu {

// Calls body(T{}) with the context's precision as a type. On the CPU, compute and master precision are the same.
template <typename Body>
void with_precision(const Context& ctx, Body&& body) {
  if (ctx.compute != ctx.master)
    failed(Code::type_unsupported, "CPU operations need one precision: {} != {}", name_of(ctx.compute),
           name_of(ctx.master));
  if (ctx.compute == DType::f32) {
    body(float{});
  } else if (ctx.compute == DType::f64) {
    body(double{});
  } else {
    failed(Code::type_unsupported, "CPU operations work in f32 or f64, not in {}", name_of(ctx.compute));
  }
}

// Scratch memory of the calling thread, 64-byte aligned and kept between calls. Each purpose within one piece of work
// has its own slot. The contents are undefined, and the next request for the same slot may move them.
constexpr int thread_buffer_slots = 6;
constexpr int gemm_buffer_slot = 4;      // used by gemm_serial; its callers use the lower slots
constexpr int hadamard_buffer_slot = 5;  // signs of a transform (ops/cpu/hadamard_rows.h)
void* thread_buffer_bytes(int slot, std::size_t bytes);

template <typename T>
T* thread_buffer(int slot, std::int64_t elements) {
  return static_cast<T*>(thread_buffer_bytes(slot, static_cast<std::size_t>(elements) * sizeof(T)));
}

// Computes target[c] += sum over chunks of partials[chunk * width + c], in the order of the chunks.
template <typename T>
void add_partials(Context& ctx, const T* partials, std::int64_t chunks, std::int64_t width, T* target) {
  parallel_chunks(*ctx.threads, width, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const T* source = partials + chunk * width;
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) target[c] += source[c];
    }
  });
}

// Computes target[c] += column sums of x [rows, width], which is split into fixed chunks of rows.
template <typename T>
void add_column_sums(Context& ctx, const T* x, std::int64_t rows, std::int64_t width, T* target) {
  constexpr std::int64_t grain = 128;
  const std::int64_t chunks = (rows + grain - 1) / grain;
  ArenaScope scope(*ctx.arena);
  T* partials = ctx.scratch({chunks, width}, dtype_of<T>()).template data<T>();
  parallel_chunks(*ctx.threads, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    T* sums = partials + begin / grain * width;
    for (std::int64_t c = 0; c < width; ++c) sums[c] = T(0);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* source = x + row * width;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) sums[c] += source[c];
    }
  });
  add_partials(ctx, partials, chunks, width, target);
}

}  // namespace some::cpu
