// Ring buffer of stages in shared memory between a thread that fills them by TMA and the warps that multiply (sm_90a
// only).
#pragma once

#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/hopper/instructions.cuh"
#include "kernels/hopper/tile_load.cuh"

namespace some::cuda {

// Bytes of shared memory for kStages stages of kBytes each, wherever the memory begins.
template <int kStages, int kBytes>
inline constexpr int ring_bytes = 1024 + kStages* kBytes + 2 * 8 * kStages;

// Threads of a block that fills and uses a ring: one warpgroup, of which a single thread loads, and two that multiply.
inline constexpr int ring_threads = 384;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A stage is `full` once its data has arrived and `empty` once it has been used. The producer starts with parity 1, the
// consumers with parity 0.
template <int kStages, int kBytes>
struct Stages {
  std::uint32_t data;
  int stage = 0, parity;
  __device__ Stages(unsigned char* memory, int first_parity)
      : data((shared_address(memory) + 1023) & ~1023u), parity(first_parity) {}
  __device__ std::uint32_t at(int which) const { return data + which * kBytes; }
  __device__ std::uint32_t full(int which) const { return data + kStages * kBytes + 8 * which; }
  __device__ std::uint32_t empty(int which) const { return full(kStages + which); }
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  // Initializes the barriers; called by one thread before the other threads use them. A stage is full once `fillers`
  // have filled it, and empty once `users` warps have released it.
  __device__ void start(int fillers, int users) const {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_start(full(i), fillers);
      mbarrier_start(empty(i), users);
    }
    fence_mbarrier_init();
  }
};

// Keeps the compiler from reading the sums of MMAs before the wait that precedes this call.
template <int kCount>
__device__ __forceinline__ void refine(float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}

struct NoOp {
  template <typename... Arguments>
  __device__ void operator()(const Arguments&...) const {}
};

// Multiplies `steps` stages: 64 rows of the left operand, which start a_bytes / 2 * half into a stage, by kBlocks
// blocks of 128 columns, which follow one another at a_bytes (if transposed, as boxes of 64 columns). Leaves the sums
// ready to be read.
// kWide: two blocks at a time are one MMA, which reads the left operand once for both.
// also: called with 16 terms of the left operand, the address of their stage, their number in it, and whether other
// terms came before them; may add MMAs of its own.
// meanwhile: called once, with the maximum number of MMAs in flight.
template <int kTransposed, bool kWide, int kBlocks, typename Ring, typename Also = NoOp, typename Meanwhile = NoOp>
__device__ __forceinline__ void multiply_stages(float (&sums)[kBlocks][64], Ring& stage, int steps, int half, int lane,
                                                const Also& also = {}, const Meanwhile& meanwhile = {}) {
  static_assert(!kWide || kBlocks % 2 == 0);
  constexpr int part_bytes = kTransposed ? 16 * 128 : 32;  // distance between two groups of 16 terms
  int previous = -1;
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait(stage.full(stage.stage), stage.parity);
    const std::uint32_t base = stage.at(stage.stage);
    const std::uint64_t left = wgmma_descriptor(base + half * (a_bytes / 2), 1024, 16);
    const std::uint64_t right = wgmma_descriptor(base + a_bytes, 1024, kTransposed ? b_bytes / 2 : 16);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part) {
      const std::uint64_t left_part = left + part * (32 >> 4), right_part = right + part * (part_bytes >> 4);
#pragma unroll
      for (int block = 0; block < kBlocks; block += kWide ? 2 : 1) {
        const std::uint64_t columns = right_part + block * (b_bytes >> 4);
        if constexpr (kWide) {
          wgmma_64x256<kTransposed>(sums[block], sums[block + 1], left_part, columns, step > 0 || part > 0);
        } else {
          wgmma_64x128<kTransposed>(sums[block], left_part, columns, step > 0 || part > 0);
        }
      }
      also(left_part, base, part, step > 0 || part > 0);
    }
    wgmma_commit();
    if (step == min(1, steps - 1)) meanwhile();
    wgmma_wait<1>();  // the previous step's operands have been read, so its stage can be refilled
    if (previous >= 0 && lane == 0) mbarrier_arrive(stage.empty(previous));
    previous = stage.stage;
    stage.advance();
  }
  wgmma_wait<0>();
  if (lane == 0) mbarrier_arrive(stage.empty(previous));
#pragma unroll
  for (auto& block : sums) refine(block);
}

// Body of a block of ring_threads: initializes the ring and passes each role its end of it. fill: what a second warp
// adds to each stage, if anything.
template <typename Ring, typename Load, typename Multiply, typename Fill = NoOp>
__device__ __forceinline__ void run_producer_consumer(unsigned char* memory, const Load& load, const Multiply& multiply,
                                                      const Fill& fill = {}) {
  constexpr int fillers = std::is_same_v<Fill, NoOp> ? 1 : 2, multiplying_warps = 8;
  const Ring stage(memory, 0);
  if (threadIdx.x == 0) stage.start(fillers, multiplying_warps);
  __syncthreads();
  wait_previous_kernel();
  if (threadIdx.x < 128) {
    release_registers<40>();
    if (threadIdx.x == 0) {
      load(Ring(memory, 1));
    } else if (fillers == 2 && threadIdx.x / 32 == 1) {
      fill(Ring(memory, 1));
    }
  } else {
    claim_registers<232>();
    multiply(stage);
  }
}

#endif

}  // namespace some::cuda
