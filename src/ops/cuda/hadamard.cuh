// Device functions of experts made of Hadamard transforms (ops/hadamard_experts.h). Two implementations exist: one for
// P = 512, one transform and bf16, in which a warp transforms on tensor cores (kernels/cuda/hadamard_512.cuh), and one
// for all other sizes and types, in which a warp or a block transforms in shared memory in fp32.
#pragma once

#include "kernels/cuda/hadamard_512.cuh"
#include "kernels/cuda/launch.cuh"
#include "ops/hadamard.h"

namespace some::cuda {

// Experts as passed to kernels.
struct HadamardView {
  HadamardSizes sizes{};
  HadamardSigns signs1{}, signs2{};
  float scale1 = 0, scale2 = 0;
  int size = 0, blocks = 0;  // P, and blocks of P rows per expert

  HadamardView() = default;
  explicit HadamardView(const HadamardExperts& experts)
      : sizes(experts.sizes),
        signs1(experts.signs1()),
        signs2(experts.has_w2 ? experts.signs2() : HadamardSigns{}),
        scale1(static_cast<float>(experts.sizes.scale1())),
        scale2(static_cast<float>(experts.sizes.scale2())),
        size(experts.sizes.size()),
        blocks(experts.sizes.blocks()) {}
};

// True if the kernels for P = 512 may be used; their rows are accessed in pieces of 8 bytes.
inline bool fits_512(const Context& ctx, const HadamardExperts& experts) {
  return ctx.compute == DType::bf16 && ctx.cuda->major >= 8 && experts.sizes.size() == transform_size &&
         experts.sizes.transforms == 1 && experts.sizes.d % 4 == 0 && experts.sizes.f % 4 == 0;
}

// --- P = 512: signs ---

inline constexpr int blocks_drawn = 8;  // blocks whose signs a warp draws at a time

// Signs of blocks of 512, for one warp. Cached ones are read from memory; others are drawn into the warp's part of
// shared memory, which takes one random block per lane for eight blocks of signs.
template <bool CACHED>
struct WarpSigns {
  HadamardSigns source;
  uint4* drawn;  // [32], in shared memory; not read if CACHED

  // Draws the signs of eight blocks: lane l passes the number expert * blocks + block of the (l / 4)-th of them.
  __device__ __forceinline__ void draw(std::int64_t block, int lane) const {
    if constexpr (!CACHED) {
      const Philox bits = philox(source.stream.key, static_cast<std::uint64_t>(block) * 4 + (lane & 3));
      __syncwarp();
      drawn[lane] = make_uint4(bits.v[0], bits.v[1], bits.v[2], bits.v[3]);
      __syncwarp();
    }
  }
  // Returns the 512 bits of a block, which was the n-th of those drawn last.
  __device__ __forceinline__ const std::uint32_t* bits(std::int64_t block, int n) const {
    return CACHED ? reinterpret_cast<const std::uint32_t*>(source.cached) + block * (transform_size / 32)
                  : reinterpret_cast<const std::uint32_t*>(drawn + 4 * n);
  }
};

// --- Any size ---

inline constexpr int transform_threads = 256;

// LANES threads transform in shared memory: a warp, of which a block has eight, or a whole block if P is large.
inline bool by_warps(const HadamardView& experts) { return experts.size <= 1024; }

// Dynamic shared memory of a block in which each group of `lanes` threads has `arrays` of P numbers and the signs of
// one.
inline std::size_t transform_shared_bytes(const HadamardView& experts, int lanes, int arrays) {
  const int words = experts.sizes.words() + (experts.size * arrays + 1) / 2;
  return sizeof(std::uint64_t) * static_cast<std::size_t>(words) * static_cast<std::size_t>(transform_threads / lanes);
}

// Transforms of P numbers in shared memory, by LANES threads of which this is number `lane`. Functions begin with a
// barrier where they read what other lanes may have written.
template <int LANES>
class SharedTransform {
 public:
  // arrays: of P numbers each, at array(0), array(1), ...
  __device__ SharedTransform(const HadamardView& experts, int arrays) : experts_(experts) {
    extern __shared__ std::uint64_t transform_shared[];
    const int words = experts.sizes.words(), group = static_cast<int>(threadIdx.x) / LANES;
    words_ = transform_shared + group * (words + (experts.size * arrays + 1) / 2);
    first_ = reinterpret_cast<float*>(words_ + words);
  }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % LANES; }
  // Number of this group among those of all blocks.
  static __device__ __forceinline__ int group() {
    return static_cast<int>(blockIdx.x * (transform_threads / LANES) + threadIdx.x / LANES);
  }
  static __device__ __forceinline__ void sync() {
    if constexpr (LANES == warp_size)
      __syncwarp();
    else
      __syncthreads();
  }
  __device__ __forceinline__ float* array(int i) const { return first_ + i * experts_.size; }

  __device__ void fill(float value, float* values) const {
    for (int j = lane(); j < experts_.size; j += LANES) values[j] = value;
  }
  // Sets values[j] to row[start + j], or 0 from `length` on.
  template <typename T>
  __device__ void load(const T* row, int start, int length, float* values) const {
    sync();
    for (int j = lane(); j < experts_.size; j += LANES) values[j] = start + j < length ? to_f32(row[start + j]) : 0.0f;
  }
  // Computes values = B(e, b) values, for all lanes.
  __device__ void forward(const HadamardSigns& signs, std::int64_t expert, int block, float* values) const {
    for (int m = 0; m < experts_.sizes.transforms; ++m) {
      flip(signs, expert, block, m, values);
      transform(values);
    }
    sync();
  }
  // Computes values = B(e, b)^T values, for all lanes.
  __device__ void transposed(const HadamardSigns& signs, std::int64_t expert, int block, float* values) const {
    for (int m = experts_.sizes.transforms - 1; m >= 0; --m) {
      transform(values);
      flip(signs, expert, block, m, values);
    }
    sync();
  }
  // Returns the sum over all lanes, in a fixed order. scratch: 32 numbers in shared memory.
  static __device__ __forceinline__ float sum(float value, float* scratch) {
    if constexpr (LANES == warp_size)
      return warp_sum(value);
    else
      return block_sum(value, scratch);
  }

 private:
  __device__ void flip(const HadamardSigns& signs, std::int64_t expert, int block, int m, float* values) const {
    const std::uint64_t first = experts_.sizes.first_word(static_cast<std::uint64_t>(expert), block, m);
    sync();
    for (int w = lane(); w < experts_.sizes.words(); w += LANES) words_[w] = signs.word(first + w);
    sync();
    for (int j = lane(); j < experts_.size; j += LANES)
      if ((words_[j / 64] >> (j % 64) & 1) != 0) values[j] = -values[j];
  }
  __device__ void transform(float* values) const {
    for (int half = 1; half < experts_.size; half *= 2) {
      sync();
      for (int pair = lane(); pair < experts_.size / 2; pair += LANES) {
        const int low = (pair & ~(half - 1)) * 2 + (pair & (half - 1)), high = low + half;
        const float a = values[low], b = values[high];
        values[low] = a + b;
        values[high] = a - b;
      }
    }
  }
  const HadamardView& experts_;
  std::uint64_t* words_;
  float* first_;
};

// Calls function.operator()<LANES>().
template <typename Function>
void by_lanes(const HadamardView& experts, Function&& function) {
  if (by_warps(experts))
    function.template operator()<warp_size>();
  else
    function.template operator()<transform_threads>();
}

// Launches a kernel with `arrays` per group of lanes. Fails if they need more shared memory than the GPU has.
template <typename... Parameters, typename... Arguments>
void launch_transforms(const Context& ctx, void (*kernel)(Parameters...), int lanes, dim3 blocks,
                       const HadamardView& experts, int arrays, Arguments&&... arguments) {
  const std::size_t shared = transform_shared_bytes(experts, lanes, arrays);
  if (shared > 48 * 1024 && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared)) != cudaSuccess) {
    (void)cudaGetLastError();
    failed(Code::size_unsupported, "some.init = \"hadamard\": transforms of {} numbers are too large for this GPU",
           experts.size);
  }
  launch_dependent(ctx, kernel, blocks, dim3(transform_threads), shared, std::forward<Arguments>(arguments)...);
}

}  // namespace some::cuda
