// Instructions that only Hopper has: barriers in shared memory (mbarrier), the tensor copy engine (TMA), and the
// warpgroup's matrix multiply-accumulate (wgmma; sm_90a only).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/primitives.cuh"

namespace some::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void mbarrier_start(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" ::"r"(barrier) : "memory");
}
// Counts as this thread's arrival once all asynchronous copies it has issued so far have landed.
__device__ __forceinline__ void mbarrier_arrive_after_cp_async(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}
// Arrives, and announces how many bytes TMA has to deliver before the phase can end.
__device__ __forceinline__ void mbarrier_expect_bytes(std::uint32_t barrier, int bytes) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}\n" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, int parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  }
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
// Makes what ordinary threads wrote to shared memory visible to wgmma and TMA.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

__device__ __forceinline__ void tma_load_box(std::uint32_t target, const CUtensorMap* map, std::uint32_t barrier, int x,
                                             int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];\n" ::
          "r"(target),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_load_box(std::uint32_t target, const CUtensorMap* map, std::uint32_t barrier, int x,
                                             int y, int z, int v, int w) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];\n" ::"r"(target),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(v), "r"(w)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(address) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// Barriers among some of the block's warps; `id` starts at 1, since __syncthreads uses 0.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Returns the descriptor of a matrix in shared memory whose rows of 128 bytes are stored with the 128-byte swizzle.
// Groups of eight rows are `group_stride` bytes apart. If rows run along the depth (a transposed b), blocks of 64
// columns are `block_stride` bytes apart.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t address, int group_stride, int block_stride) {
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) | (static_cast<std::uint64_t>(block_stride >> 4) << 16) |
         (static_cast<std::uint64_t>(group_stride >> 4) << 32) | (std::uint64_t{1} << 62);
}

#define SOME_SUMS_64(d)                                                                                       \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
      "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
      "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
      "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), \
      "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), \
      "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), \
      "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), \
      "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

// Computes d[64x8] (+)= a[64x16] * b[16x8]; otherwise like wgmma_64x128.
template <int kTransposedB, int kTransposedA = 0>
__device__ __forceinline__ void wgmma_64x8(float (&d)[4], std::uint64_t a, std::uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, %7, %8;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(add), "n"(kTransposedA), "n"(kTransposedB));
}

// Computes d[64x128] (+)= a[64x16] * b[16x128], with a and b in shared memory; d is overwritten if `add` is 0.
// Transposed: the operand's 16 rows or columns of depth are its outermost dimension.
template <int kTransposedB, int kTransposedA = 0>
__device__ __forceinline__ void wgmma_64x128(float (&d)[64], std::uint64_t a, std::uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, %67, %68;\n}\n"
      : SOME_SUMS_64(d)
      : "l"(a), "l"(b), "r"(add), "n"(kTransposedA), "n"(kTransposedB));
}

// Computes d[64x256] (+)= a[64x16] * b[16x256], where d is first[64x128] followed by second[64x128]. Otherwise like
// wgmma_64x128, but a is read once for all 256 columns.
template <int kTransposedB, int kTransposedA = 0>
__device__ __forceinline__ void wgmma_64x256(float (&first)[64], float (&second)[64], std::uint64_t a, std::uint64_t b,
                                             int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, %131, %132;\n}\n"
      : SOME_SUMS_64(first), SOME_SUMS_64(second)
      : "l"(a), "l"(b), "r"(add), "n"(kTransposedA), "n"(kTransposedB));
}
#undef SOME_SUMS_64

// Stores four 8x8 matrices from registers to shared memory: the inverse of ldmatrix_x4.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, const std::uint32_t (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(registers[0]),
               "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}
__device__ __forceinline__ uint4 load_shared(std::uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_shared(std::uint32_t address, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

__device__ __forceinline__ void store_shared_half(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.u16 [%0], %1;\n" ::"r"(address), "h"(static_cast<unsigned short>(value)) : "memory");
}

#endif

}  // namespace some::cuda
