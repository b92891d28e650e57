// The modulated feed-forward block for few rows: feed_forward_few_kernel (few_rows.cuh) with routing and experts. One
// warp multiplies 8 hidden units of a chosen expert, whose weights are read once the choice is known.
#pragma once

#include "inference/cuda/few_rows.cuh"
#include "inference/cuda/transforms.cuh"

namespace some::decoding {

struct ModulatedShared {
  static constexpr int columns = 24, key_stride = query_size + 4;
  static SOME_DEVICE float* sums(char* memory) { return reinterpret_cast<float*>(memory); }
  static SOME_DEVICE float* products(char* memory) { return reinterpret_cast<float*>(memory + 4096); }
  static SOME_DEVICE uint4* rows(char* memory) { return reinterpret_cast<uint4*>(memory + 16384); }
  // [3, 16, width]: the hidden states 1, 2 and 3 tokens earlier; with a convolution, its result.
  static SOME_DEVICE uint4* earlier(char* memory) { return reinterpret_cast<uint4*>(memory + 32768); }
  static SOME_DEVICE uint4* hidden(char* memory) { return reinterpret_cast<uint4*>(memory + 81920); }
  static SOME_DEVICE float* vectors(char* memory) { return reinterpret_cast<float*>(memory + 86016); }
  static SOME_DEVICE float* raw(char* memory) { return reinterpret_cast<float*>(memory + 92160); }     // [16, 64]
  static SOME_DEVICE float* scores(char* memory) { return reinterpret_cast<float*>(memory + 96256); }  // [8, 32]
  static SOME_DEVICE std::int32_t* chosen(char* memory) { return reinterpret_cast<std::int32_t*>(memory + 97280); }
  static SOME_DEVICE float* gates(char* memory) { return reinterpret_cast<float*>(memory + 97536); }  // [16, 4]
  static SOME_DEVICE float* activations(char* memory) {
    return reinterpret_cast<float*>(memory + 97792);
  }                                                                                                   // [16, 4, 16]
  static SOME_DEVICE float* keys(char* memory) { return reinterpret_cast<float*>(memory + 101888); }  // [32, 68]
  // Signs of the block's transforms, [32, 16].
  static SOME_DEVICE std::uint32_t* signs(char* memory) { return reinterpret_cast<std::uint32_t*>(memory + 110592); }
  static constexpr int bytes = 112640;
};

// Grid: as in feed_forward_few_kernel. Each block computes 16 hidden units and the contribution of the chosen experts
// to them.
template <bool kTransforms>
SOME_KERNEL(threads, kTransforms ? 2 : 1)
modulated_few_kernel(const ModulatedStep all) {
  const FeedForwardStep& in = all.block;
  const Routes& routes = all.routes;
  const Modulations& modulations = all.modulations;
  char* memory = shared_memory();
  float* products = ModulatedShared::products(memory);
  uint4 *rows = ModulatedShared::rows(memory), *earlier = ModulatedShared::earlier(memory);
  const int rank = block_index() % cluster_size, cluster = block_index() / cluster_size;
  const int clusters = (in.hidden + hidden_part - 1) / hidden_part;
  const int piece = cluster % clusters, base = cluster / clusters * in.in.cluster_rows;
  const int warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, q = lane % 4;
  const int width = in.in.width, warp_parts = width / part, chunks = width / 8;
  const int left = in.in.rows - base, count = left < in.in.cluster_rows ? left : in.in.cluster_rows;
  const int first = piece * hidden_part + rank * 16, out_column = (rank * warp_parts + warp) * 8;
  uint4 weights1[3][2] = {}, weights2[4] = {};
  if (warp < warp_parts) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int column = warp * part + 32 * s + 8 * q;
#pragma unroll
      for (int t = 0; t < 2; ++t)
        if (first + 8 * t < in.hidden)
          weights1[t][s] = load_weights(in.weight1 + static_cast<std::int64_t>(first + 8 * t + g) * width + column);
      weights1[2][s] = load_weights(routes.weight + (8 * rank + g) * width + column);
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int column = piece * hidden_part + 32 * s + 8 * q;
      if (column < in.hidden)
        weights2[s] = load_weights(in.weight2 + static_cast<std::int64_t>(out_column + g) * in.hidden + column);
    }
  }
  // All experts' weights of the block's hidden units: those of the chosen ones are read once the choice is known.
  for (int i = thread_index(); !kTransforms && all.prefetches && i < routes.experts * 16; i += threads) {
    const int other = first + i % 16;
    if (other < in.hidden)
      prefetch_weights(modulations.w1 + (static_cast<std::int64_t>(i / 16) * in.hidden + other) * width, width * 2);
  }
  // This thread's pair of hidden units, or of columns of the query.
  const bool of_query = thread_index() >= 128;
  const int pair_row = of_query ? (thread_index() - 128) / 4 : thread_index() / 8;
  const int pair_column = of_query ? 16 + thread_index() % 4 * 2 : thread_index() % 8 * 2, unit = first + pair_column;
  float2 pair_bias{0, 0};
  if (of_query)
    pair_bias = *reinterpret_cast<const float2*>(routes.bias + 8 * rank + pair_column - 16);
  else if (unit < in.hidden)
    pair_bias = *reinterpret_cast<const float2*>(in.bias1 + unit);
  float* vectors = ModulatedShared::vectors(memory);
  for (int i = thread_index(); i < routes.experts * (query_size / 4); i += threads) {
    const int expert = i / (query_size / 4), column = i % (query_size / 4) * 4;
    copy_async(ModulatedShared::keys(memory) + expert * ModulatedShared::key_stride + column,
               routes.keys + expert * query_size + column, true);
  }
  if constexpr (kTransforms) {
    for (int i = thread_index(); i < routes.experts * (transform_words / 4); i += threads) {
      const int expert = i / (transform_words / 4), word = i % (transform_words / 4) * 4;
      const std::int64_t block =
          static_cast<std::int64_t>(expert) * modulations.blocks + first / some::cuda::transform_size;
      copy_async(ModulatedShared::signs(memory) + expert * transform_words + word,
                 modulations.signs + block * transform_words + word, true);
    }
  }
  for (int i = thread_index(); i < modulations.shift * count * chunks; i += threads) {
    const int shift = i / (count * chunks), row = i / chunks % count, chunk = i % chunks;
    const int slot = in.in.slots[base + row], position = in.in.positions[base + row] - 1 - shift;
    const bool valid = slot >= 0 && position >= 0;
    copy_async(earlier + shift * tile_rows * chunks + chunk_place(row, chunk, chunks),
               in.in.states + (valid ? (slot * in.in.capacity + position) * width + chunk * 8 : 0), valid);
  }
  copy_vectors(in.in, vectors);
  cluster_sync();
  wait_previous();
  copy_wait<0>();
  block_sync();
  const bool convolves = in.in.taps > 0;
  uint4* multiplied = convolves ? earlier : rows;
  make_rows(in.in, base, count, piece == 0, multiplied, ModulatedShared::sums(memory), vectors, rank, rows);
  if (warp < warp_parts) {
    float c[3][4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint4 low, high;
      load_rows(multiplied, chunks, warp * 2 + s, count, lane, low, high);
#pragma unroll
      for (int t = 0; t < 2; ++t) multiply_chunk(c[t], low, high, weights1[t][s]);
      if (convolves) load_rows(rows, chunks, warp * 2 + s, count, lane, low, high);
      multiply_chunk(c[2], low, high, weights1[2][s]);
    }
#pragma unroll
    for (int t = 0; t < 3; ++t)
      store_tile(products + warp * tile_rows * ModulatedShared::columns, ModulatedShared::columns, 8 * t, c[t], count,
                 lane);
  }
  block_sync();
  float2 sum{0, 0};
  if (pair_row < count) {
    sum = sum_parts(products, ModulatedShared::columns, pair_row, pair_column, warp_parts);
    sum = float2{add(sum.x, pair_bias.x), add(sum.y, pair_bias.y)};
    if (of_query) {
      float2* target =
          reinterpret_cast<float2*>(ModulatedShared::raw(memory) + pair_row * query_size + 8 * rank + pair_column - 16);
#pragma unroll
      for (int other = 0; other < cluster_size; ++other) *remote(target, other) = sum;
    }
  }
  cluster_sync();
  std::int32_t* chosen = ModulatedShared::chosen(memory);
  float* gates = ModulatedShared::gates(memory);
  for (int row = warp; row < count; row += warps)
    route_row(routes, ModulatedShared::raw(memory) + row * query_size, ModulatedShared::keys(memory),
              ModulatedShared::key_stride, ModulatedShared::scores(memory) + warp * max_experts,
              chosen + row * max_choices, gates + row * max_choices, lane);
  block_sync();
  const int choices = routes.choices;
  if (all.report.experts != nullptr && piece == 0 && rank == 0 && thread_index() < count * choices) {
    const int row = thread_index() / choices, i = thread_index() % choices, at = row * max_choices + i;
    report_route(all.report, base + row, i, chosen[at], gates[at]);
  }
  float2 gains[max_choices];
  if (!of_query && pair_row < count && unit < in.hidden) {
#pragma unroll
    for (int i = 0; i < max_choices; ++i)
      if (i < choices)
        gains[i] =
            *reinterpret_cast<const float2*>(modulations.gains + chosen[pair_row * max_choices + i] * in.hidden + unit);
  }
  float* activations = ModulatedShared::activations(memory);
  if constexpr (kTransforms) {
    // One warp per choice; all but the block's hidden units are discarded.
    const int local = first % some::cuda::transform_size;
    for (int item = warp; item < count * choices; item += warps) {
      const int row = item / choices, place = row * max_choices + item % choices, expert = chosen[place];
      const uint4* states = modulations.shift > 0 ? earlier + expert % modulations.shift * tile_rows * chunks : rows;
      transform_state(
          ModulatedShared::signs(memory) + expert * transform_words, lane,
          [&](int column) {
            if (column >= width) return uint2{0, 0};
            return reinterpret_cast<const uint2*>(states + chunk_place(row, column / 8, chunks))[column / 4 % 2];
          },
          [&](int column, const float(&values)[4]) {
            if (column < local || column >= local + 16) return;
#pragma unroll
            for (int r = 0; r < 4; ++r) activations[place * 16 + column - local + r] = rounded(values[r]);
          });
    }
  } else {
    // Each task is 8 hidden units of a chosen expert; a warp loads the weights of its next task while it multiplies.
    std::uint32_t own_choices = 0;
    for (int i = lane; i < count * choices; i += 32)
      own_choices |= 1u << chosen[i / choices * max_choices + i % choices];
    const std::uint32_t used = warp_or(own_choices);
    const int tasks = 2 * count_bits(used);
    uint4 weights[2][2 * warps];
    const auto load = [&](int task, uint4(&to)[2 * warps]) {
      const int unit_row = first + 8 * (task % 2);
      if (task >= tasks || unit_row >= in.hidden) return;
      const bf16* from = modulations.w1 +
                         (static_cast<std::int64_t>(nth_bit(used, task / 2)) * in.hidden + unit_row + g) * width +
                         8 * q;
#pragma unroll
      for (int s = 0; s < 2 * warps; ++s)
        if (s < 2 * warp_parts) to[s] = load_weights(from + 32 * s);
    };
    const auto multiply_task = [&](int task, const uint4(&by)[2 * warps]) {
      const int half = task % 2;
      if (task >= tasks || first + 8 * half >= in.hidden) return;
      const int expert = nth_bit(used, task / 2);
      const uint4* states = modulations.shift > 0 ? earlier + expert % modulations.shift * tile_rows * chunks : rows;
      float total[4] = {};
#pragma unroll
      for (int p = 0; p < warps; ++p) {
        if (p >= warp_parts) break;
        float c[4] = {};
#pragma unroll
        for (int s = 2 * p; s < 2 * p + 2; ++s) {
          uint4 low, high;
          load_rows(states, chunks, s, count, lane, low, high);
          multiply_chunk(c, low, high, by[s]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] = add(total[i], c[i]);
      }
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int row = g + 8 * high;
        if (row >= count) continue;
#pragma unroll
        for (int i = 0; i < max_choices; ++i)
          if (i < choices && chosen[row * max_choices + i] == expert)
            *reinterpret_cast<float2*>(activations + (row * max_choices + i) * 16 + 8 * half + 2 * q) =
                float2{rounded(total[2 * high]), rounded(total[2 * high + 1])};
      }
    };
    load(warp, weights[0]);
    for (int task = warp; task < tasks; task += 2 * warps) {
      load(task + warps, weights[1]);
      multiply_task(task, weights[0]);
      load(task + 2 * warps, weights[0]);
      multiply_task(task + warps, weights[1]);
    }
  }
  block_sync();
  if (!of_query && pair_row < count) {
    std::uint32_t packed = 0;
    if (unit < in.hidden) {
      float2 v{0, 0};
#pragma unroll
      for (int i = 0; i < max_choices; ++i) {
        if (i >= choices) break;
        const int at = pair_row * max_choices + i;
        const float2 one = *reinterpret_cast<const float2*>(activations + at * 16 + pair_column);
        const float weight = times(modulations.scale, gates[at]);
        v = float2{times_add(times(weight, gains[i].x), one.x, v.x), times_add(times(weight, gains[i].y), one.y, v.y)};
      }
      packed = pack(modulated(modulations, rounded(sum.x), v.x), modulated(modulations, rounded(sum.y), v.y));
    }
    std::uint32_t* target =
        reinterpret_cast<std::uint32_t*>(ModulatedShared::hidden(memory) +
                                         chunk_place(pair_row, rank * 2 + pair_column / 8, hidden_part / 8)) +
        pair_column % 8 / 2;
#pragma unroll
    for (int other = 0; other < cluster_size; ++other) *remote(target, other) = packed;
  }
  cluster_sync();
  if (warp < warp_parts) {
    float c[4] = {};
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint4 low, high;
      load_rows(ModulatedShared::hidden(memory), hidden_part / 8, s, count, lane, low, high);
      multiply_chunk(c, low, high, weights2[s]);
    }
    store_tile(in.partial + (static_cast<std::int64_t>(piece) * in.in.rows + base) * width, width, out_column, c, count,
               lane);
  }
}

}  // namespace some::decoding
