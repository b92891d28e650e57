// Device functions for the kernels of a decoding step: thread position, barriers, shuffles, tensor cores, distributed
// shared memory, and the wait for the previous kernel. Everything else in this folder is plain C++ on top of these
// functions.
#pragma once

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace some::decoding {

// Older GPUs never run these kernels, but builds for them must compile.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define SOME_HOPPER(...) __VA_ARGS__
#else
#define SOME_HOPPER(...)
#endif

#define SOME_DEVICE __device__ __forceinline__
#define SOME_KERNEL(threads, blocks) __global__ void __launch_bounds__(threads, blocks)

SOME_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
SOME_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
SOME_DEVICE int block_index_y() { return static_cast<int>(blockIdx.y); }

SOME_DEVICE char* shared_memory() {
  extern __shared__ uint4 block_memory[];
  return reinterpret_cast<char*>(block_memory);
}
SOME_DEVICE void block_sync() { __syncthreads(); }
SOME_DEVICE void warp_sync() { __syncwarp(); }
// True if the value is true in any thread of the block.
SOME_DEVICE bool block_any(bool value) { return __syncthreads_or(value ? 1 : 0) != 0; }

// Orders the shared and global memory accesses of all blocks of the cluster.
SOME_DEVICE void cluster_sync() {
  SOME_HOPPER(asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::
                               : "memory"));
}
// Returns the same address in the shared memory of another block of the cluster.
template <typename T>
SOME_DEVICE T* remote(T* own, int rank) {
  T* other = own;
  SOME_HOPPER(other = cooperative_groups::this_cluster().map_shared_rank(own, static_cast<unsigned>(rank)));
  return other;
}

SOME_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
SOME_DEVICE std::uint64_t shuffle_xor(std::uint64_t value, int mask) {
  return __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(value), mask);
}
SOME_DEVICE std::uint64_t shuffle_up(std::uint64_t value, int by) {
  return __shfl_up_sync(0xffffffffu, static_cast<unsigned long long>(value), static_cast<unsigned>(by));
}

SOME_DEVICE std::uint32_t warp_largest(std::uint32_t value) { return __reduce_max_sync(0xffffffffu, value); }
SOME_DEVICE std::uint32_t warp_or(std::uint32_t value) { return __reduce_or_sync(0xffffffffu, value); }
SOME_DEVICE int count_bits(std::uint32_t value) { return __popc(value); }
// Returns the index of the n-th lowest bit that is set.
SOME_DEVICE int nth_bit(std::uint32_t value, int n) {
  for (; n > 0; --n) value &= value - 1;
  return __ffs(static_cast<int>(value)) - 1;
}
// Returns the first lane whose value is true.
SOME_DEVICE int first_lane(bool value) { return __ffs(static_cast<int>(__ballot_sync(0xffffffffu, value))) - 1; }

// c += a b for a tile of 16 rows, 8 columns and 16 terms of each sum. Any order of the terms is possible, as long as a
// and b agree: lane 4g + q holds rows g and g + 8 of a and column g of b.
SOME_DEVICE void multiply(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                          std::uint32_t b0, std::uint32_t b1) {
  SOME_HOPPER(asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1)));
}

// Waits until the previous kernel has ended and its results are visible, then allows the next kernel to launch. No
// kernel of a step may write what a kernel reads before this call.
SOME_DEVICE void wait_previous() {
  SOME_HOPPER(asm volatile("griddepcontrol.wait;\n" ::: "memory"));
  SOME_HOPPER(asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory"));
}

SOME_DEVICE uint4 load_weights(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
// Requests consecutive bytes, a multiple of 16, for L2.
SOME_DEVICE void prefetch_weights(const void* from, int bytes) {
  SOME_HOPPER(asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from), "r"(bytes) : "memory"));
}
// Loads bypass the L1 cache, which does not see writes of other multiprocessors.
SOME_DEVICE uint4 load_written(const uint4* from) { return __ldcg(from); }
SOME_DEVICE float4 load_written(const float4* from) { return __ldcg(from); }
SOME_DEVICE uint2 load_written(const uint2* from) { return __ldcg(from); }

SOME_DEVICE void copy_async(void* shared, const void* global, bool valid) {
  [[maybe_unused]] const std::uint32_t target = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  [[maybe_unused]] const int bytes = valid ? 16 : 0;
  SOME_HOPPER(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(global), "r"(bytes)
                           : "memory"));
}
SOME_DEVICE void copy_commit() { SOME_HOPPER(asm volatile("cp.async.commit_group;\n" ::: "memory")); }
template <int kLeft>
SOME_DEVICE void copy_wait() {
  SOME_HOPPER(asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory"));
}

SOME_DEVICE std::uint32_t bits_of(float value) { return __float_as_uint(value); }
SOME_DEVICE float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
SOME_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
SOME_DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
SOME_DEVICE float times_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SOME_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SOME_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SOME_DEVICE float reciprocal_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SOME_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
SOME_DEVICE std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
SOME_DEVICE int count_atomic(std::int32_t* counter) { return atomicAdd(counter, 1); }
SOME_DEVICE void add_atomic(std::uint32_t* sum, std::uint32_t value) { atomicAdd(sum, value); }

}  // namespace some::decoding
