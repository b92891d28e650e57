// Computes matches, eviction order and merge targets of an update with few slots, in two kernels instead of three. The
// kernels read nothing that is written concurrently: matches move keys while slots are ranked. The content of evicted
// slots is therefore copied concurrently with the product that finds their merge targets, and new usages are first
// written to a separate array.
#include "memory/cuda/update.cuh"

namespace some::cuda {
namespace {

// Computes the first places of the eviction order, by usage and then by slot, up to the number needed. Each block ranks
// 16 slots by counting how many come before them: for a few thousand slots this has fewer sequential steps than a sort.
constexpr int ranked_each = 16, ranked_tile = 4096;
__device__ __forceinline__ void rank(const Update& update, const EvictedSlots& evicted, const Ranked& ranked, int block,
                                     uint4 (&tile)[ranked_tile / 4]) {
  constexpr int halves = 2 * warps, fours = ranked_tile / 4 / threads;
  static_assert(warp_size == 2 * ranked_each);
  __shared__ std::int32_t before[halves][ranked_each], own_hits[ranked_each];
  const int candidates = ranked.candidates, lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const int own = block * ranked_each, mine_at = own + lane % ranked_each, half = threadIdx.x / ranked_each;
  const int there = min(mine_at, candidates - 1);
  const float used_before = update.usage[there];
  // A slot that is matched concurrently is non-empty before and after.
  const float own_count = static_cast<const volatile float*>(update.counts)[there];
  auto* const hits = reinterpret_cast<unsigned*>(tile);  // matches per slot of the tile; its usage follows
  if (threadIdx.x < ranked_each) own_hits[threadIdx.x] = 0;
  std::int32_t sum = 0;
  unsigned mine = 0;
  int misses = 0;
  for (int first = 0; first < candidates; first += ranked_tile) {
    float4 next[fours];
#pragma unroll
    for (int i = 0; i < fours; ++i) {
      const int m = first + 4 * (i * threads + static_cast<int>(threadIdx.x));
      const auto at = [&](int slot) { return slot < candidates ? update.usage[slot] : 0.0f; };
      next[i] = m + 4 <= candidates ? *reinterpret_cast<const float4*>(update.usage + m)
                                    : make_float4(at(m), at(m + 1), at(m + 2), at(m + 3));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < fours; ++i) tile[i * threads + threadIdx.x] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    for (int base = 0; base < update.positions; base += threads) {
      const int t = base + static_cast<int>(threadIdx.x);
      const bool real = t < update.positions && update.targets[min(t, update.positions - 1)] >= 0;
      const unsigned long long near = t < update.positions ? update.near[t] : 0;
      const bool hit = real && update.is_near(near);
      const int slot = slot_of(near);
      if (hit && slot >= first && slot - first < ranked_tile) atomicAdd(hits + (slot - first), 1u);
      if (first != 0) continue;
      if (hit && slot >= own && slot - own < ranked_each) atomicAdd(own_hits + (slot - own), 1);
      misses += __syncthreads_count(real && !hit);
    }
    __syncthreads();
    if (first == 0) mine = __float_as_uint(update.used(used_before, own_hits[lane % ranked_each]));
#pragma unroll
    for (int i = 0; i < fours; ++i) {
      const int at = i * threads + static_cast<int>(threadIdx.x), m = first + 4 * at;
      const uint4 found = tile[at];
      // Slots beyond the end come last.
      const auto used = [&](int slot, float usage, unsigned times) {
        return slot < candidates ? __float_as_uint(update.used(usage, static_cast<int>(times))) : 0xFFFFFFFFu;
      };
      tile[at] = make_uint4(used(m, next[i].x, found.x), used(m + 1, next[i].y, found.y),
                            used(m + 2, next[i].z, found.z), used(m + 3, next[i].w, found.w));
    }
    __syncthreads();
    // Half a warp compares its slots with 32 others at a time.
    for (int at = half * warp_size; at < ranked_tile && first + at < candidates; at += halves * warp_size) {
      const uint4* others = tile + at / 4;
      const int apart = mine_at - (first + at);  // among equals, the slots below this index come first
      if (apart >= 0 && apart < warp_size) {
        for (int i = 0; i < warp_size; ++i)
          sum += reinterpret_cast<const unsigned*>(others)[i] < mine + (i < apart ? 1u : 0u);
      } else {
        const unsigned below = mine + (apart > 0 ? 1u : 0u);
#pragma unroll
        for (int i = 0; i < warp_size / 4; ++i) {
          const uint4 four = others[i];
          sum += (four.x < below) + (four.y < below) + (four.z < below) + (four.w < below);
        }
      }
    }
  }
  before[half][lane % ranked_each] = sum;
  if (threadIdx.x < ranked_each && mine_at < candidates) ranked.usage[mine_at] = __uint_as_float(mine);
  __syncthreads();
  for (int i = warp; i < ranked_each && own + i < candidates; i += warps) {
    const std::int32_t slot = own + i;
    const int place = __reduce_add_sync(full_warp, lane < halves ? before[lane % halves][i] : 0);
    const bool is_evicted = place < misses;
    const bool holds = __shfl_sync(full_warp, own_count, i) > 0.0f;
    if (lane != 0) continue;
    if (is_evicted) ranked.order[place] = slot;
    if (evicted.keys == nullptr) continue;
    evicted.closed[slot] = is_evicted || !holds;
    if (is_evicted) evicted.set_evicted(place, holds ? slot : -1);
  }
  if (evicted.keys == nullptr || block != 0) return;
  const int rows = min(misses, candidates);
  for (int j = rows + static_cast<int>(threadIdx.x); j < update.positions; j += threads) evicted.set_evicted(j, -1);
  if (threadIdx.x == 0) *evicted.rows = rows;
}

// The first blocks rank slots; after them, one block per position applies matches.
__global__ void __launch_bounds__(threads)
    matches_and_ranks_kernel(Update update, EvictedSlots evicted, Ranked ranked) {
  wait_previous_kernel_no_trigger();
  __shared__ union {
    uint4 tile[ranked_tile / 4];
    Group::Shared together;
  } shared;
  const int block = blockIdx.x, ranking = static_cast<int>(gridDim.x) - update.positions;
  if (block < ranking)
    rank(update, evicted, ranked, block, shared.tile);
  else
    apply_matches(update, block - ranking, shared.together, nullptr);
}

// About half of a window's positions evict a slot, so larger blocks would not be fully used.
using LeftTile = HalvesProduct<2>;
constexpr int copiers = 8;  // blocks that copy, per block of rows

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Each warp copies the content of evicted slots; all of them together copy the usage of all slots.
__device__ __forceinline__ void copy_evicted(const Update& update, const EvictedSlots& evicted, const Ranked& ranked,
                                             int copier) {
  constexpr int copying = LeftTile::threads / warp_size, rows_each = LeftTile::rows / copiers;
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const int all = static_cast<int>(gridDim.y) * copiers, block = static_cast<int>(blockIdx.y) * copiers + copier;
  for (int m = block * LeftTile::threads + static_cast<int>(threadIdx.x); m < ranked.candidates;
       m += all * LeftTile::threads)
    update.usage[m] = ranked.usage[m];
  for (int i = warp; i < rows_each; i += copying) {
    const int j = block * rows_each + i;
    const std::int32_t slot = j < update.positions ? evicted.slots_of_rows[j] : -1;
    if (slot < 0) continue;
    evicted.copy(update, j, slot, ranked.usage);
    const float* from = update.keys + static_cast<std::int64_t>(slot) * update.d;
    float* to = evicted.keys + static_cast<std::int64_t>(j) * update.d;
    // All loads are issued at once; otherwise each store would delay the next load.
    constexpr int together = 16;
    for (int base = lane; base < update.d; base += together * warp_size) {
      float next[together];
#pragma unroll
      for (int k = 0; k < together; ++k) next[k] = base + k * warp_size < update.d ? from[base + k * warp_size] : 0.0f;
#pragma unroll
      for (int k = 0; k < together; ++k) {
        if (base + k * warp_size < update.d) to[base + k * warp_size] = next[k];
      }
    }
  }
}
#endif

// Raises the packed `nearest` to the nearest slot below `slots` that is not closed, for each evicted slot. The first
// `tiles` blocks of each row do this; the blocks after them, if any, copy the content. halves: of the keys.
__global__ void __launch_bounds__(LeftTile::threads)
    merge_targets_by_product_kernel(Update update, EvictedSlots evicted, Ranked ranked, const __half* halves, int slots,
                                    int tiles) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wait_previous_kernel_no_trigger();
  using Tile = LeftTile;
  extern __shared__ __align__(16) unsigned char product_shared[];
  if (static_cast<int>(blockIdx.x) >= tiles)
    return copy_evicted(update, evicted, ranked, static_cast<int>(blockIdx.x) - tiles);
  const int first_row = static_cast<int>(blockIdx.y) * Tile::rows,
            first_slot = static_cast<int>(blockIdx.x) * product_slots;
  if (first_row >= *evicted.rows) return;
  bool open[Tile::eights][2];
#pragma unroll
  for (int n = 0; n < Tile::eights; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int slot = first_slot + Tile::slot_of(n, i);
      open[n][i] = slot < slots && !evicted.closed[min(slot, slots - 1)];
    }
  }
  const auto left = [&](int j) {
    return halves + static_cast<std::int64_t>(max(evicted.slots_of_rows[j], 0)) * 2 * update.d;
  };
  Sums own;
  Tile::multiply(product_shared, left, halves, first_row, first_slot, update.positions, slots, update.d, own);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + Tile::row_of(half);
    Near near = nothing_near();
#pragma unroll
    for (int n = 0; n < Tile::eights; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (open[n][i]) near.consider({own[4 * n + 2 * half + i], first_slot + Tile::slot_of(n, i)});
      }
    }
    unsigned long long best = packed(near);
#pragma unroll
    for (int offset = 2; offset > 0; offset /= 2) best = max(best, __shfl_xor_sync(full_warp, best, offset));
    if (threadIdx.x % 4 == 0 && row < update.positions && best != 0) atomicMax(evicted.nearest + row, best);
  }
#endif
}

void launch_merge_targets(Context& ctx, const Store& store, const Update& update, const EvictedSlots& evicted,
                          const Ranked& ranked, int copying) {
  const unsigned tiles = grid_for(store.reach, product_slots);
  const __half* keys = update.halves != nullptr ? update.halves : halves(in_halves(ctx, store.keys, store.reach));
  launch_product(ctx, merge_targets_by_product_kernel,
                 dim3(tiles + static_cast<unsigned>(copying), grid_for(update.positions, LeftTile::rows)),
                 LeftTile::threads, LeftTile::shared_bytes, update, evicted, ranked, keys,
                 static_cast<int>(store.reach), static_cast<int>(tiles));
}

}  // namespace

Ranked apply_matches_and_rank(Context& ctx, const Update& update, const EvictedSlots& evicted,
                              std::int32_t candidates) {
  const Ranked ranked{ints(ctx.scratch({update.positions}, DType::i32)), floats(ctx.scratch({candidates}, DType::f32)),
                      candidates};
  launch_dependent(ctx, matches_and_ranks_kernel,
                   dim3(grid_for(candidates, ranked_each) + static_cast<unsigned>(update.positions)), dim3(threads), 0,
                   update, evicted, ranked);
  return ranked;
}

bool finds_merge_targets_by_product(const Context& ctx, const Store& store) {
  return store.entries() > 1 && uses_halves(ctx, store) && fits(ctx, LeftTile::shared_bytes);
}

void find_merge_targets_by_product(Context& ctx, const Store& store, const Update& update,
                                   const EvictedSlots& evicted) {
  launch_merge_targets(ctx, store, update, evicted, Ranked{}, 0);
}

void find_merge_targets_and_copy(Context& ctx, const Store& store, const Update& update, const EvictedSlots& evicted,
                                 const Ranked& ranked) {
  launch_merge_targets(ctx, store, update, evicted, ranked, copiers);
}

}  // namespace some::cuda
