// Searches the store on the GPU. If every row is compared with every slot, one kernel multiplies queries and keys and
// accumulates the weights in registers, 64 slots at a time, so that scores are never written to memory; a second, small
// kernel combines the partial sums. Otherwise one block per position reduces its row of scores.
#include "memory/cuda/search.cuh"
#include "memory/cuda/split_keys.cuh"

namespace some::cuda {
namespace {

__global__ void __launch_bounds__(threads)
    masses_kernel(const float* counts, float power, std::int64_t reach, float* masses) {
  wait_previous_kernel_no_trigger();
  const std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (m < reach) masses[m] = counts[m] > 0.0f ? powf(counts[m], power) : 0.0f;
}

// Sums accumulated over the store, each [beta_count, T].
struct RangeSums {
  float *shift, *all, *matching;
};

// One block per position adds its scores with a range of slots to the sums of earlier ranges, if any. Each warp
// finishes one beta. SEVERAL: slots can hold several tokens. BETAS: maximum number of betas. KEPT: slots per
// thread kept in registers; with more slots per thread they are read twice.
template <bool SEVERAL, int BETAS, int KEPT>
__global__ void __launch_bounds__(threads, 2)
    search_kernel(Scores scores, SlotContents contents, const float* masses, const std::int32_t* targets, Betas beta,
                  bool begins, bool last, RangeSums earlier, float* target_prob, std::int32_t* nearest, float* product,
                  unsigned long long* near) {
  wait_previous_kernel_no_trigger();
  static_assert(BETAS <= warps);
  constexpr bool keeps = KEPT > 0;
  constexpr int together = keeps ? KEPT : 4;
  __shared__ float partial[warp_size], sums[2][BETAS][warps];
  __shared__ Near nearest_of[warps];
  __shared__ float part[SEVERAL && !keeps ? slots_at_once : 1];  // every thread reads only what it wrote itself
  const int t = blockIdx.x, positions = gridDim.x, lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int32_t target = targets[t];
  const int searches = scores.searches();
  for (int which = 0; which < searches; ++which) {
    const bool fresh = begins && which == 0;
    const float* row = nullptr;
    std::int32_t first = 0;
    const std::int32_t width = scores.of_row(t, which, row, first) && target >= 0 ? scores.width : 0;
    const float* mass = masses + first;
    const std::int32_t* values = contents.values + first;
    float highest = -INFINITY;
    Near mine = nothing_near();
    float score[together], own_mass[together], own_part[together];
    const auto visit_scores = [&](int base) {
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int m = base + i * threads;
        score[i] = m < width ? row[m] : 0.0f;
        own_mass[i] = m < width ? mass[m] : 0.0f;
        if constexpr (!SEVERAL) own_part[i] = m < width && values[m] == target ? 1.0f : 0.0f;
      }
      if constexpr (SEVERAL)
        contents.parts_of(first + base, static_cast<std::int64_t>(first) + width, target, own_part);
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int m = base + i * threads;
        if (own_mass[i] > 0.0f) highest = fmaxf(highest, score[i]);
        if (own_part[i] > 0.0f) mine.consider({score[i], first + m});
        if constexpr (SEVERAL && !keeps) {
          if (m < width) part[m] = own_part[i];
        }
      }
    };
    if constexpr (keeps) {
      visit_scores(threadIdx.x);
    } else {
      for (int base = threadIdx.x; base < width; base += together * threads) visit_scores(base);
    }
    highest = block_highest(highest, partial);
    mine = block_nearest(mine, nearest_of);
    if (threadIdx.x == 0) {
      Near found{fresh ? 0.0f : product[t], fresh ? -1 : nearest[t]};
      found.consider(mine);
      nearest[t] = found.slot;
      product[t] = found.product;
      near[t] = packed(found);
    }
    float all[BETAS] = {}, matching[BETAS] = {};
    const auto add = [&](float one_score, float one_mass, float share) {
      const float behind = one_score - highest;
#pragma unroll
      for (int s = 0; s < BETAS; ++s) {
        if (s >= beta.count) break;
        const float weight = one_mass * exp2f(behind * beta.binary(s));
        all[s] += weight;
        matching[s] = fmaf(weight, share, matching[s]);
      }
    };
    if (highest > -INFINITY) {
      if constexpr (keeps) {
#pragma unroll
        for (int i = 0; i < KEPT; ++i) {
          if (own_mass[i] > 0.0f) add(score[i], own_mass[i], own_part[i]);
        }
      } else {
#pragma unroll 4
        for (int m = threadIdx.x; m < width; m += threads) {
          const float one_score = row[m], one_mass = mass[m];
          const float share = SEVERAL ? part[m] : (values[m] == target ? 1.0f : 0.0f);
          if (one_mass > 0.0f) add(one_score, one_mass, share);
        }
      }
    }
#pragma unroll
    for (int s = 0; s < BETAS; ++s) {
      if (s >= beta.count) break;
      const float whole = warp_sum(all[s]), right = warp_sum(matching[s]);
      if (lane == 0) {
        sums[0][s][warp] = whole;
        sums[1][s][warp] = right;
      }
    }
    __syncthreads();
    if (warp < beta.count) {
      const float sum = warp_sum(lane < warps ? sums[0][warp % BETAS][lane] : 0.0f);
      const float sum_matching = warp_sum(lane < warps ? sums[1][warp % BETAS][lane] : 0.0f);
      if (lane == 0) {
        const int at = warp * positions + t;
        const float shift = beta.of[warp] * highest;
        float whole = sum, right = sum_matching, level = shift;
        if (!fresh && earlier.all[at] > 0.0f) {
          if (sum > 0.0f) {
            level = fmaxf(earlier.shift[at], shift);
            const float before = expf(earlier.shift[at] - level), now = expf(shift - level);
            whole = before * earlier.all[at] + now * sum;
            right = before * earlier.matching[at] + now * sum_matching;
          } else {
            whole = earlier.all[at];
            right = earlier.matching[at];
            level = earlier.shift[at];
          }
        }
        earlier.all[at] = whole;
        earlier.matching[at] = right;
        earlier.shift[at] = level;
        if (last && which + 1 == searches) target_prob[at] = whole > 0.0f ? right / whole : 0.0f;
      }
    }
  }
}

// Partial result of a row for a range of slots: `level`, the highest score, and for each beta the sum of all
// slots' weights relative to that score and the part of the sum that predicts the target. In memory a record is a
// sequence of numbers, padded to a multiple of four.
template <int BETAS>
struct PartialSums {
  static constexpr int numbers = (1 + 2 * BETAS + 3) / 4 * 4;
  float level = -INFINITY, all[BETAS] = {}, matching[BETAS] = {};

  __device__ void read(const float* from) {
    float4 four[numbers / 4];
#pragma unroll
    for (int i = 0; i < numbers / 4; ++i) four[i] = reinterpret_cast<const float4*>(from)[i];
    const auto* number = reinterpret_cast<const float*>(four);
    level = number[0];
#pragma unroll
    for (int s = 0; s < BETAS; ++s) {
      all[s] = number[1 + s];
      matching[s] = number[1 + BETAS + s];
    }
  }
  __device__ void write(float* to) const {
    float4 four[numbers / 4] = {};
    auto* number = reinterpret_cast<float*>(four);
    number[0] = level;
#pragma unroll
    for (int s = 0; s < BETAS; ++s) {
      number[1 + s] = all[s];
      number[1 + BETAS + s] = matching[s];
    }
#pragma unroll
    for (int i = 0; i < numbers / 4; ++i) reinterpret_cast<float4*>(to)[i] = four[i];
  }
  __device__ void add(const PartialSums& other, const Betas& beta) {
    if (!(other.level > -INFINITY)) return;
    const float highest = fmaxf(level, other.level);
#pragma unroll
    for (int s = 0; s < BETAS; ++s) {
      const float factor = beta.binary(s), others = exp2f((other.level - highest) * factor),
                  own = level > -INFINITY ? exp2f((level - highest) * factor) : 0.0f;
      all[s] = fmaf(others, other.all[s], own * all[s]);
      matching[s] = fmaf(others, other.matching[s], own * matching[s]);
    }
    level = highest;
  }
};

using SearchTile = HalvesProduct<4>;
constexpr int max_tiles = 256;  // in the grid; with more tiles a block processes several

// Data of a block's slots, in shared memory after the product's. Entries of -1 are free.
struct SharedSlots {
  float *mass, *counts;  // [product_slots]
  std::int32_t* values;  // [entries, product_slots]
  float* entry_counts;   // [entries, product_slots]
  int entries;
  static int bytes(std::int64_t entries) {
    return static_cast<int>(product_slots * sizeof(float) * static_cast<std::size_t>(2 + 2 * entries));
  }
  __device__ SharedSlots(unsigned char* memory, int count)
      : mass(reinterpret_cast<float*>(memory)),
        counts(mass + product_slots),
        values(reinterpret_cast<std::int32_t*>(counts + product_slots)),
        entry_counts(reinterpret_cast<float*>(values + count * product_slots)),
        entries(count) {}
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // Loads asynchronously, concurrently with other work; all threads must call both.
  __device__ void load(const SlotContents& contents, const float* masses, int first, int end) const {
    const auto load_one = [](auto* to, const auto* from, bool there) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)), "l"(from),
                   "r"(there ? 4 : 0)
                   : "memory");
    };
    for (int i = threadIdx.x; i < entries * product_slots; i += blockDim.x) {
      const int slot = first + i % product_slots;
      const bool there = slot < end;
      const std::int64_t at = i / product_slots * contents.slots + (there ? slot : 0);
      load_one(entry_counts + i, contents.entry_counts + at, there);
      if (there)
        load_one(values + i, contents.values + at, true);
      else
        values[i] = -1;
    }
    for (int i = threadIdx.x; i < product_slots; i += blockDim.x) {
      const bool there = first + i < end;
      load_one(mass + i, masses + (there ? first + i : 0), there);
      load_one(counts + i, contents.counts + (there ? first + i : 0), there);
    }
    cp_async_commit();
  }
  __device__ void wait() const {
    cp_async_wait<0>();
    __syncthreads();
  }
  // Returns an entry's fraction of its slot: 1 if slots hold one token.
  __device__ float share(int entry, int slot) const {
    return entries == 1 ? 1.0f : entry_counts[entry * product_slots + slot] / fmaxf(counts[slot], 1.0f);
  }
#endif
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// exp2 to 2 units in the last place. Denormal results become 0: such weights are negligible.
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
#endif

// partials: [rows, gridDim.x] records. nearest: [rows], initially 0, is raised to the nearest slot that holds the row's
// target, packed; the maximum does not depend on the order. rows, keys: in halves. For 256 rows, 4,096 slots and a
// width of 512, 64 blocks load 42 MB from L2 for 3.2 GFLOP, which the tensor cores of 64 multiprocessors compute in 8
// us. Measured: 23 us, one wave of blocks that each load, multiply and combine.
template <int BETAS>
__global__ void __launch_bounds__(SearchTile::threads)
    search_by_product_kernel(const __half* rows, const __half* keys, int row_count, int slots, int d,
                             SlotContents contents, const float* masses, const std::int32_t* targets, Betas beta,
                             float* partials, unsigned long long* nearest) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wait_previous_kernel_no_trigger();
  using Tile = SearchTile;
  extern __shared__ __align__(16) unsigned char product_shared[];
  const SharedSlots shared(Tile::behind(product_shared), contents.entries);
  const int first_row = static_cast<int>(blockIdx.y) * Tile::rows, tiles = (slots + product_slots - 1) / product_slots;
  std::int32_t target[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + Tile::row_of(half);
    const std::int32_t asked = row < row_count ? targets[row] : -1;
    target[half] = asked < 0 ? -2 : asked;  // must not match free entries
  }
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_slot = tile * product_slots;
    shared.load(contents, masses, first_slot, slots);
    Sums score;
    Tile::multiply(
        product_shared, [&](int row) { return rows + static_cast<std::int64_t>(row) * 2 * d; }, keys, first_row,
        first_slot, row_count, slots, d, score);
    shared.wait();
    // Index of the entry that holds the row's target, one byte per score of the thread.
    static_assert(max_values < 255);
    constexpr unsigned none = 255;
    unsigned entry[Tile::eights];
#pragma unroll
    for (int n = 0; n < Tile::eights; ++n) entry[n] = 0xFFFFFFFFu;
    for (int e = 0; e < contents.entries; ++e) {
#pragma unroll
      for (int n = 0; n < Tile::eights; ++n) {
        const int2 value = *reinterpret_cast<const int2*>(shared.values + e * product_slots + Tile::slot_of(n, 0));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto found = [&](int i) {
            const int at = 8 * (2 * half + i);
            entry[n] = (entry[n] & ~(0xFFu << at)) | static_cast<unsigned>(e) << at;
          };
          if (value.x == target[half]) found(0);
          if (value.y == target[half]) found(1);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      PartialSums<BETAS> now;
      float highest = -INFINITY, share[Tile::eights][2], mass[Tile::eights][2];
      Near near = nothing_near();
#pragma unroll
      for (int n = 0; n < Tile::eights; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float one = score[4 * n + 2 * half + i];
          mass[n][i] = shared.mass[Tile::slot_of(n, i)];
          if (mass[n][i] > 0.0f) highest = fmaxf(highest, one);
          share[n][i] = 0.0f;
          const unsigned entry_index = entry[n] >> (8 * (2 * half + i)) & 0xFFu;
          if (entry_index == none) continue;
          share[n][i] = shared.share(static_cast<int>(entry_index), Tile::slot_of(n, i));
          near.consider({one, first_slot + Tile::slot_of(n, i)});
        }
      }
      unsigned long long best = packed(near);
#pragma unroll
      for (int offset = 2; offset > 0; offset /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(full_warp, highest, offset));
        best = max(best, __shfl_xor_sync(full_warp, best, offset));
      }
      now.level = highest;
#pragma unroll
      for (int s = 0; s < BETAS; ++s) {
        if (s >= beta.count) break;
        const float factor = beta.binary(s);
#pragma unroll
        for (int n = 0; n < Tile::eights; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            // Empty slots, whose mass is 0, may have a higher score, and all slots may be empty.
            const float behind = fminf((score[4 * n + 2 * half + i] - highest) * factor, 0.0f);
            const float weight = mass[n][i] * power_of_two(behind);
            now.all[s] += weight;
            now.matching[s] = fmaf(weight, share[n][i], now.matching[s]);
          }
        }
#pragma unroll
        for (int offset = 2; offset > 0; offset /= 2) {
          now.all[s] += __shfl_xor_sync(full_warp, now.all[s], offset);
          now.matching[s] += __shfl_xor_sync(full_warp, now.matching[s], offset);
        }
      }
      const int row = first_row + Tile::row_of(half);
      if (threadIdx.x % 4 != 0 || row >= row_count) continue;
      if (best != 0) atomicMax(nearest + row, best);
      float* to = partials + (static_cast<std::int64_t>(row) * gridDim.x + blockIdx.x) * now.numbers;
      if (tile != static_cast<int>(blockIdx.x)) {
        PartialSums<BETAS> before;
        before.read(to);
        before.add(now, beta);
        now = before;
      }
      now.write(to);
    }
    if (tile + static_cast<int>(gridDim.x) < tiles) __syncthreads();  // before the next slots are loaded
  }
#endif
}

// One warp per row combines its records.
template <int BETAS>
__global__ void __launch_bounds__(threads)
    combine_kernel(const float* partials, int records, const std::int32_t* targets, Betas beta, int positions,
                   const unsigned long long* near, float* target_prob, std::int32_t* nearest, float* product) {
  const int lane = threadIdx.x % warp_size, t = static_cast<int>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (t >= positions) return;
  const float* own = partials + static_cast<std::int64_t>(t) * records * PartialSums<BETAS>::numbers;
  const bool asks = targets[t] >= 0;
  PartialSums<BETAS> all;
  constexpr int together = 4;
  for (int base = lane; asks && base < records; base += together * warp_size) {
    PartialSums<BETAS> next[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (base + i * warp_size < records)
        next[i].read(own + static_cast<std::int64_t>(base + i * warp_size) * all.numbers);
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (base + i * warp_size < records) all.add(next[i], beta);
    }
  }
  __syncwarp();
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    PartialSums<BETAS> other;
    other.level = __shfl_xor_sync(full_warp, all.level, offset);
#pragma unroll
    for (int s = 0; s < BETAS; ++s) {
      other.all[s] = __shfl_xor_sync(full_warp, all.all[s], offset);
      other.matching[s] = __shfl_xor_sync(full_warp, all.matching[s], offset);
    }
    all.add(other, beta);
  }
  if (lane == 0) {
    nearest[t] = slot_of(near[t]);
    product[t] = near[t] == 0 ? 0.0f : product_of(near[t]);
#pragma unroll
    for (int s = 0; s < BETAS; ++s) {
      if (s < beta.count) target_prob[s * positions + t] = all.all[s] > 0.0f ? all.matching[s] / all.all[s] : 0.0f;
    }
  }
}

__global__ void no_match_kernel(float* target_prob, std::int32_t* nearest, float* product, unsigned long long* near,
                                int positions, int beta_count) {
  wait_previous_kernel_no_trigger();
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= positions) return;
  for (int s = 0; s < beta_count; ++s) target_prob[s * positions + t] = 0.0f;
  nearest[t] = -1;
  product[t] = 0.0f;
  if (near != nullptr) near[t] = 0;
}

unsigned long long* near_of(const Matches& found) { return reinterpret_cast<unsigned long long*>(longs(found.near)); }

}  // namespace

const float* masses(Context& ctx, const Store& store, const MemorySettings& settings) {
  if (settings.counts == 1.0) return floats(store.counts);
  float* out = floats(ctx.scratch({store.reach}, DType::f32));
  launch_dependent(ctx, masses_kernel, dim3(grid_for(store.reach, threads)), dim3(threads), 0, floats(store.counts),
                   static_cast<float>(settings.counts), store.reach, out);
  return out;
}

void write_no_match(Context& ctx, std::int64_t positions, int beta_count, float* target_prob, std::int32_t* nearest,
                    float* product, unsigned long long* near) {
  launch_dependent(ctx, no_match_kernel, dim3(grid_for(positions, threads)), dim3(threads), 0, target_prob, nearest,
                   product, near, static_cast<int>(positions), beta_count);
}

Combine begin_search(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
                     const Tensor& targets, Matches& found) {
  const std::int64_t positions = queries.dim(0);
  if (positions == 0) return {};
  const Betas beta = betas(settings);
  if (store.reach == 0) {
    write_no_match(ctx, positions, beta.count, floats(found.target_prob), ints(found.nearest), floats(found.product),
                   near_of(found));
    return {};
  }
  const SlotContents contents = contents_of(store);
  const int shared = SearchTile::shared_bytes + SharedSlots::bytes(contents.entries);
  if (!searches_some_partitions(store, settings) && uses_halves(ctx, store) && fits(ctx, shared)) {
    const auto search_by_product = [&](auto beta_count) -> Combine {
      constexpr int BETAS = decltype(beta_count)::value;
      const auto tiles = std::min<unsigned>(grid_for(store.reach, product_slots), max_tiles);
      const auto records = static_cast<std::int64_t>(tiles);
      float* partials = floats(ctx.scratch({positions, records, PartialSums<BETAS>::numbers}, DType::f32));
      const ArenaScope scope(*ctx.arena);
      const Tensor rows = found.query_halves ? found.query_halves : in_halves(ctx, queries, positions),
                   keys = found.key_halves ? found.key_halves : in_halves(ctx, store.keys, store.reach);
      const float* mass = masses(ctx, store, settings);
      launch_product(ctx, search_by_product_kernel<BETAS>, dim3(tiles, grid_for(positions, SearchTile::rows)),
                     SearchTile::threads, shared, halves(rows), halves(keys), static_cast<int>(positions),
                     static_cast<int>(store.reach), static_cast<int>(queries.dim(1)), contents, mass, ints(targets),
                     beta, partials, near_of(found));
      return [=](cudaStream_t stream) {
        combine_kernel<BETAS><<<grid_for(positions, warps), threads, 0, stream>>>(
            partials, static_cast<int>(records), ints(targets), beta, static_cast<int>(positions), near_of(found),
            floats(found.target_prob), ints(found.nearest), floats(found.product));
        SOME_CUDA_LAUNCHED();
      };
    };
    if (beta.count == 1) return search_by_product(std::integral_constant<int, 1>{});
    if (beta.count <= 3) return search_by_product(std::integral_constant<int, 3>{});
    return search_by_product(std::integral_constant<int, max_betas_of_kernel>{});
  }
  const ArenaScope scope(*ctx.arena);
  const float* mass = masses(ctx, store, settings);
  float* kept = floats(ctx.scratch({3, static_cast<std::int64_t>(beta.count), positions}, DType::f32));
  const std::int64_t each = beta.count * positions;
  const auto gather = [&](const Scores& scores, bool begins, bool last) {
    const auto launch = [&](auto kernel) {
      launch_dependent(ctx, kernel, dim3(static_cast<unsigned>(positions)), dim3(threads), 0, scores, contents, mass,
                       ints(targets), beta, begins, last, RangeSums{kept, kept + each, kept + 2 * each},
                       floats(found.target_prob), ints(found.nearest), floats(found.product), near_of(found));
    };
    const auto launch_for = [&](auto several, auto slots_kept) {
      constexpr bool SEVERAL = decltype(several)::value;
      constexpr int KEPT = decltype(slots_kept)::value;
      if (beta.count == 1)
        launch(search_kernel<SEVERAL, 1, KEPT>);
      else if (beta.count <= 3)
        launch(search_kernel<SEVERAL, 3, KEPT>);
      else
        launch(search_kernel<SEVERAL, max_betas_of_kernel, KEPT>);
    };
    const auto launch_some = [&](auto several) {
      if (scores.width <= 2 * threads)
        launch_for(several, std::integral_constant<int, 2>{});
      else if (scores.width <= 16 * threads)
        launch_for(several, std::integral_constant<int, 16>{});
      else
        launch_for(several, std::integral_constant<int, 0>{});
    };
    if (contents.entries > 1)
      launch_some(std::true_type{});
    else
      launch_some(std::false_type{});
  };
  for_each_score_block(ctx, store, settings, floats(queries), positions, gather);
  return {};
}

void search(Context& ctx, const Store& store, const MemorySettings& settings, const Tensor& queries,
            const Tensor& targets, Matches& found) {
  const ArenaScope scope(*ctx.arena);
  if (const Combine combine = begin_search(ctx, store, settings, queries, targets, found)) combine(ctx.cuda->stream);
}

}  // namespace some::cuda
