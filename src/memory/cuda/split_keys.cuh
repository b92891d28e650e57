// GEMM of rows and keys on Hopper's tensor cores with fp32 precision. Each operand was split before into two numbers of
// 11 bits; the three significant products of these are added. The product is small, and other work waits for it or runs
// concurrently: it should occupy as little of the GPU for as short a time as possible. It is limited by the bandwidth
// from L2 to a multiprocessor, so a block has many rows and a few blocks do all the work.
#pragma once

#include <cuda_fp16.h>

#include "kernels/hopper/wgmma_64.cuh"
#include "memory/cuda/store.cuh"

namespace some::cuda {

constexpr int product_slots = 64;  // per block of a product

// Splits a number of a row. In halves, a row of d numbers of at most 1 takes 2 d fp16 numbers: for every 32 numbers,
// first their fp16 roundings, then the remainders. All are scaled up, so that remainders do not underflow in fp16.
constexpr int halves_together = 32;
constexpr float halves_scale = 16.0f;
__device__ __forceinline__ void write_halves(__half* row, int column, float number) {
  const float scaled = number * halves_scale;
  const __half near = __float2half_rn(scaled);
  __half* to = row + column / halves_together * 2 * halves_together + column % halves_together;
  to[0] = near;
  to[halves_together] = __float2half_rn(scaled - __half2float(near));
}
// Such tensors have type i32 and shape [rows, d].
inline __half* halves(const Tensor& tensor) { return tensor ? reinterpret_cast<__half*>(ints(tensor)) : nullptr; }

// True if products with the keys of a store use halves. Stores with very many slots do not: the halves would take too
// much memory.
constexpr std::int64_t max_in_halves = std::int64_t{1} << 18;
inline bool uses_halves(const Context& ctx, const Store& store) {
  return ctx.cuda->major == 9 && store.keys.dim(1) % halves_together == 0 && store.slots() <= max_in_halves;
}
// Returns a tensor's first rows in halves, in the arena.
Tensor in_halves(Context& ctx, const Tensor& numbers, std::int64_t rows);

// A warpgroup has 64 rows; their scores with a block's 64 slots stay in registers.
template <int GROUPS>
struct HalvesProduct {
  static constexpr int rows = 64 * GROUPS, threads = 128 * GROUPS, lines = rows + product_slots;
  static constexpr int line_bytes = 128, stage_bytes = lines * line_bytes, stages = 4;
  static constexpr int shared_bytes = stages * stage_bytes + 1024;  // 1024: their alignment
  static constexpr int eights = product_slots / 8;                  // slots, in groups of eight

  // Row and slot, within the block, of the thread's score [4 n + 2 half + i].
  __device__ static int row_of(int half) {
    const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
    return warp * 16 + 8 * half + lane / 4;
  }
  __device__ static int slot_of(int n, int i) { return 8 * n + 2 * (static_cast<int>(threadIdx.x) % 4) + i; }
  // Returns the dynamic shared memory after the part that the product uses.
  __device__ static unsigned char* behind(unsigned char* shared) { return shared + shared_bytes; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // row(i): address of the halves of row i < row_count; keys: halves of all slots. Scores of rows and slots beyond the
  // end are undefined. All threads must call it, and may reuse the shared memory when all of them have returned.
  template <typename Row>
  __device__ static void multiply(unsigned char* shared, const Row& row, const __half* keys, int first_row,
                                  int first_slot, int row_count, int slots, int d, cuda::Sums& sums) {
    constexpr int sixteens = line_bytes / 16, apart = threads / sixteens, brought = lines / apart;
    static_assert(lines % apart == 0 && rows % apart == 0 && apart % 8 == 0);
    const std::uint32_t begin = (shared_address(shared) + 1023u) & ~1023u;
    // Each thread loads the same 16 bytes of several lines.
    const int own_line = static_cast<int>(threadIdx.x) / sixteens, sixteen = static_cast<int>(threadIdx.x) % sixteens;
    const __half* from[brought];
#pragma unroll
    for (int i = 0; i < brought; ++i) {
      const int line = own_line + i * apart;
      const __half* first = line < rows
                                ? row(min(first_row + line, row_count - 1))
                                : keys + static_cast<std::int64_t>(min(first_slot + line - rows, slots - 1)) * 2 * d;
      from[i] = first + sixteen * 8;
    }
    const std::uint32_t to = static_cast<std::uint32_t>(own_line * line_bytes + (sixteen ^ (own_line % 8)) * 16);
    const int steps = d / halves_together;
    const auto load = [&](int step) {
      if (step < steps) {
        const std::uint32_t stage = begin + static_cast<std::uint32_t>(step % stages * stage_bytes) + to;
#pragma unroll
        for (int i = 0; i < brought; ++i)
          cp_async(stage + static_cast<std::uint32_t>(i * apart * line_bytes), from[i] + step * 2 * halves_together,
                   true);
      }
      cp_async_commit();
    };
#pragma unroll
    for (int n = 0; n < 32; ++n) sums[n] = 0.0f;
#pragma unroll
    for (int step = 0; step + 1 < stages; ++step) load(step);
    const auto group = static_cast<std::uint32_t>(threadIdx.x) / 128;
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<stages - 2>();
      fence_proxy_async();
      __syncthreads();
      load(step + stages - 1);
      const std::uint32_t stage = begin + static_cast<std::uint32_t>(step % stages * stage_bytes);
      const std::uint64_t a = wgmma_descriptor(stage + group * 64 * line_bytes, 8 * line_bytes, 16),
                          b = wgmma_descriptor(stage + rows * line_bytes, 8 * line_bytes, 16);
      // Tensor cores truncate their sums, so only these few terms are accumulated there.
      cuda::Sums some;
      wgmma_fence();
      constexpr int sixteen_columns = 32 >> 4, left = 64 >> 4;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint64_t a_here = a + static_cast<unsigned>(k * sixteen_columns),
                            b_here = b + static_cast<unsigned>(k * sixteen_columns);
        wgmma_64x64_fp16(some, a_here, b_here, k);
        wgmma_64x64_fp16(some, a_here + left, b_here, 1);
        wgmma_64x64_fp16(some, a_here, b_here + left, 1);
      }
      wgmma_commit();
      wgmma_wait<0>();
#pragma unroll
      for (int n = 0; n < 32; ++n) sums[n] += some[n];
    }
#pragma unroll
    for (int n = 0; n < 32; ++n) sums[n] *= 1.0f / (halves_scale * halves_scale);
  }
#endif
};

// True if a block of this GPU can use this much shared memory. On small GPUs products do not fit.
inline bool fits(const Context& ctx, int shared) { return shared <= ctx.cuda->max_shared; }

// Launches a kernel that needs much shared memory.
template <typename Kernel, typename... Arguments>
void launch_product(Context& ctx, Kernel* kernel, dim3 blocks, int threads, int shared, Arguments&&... arguments) {
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_dependent(ctx, kernel, blocks, dim3(static_cast<unsigned>(threads)), static_cast<std::size_t>(shared),
                   std::forward<Arguments>(arguments)...);
}

}  // namespace some::cuda
