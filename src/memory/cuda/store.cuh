// Code shared by search and update on the GPU.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "memory/partitions.h"
#include "memory/store.h"

namespace some::cuda {

constexpr float shortest = 1e-12f;
constexpr int threads = 256;
constexpr int warps = threads / warp_size;
constexpr std::int64_t slots_at_once = 8192;  // scores are stored for at most this many slots at a time
constexpr std::int64_t reach_grain = 64;  // a store's reach is a multiple of this, and so are widths of matrix products

// A slot, or -1 for none, and its key product.
struct Near {
  float product;
  std::int32_t slot;

  // Keeps the better slot; ties go to the lower slot.
  __device__ void consider(const Near& other) {
    if (other.slot >= 0 && (slot < 0 || other.product > product || (other.product == product && other.slot < slot)))
      *this = other;
  }
};
__device__ __forceinline__ Near nothing_near() { return {-INFINITY, -1}; }
// Returns the nearest slot of the block in its first thread. shared: one element per warp.
__device__ __forceinline__ Near block_nearest(Near mine, Near* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    Near other;
    other.product = __shfl_xor_sync(full_warp, mine.product, offset);
    other.slot = __shfl_xor_sync(full_warp, mine.slot, offset);
    mine.consider(other);
  }
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < warps; ++w) mine.consider(shared[w]);
  }
  return mine;
}

// Packs slot and product into one number that orders like them: larger for nearer slots, then for lower slots; 0 for
// none.
__device__ __forceinline__ unsigned long long packed(const Near& near) {
  if (near.slot < 0) return 0;
  const unsigned bits = __float_as_uint(near.product + 0.0f);  // -0 becomes 0, its equal
  const unsigned ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (static_cast<unsigned long long>(ordered) << 32) | (0xFFFFFFFFu - static_cast<unsigned>(near.slot));
}
__device__ __forceinline__ std::int32_t slot_of(unsigned long long near) {
  return near == 0 ? -1 : static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<unsigned>(near));
}
__device__ __forceinline__ float product_of(unsigned long long near) {
  const auto ordered = static_cast<unsigned>(near >> 32);
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7FFFFFFFu : ~ordered);
}

// scores [rows, last - first] of queries [rows, d] with the keys of some slots.
void score(Context& ctx, const Store& store, const float* queries, std::int64_t rows, std::int64_t first,
           std::int64_t last, float* scores);

// Rows that search partitions. A pair is a row and one of the partitions it searches; sorted by partition, pairs are
// called visits.
struct PartitionVisits {
  const std::int32_t* parts = nullptr;  // [rows, nprobe], with -1 for none
  const std::int32_t* begin = nullptr;  // [parts + 1]: the first visit of each part
  const std::int32_t* pairs = nullptr;  // for each visit, its pair
  const std::int32_t* place = nullptr;  // for each pair, its visit
  std::int64_t count = 0;               // of pairs
  std::int32_t partition_size = 0;
  int nprobe = 1;
};
// searched: like `parts` above. The result is in the arena.
PartitionVisits make_visits(Context& ctx, const Store& store, const std::int32_t* searched, std::int64_t rows,
                            int nprobe);
// Returns the partitions that each query searches, nearest first: [rows, nprobe], in the arena.
std::int32_t* choose_partitions(Context& ctx, const Store& store, const float* queries, std::int64_t rows, int nprobe);
// Computes scores [visits, width] of each visit with the slots [first, first + width) of its partition.
void score_partitions(Context& ctx, const Store& store, const float* rows, const PartitionVisits& visits,
                      std::int64_t first, std::int64_t width, float* scores);

// Locates the scores of a row: either all rows have scores with the same slots, or each row has scores with the slots
// of the partitions it searches.
struct Scores {
  const float* scores;
  std::int32_t first, width;
  PartitionVisits visits;  // empty if all rows have scores with the same slots

  __device__ int searches() const { return visits.place == nullptr ? 1 : visits.nprobe; }
  // which: index among the partitions that the row searches.
  __device__ bool of_row(int row, int which, const float*& from, std::int32_t& slot) const {
    if (visits.place == nullptr) {
      from = scores + static_cast<std::int64_t>(row) * width;
      slot = first;
      return true;
    }
    const std::int64_t pair = static_cast<std::int64_t>(row) * visits.nprobe + which;
    const std::int32_t part = visits.parts[pair];
    if (part < 0) return false;
    from = scores + static_cast<std::int64_t>(visits.place[pair]) * width;
    slot = part * visits.partition_size + first;
    return true;
  }
};

}  // namespace some::cuda
