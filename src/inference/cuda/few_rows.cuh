// Kernels for few rows: 8 blocks form a cluster and share 16 rows through distributed shared memory. A layer takes two
// kernels: attention, where a cluster computes one head and its part of the output projection, and the feed-forward
// block, where a cluster computes 128 hidden units and their part of the second product. The next kernel adds the
// parts. Weights are prefetched into registers before the previous kernel has ended.
//
// Bytes per layer: the weights once per 16 rows, keys and values once.
#pragma once

#include "inference/cuda/rows.cuh"

namespace some::decoding {

// Bias, and weight and bias of the norm, in shared memory: [3, width]. Copied before the previous kernel has ended.
SOME_DEVICE void copy_vectors(const RowInput& in, float* vectors) {
  const int quads = in.width / 4;
  for (int i = thread_index(); i < 3 * quads; i += threads) {
    const float* from = i < quads ? in.bias : i < 2 * quads ? in.norm_weight : in.norm_bias;
    if (from != nullptr) copy_async(vectors + 4 * i, from + 4 * (i % quads), true);
  }
  copy_commit();
}

// Stores rows base .. base + count - 1 into `rows` ([16, width] bf16) of every block of the cluster that multiplies
// them; with a convolution, `unconvolved` receives its input. sums: [2, width] floats; vectors: from copy_vectors(),
// whose copies have arrived. With more than two rows, each block computes some of them for the whole cluster.
SOME_DEVICE void make_rows(const RowInput& in, int base, int count, bool leader, uint4* rows, float* sums,
                           const float* vectors, int rank, uint4* unconvolved = nullptr) {
  const bool shared = count > 2;
  const int quads = in.width / 4, chunks = in.width / 8;
  const int own = shared ? (rank < count) + (rank + cluster_size < count) : count;
  for (int item = thread_index(); item < own * quads; item += threads) {
    const int index = item / quads, column = item % quads * 4;
    const int row = base + (shared ? rank + cluster_size * index : index);
    float v[4];
    if (in.table != nullptr) {
      const float4 e =
          *reinterpret_cast<const float4*>(in.table + static_cast<std::int64_t>(in.tokens[row]) * in.width + column);
      float4 at{0, 0, 0, 0};
      if (in.places != nullptr)
        at = *reinterpret_cast<const float4*>(in.places + static_cast<std::int64_t>(in.positions[row]) * in.width +
                                              column);
      v[0] = times_add(in.table_scale, e.x, at.x);
      v[1] = times_add(in.table_scale, e.y, at.y);
      v[2] = times_add(in.table_scale, e.z, at.z);
      v[3] = times_add(in.table_scale, e.w, at.w);
    } else {
      const uint2 r = load_written(
          reinterpret_cast<const uint2*>(in.residual + static_cast<std::int64_t>(row) * in.width + column));
      float4 sum{0, 0, 0, 0};
      const float* from = in.partial + static_cast<std::int64_t>(row) * in.width + column;
      const std::int64_t step = static_cast<std::int64_t>(in.rows) * in.width;
#pragma unroll 8
      for (int p = 0; p < in.parts; ++p) {
        const float4 more = load_written(reinterpret_cast<const float4*>(from + p * step));
        sum = float4{add(sum.x, more.x), add(sum.y, more.y), add(sum.z, more.z), add(sum.w, more.w)};
      }
      if (in.bias != nullptr) {
        const float4 b = *reinterpret_cast<const float4*>(vectors + column);
        sum = float4{add(sum.x, b.x), add(sum.y, b.y), add(sum.z, b.z), add(sum.w, b.w)};
      }
      v[0] = add(low_half(r.x), sum.x);
      v[1] = add(high_half(r.x), sum.y);
      v[2] = add(low_half(r.y), sum.z);
      v[3] = add(high_half(r.y), sum.w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[index * in.width + column + i] = rounded(v[i]);
  }
  block_sync();
  const int warp = thread_index() / 32, lane = thread_index() % 32;
  constexpr int most = largest_width / 128;
  if (warp < own) {
    const int local = shared ? rank + cluster_size * warp : warp, row = base + local, parts = in.width / 128;
    float values[most][4];
#pragma unroll
    for (int p = 0; p < most; ++p) {
      if (p >= parts) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) values[p][i] = sums[warp * in.width + (p * 32 + lane) * 4 + i];
    }
    if (in.table == nullptr) norm_row(values, parts, in.width, vectors + in.width, vectors + 2 * in.width, lane);
    const bool writes = leader && (shared || rank == 0);
    int slot = -1, position = 0;
    if (in.states != nullptr) {
      slot = in.slots[row];
      position = in.positions[row];
    }
    const std::int64_t place = (slot < 0 ? 0 : slot) * in.capacity + position;
#pragma unroll
    for (int p = 0; p < most; ++p) {
      if (p >= parts) break;
      const int column = (p * 32 + lane) * 4;
      uint2 packed{pack(values[p][0], values[p][1]), pack(values[p][2], values[p][3])};
      if (writes) *reinterpret_cast<uint2*>(in.x + static_cast<std::int64_t>(row) * in.width + column) = packed;
      if (in.states != nullptr && writes && slot >= 0)
        *reinterpret_cast<uint2*>(in.states + place * in.width + column) = packed;
      if (in.taps > 0) {
        if (unconvolved != nullptr) {
          uint2* target =
              reinterpret_cast<uint2*>(unconvolved + chunk_place(local, column / 8, chunks)) + column / 4 % 2;
          if (shared) {
#pragma unroll
            for (int other = 0; other < cluster_size; ++other) *remote(target, other) = packed;
          } else {
            *target = packed;
          }
        }
        float look[4] = {low_half(packed.x), high_half(packed.x), low_half(packed.y), high_half(packed.y)};
        for (int j = 1; j <= in.taps && j <= position; ++j)
          convolve(look, in.states, in.taps_weight, place, j, column, in.width);
        packed = uint2{pack(look[0], look[1]), pack(look[2], look[3])};
      }
      uint2* target = reinterpret_cast<uint2*>(rows + chunk_place(local, column / 8, chunks)) + column / 4 % 2;
      if (shared) {
#pragma unroll
        for (int other = 0; other < cluster_size; ++other) *remote(target, other) = packed;
      } else {
        *target = packed;
      }
    }
  }
  if (shared)
    cluster_sync();
  else
    block_sync();
}

// Returns the lane's chunk of rows g and g + 8, in the columns 32 * step .. 32 * step + 31.
SOME_DEVICE void load_rows(const uint4* rows, int chunks, int step, int count, int lane, uint4& low, uint4& high) {
  const int g = lane / 4, chunk = 4 * step + lane % 4;
  low = rows[chunk_place(g, chunk, chunks)];
  high = uint4{0, 0, 0, 0};
  if (count > 8) high = rows[chunk_place(g + 8, chunk, chunks)];
}

// Writes the sums of a tile to sums[row][column], which has `columns` columns.
SOME_DEVICE void store_tile(float* sums, int columns, int first, const float (&c)[4], int count, int lane) {
  const int g = lane / 4, column = first + lane % 4 * 2;
  if (g < count) *reinterpret_cast<float2*>(sums + g * columns + column) = float2{c[0], c[1]};
  if (g + 8 < count) *reinterpret_cast<float2*>(sums + (g + 8) * columns + column) = float2{c[2], c[3]};
}

// Adds the partial sums of a row, [warps, 16, columns], in order. All are loaded at once.
SOME_DEVICE float2 sum_parts(const float* products, int columns, int row, int column, int parts) {
  float2 each[warps];
#pragma unroll
  for (int p = 0; p < warps; ++p) {
    each[p] = float2{0, 0};
    if (p < parts) each[p] = *reinterpret_cast<const float2*>(products + (p * tile_rows + row) * columns + column);
  }
  float2 sum{0, 0};
#pragma unroll
  for (int p = 0; p < warps; ++p) sum = float2{add(sum.x, each[p].x), add(sum.y, each[p].y)};
  return sum;
}

struct AttentionShared {
  static constexpr int columns = 24;
  static SOME_DEVICE float* sums(char* memory) { return reinterpret_cast<float*>(memory); }  // [2, width]
  static SOME_DEVICE float* products(char* memory) { return reinterpret_cast<float*>(memory + 4096); }
  static SOME_DEVICE uint4* rows(char* memory) { return reinterpret_cast<uint4*>(memory + 4096 + 12288); }
  static SOME_DEVICE std::uint32_t* qkv(char* memory) { return reinterpret_cast<std::uint32_t*>(memory + 32768); }
  static SOME_DEVICE uint4* mixed(char* memory) { return reinterpret_cast<uint4*>(memory + 33792); }
  static SOME_DEVICE float* vectors(char* memory) { return reinterpret_cast<float*>(memory + 35840); }  // [3, width]
  // Prefetches the first keys and values of the block's rows.
  static constexpr int fetched_blocks = 7, fetched_bytes = fetched_blocks * position_block * 2 * head_size * 2;
  static SOME_DEVICE uint4* fetched(char* memory) { return reinterpret_cast<uint4*>(memory + 41984); }
  static SOME_DEVICE float* blocks(char* memory) { return reinterpret_cast<float*>(memory + 41984 + fetched_bytes); }
  static constexpr int block_floats = 66;
  static int bytes(std::int64_t capacity) {
    return 41984 + fetched_bytes +
           static_cast<int>((capacity + position_block - 1) / position_block) * 2 * block_floats * 4;
  }
};

// Grid: 8 blocks per head and 16 rows. width = 64 heads, a multiple of 128, at most 512.
SOME_KERNEL(threads, 2) attention_few_kernel(const AttentionStep in) {
  char* memory = shared_memory();
  float* products = AttentionShared::products(memory);
  uint4* rows = AttentionShared::rows(memory);
  const int rank = block_index() % cluster_size, cluster = block_index() / cluster_size;
  const int head = cluster % in.heads, base = cluster / in.heads * in.in.cluster_rows;
  const int warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, q = lane % 4;
  const int width = in.in.width, warp_parts = width / part, chunks = width / 8;
  const int left = in.in.rows - base, count = left < in.in.cluster_rows ? left : in.in.cluster_rows;
  uint4 weights[3][2] = {}, out_weights[2] = {};
  const int out_column = (rank * warp_parts + warp) * 8;
  if (warp < warp_parts) {
#pragma unroll
    for (int t = 0; t < 3; ++t) {
#pragma unroll
      for (int s = 0; s < 2; ++s)
        weights[t][s] = load_weights(in.qkv_weight +
                                     static_cast<std::int64_t>(t * width + head * head_size + rank * 8 + g) * width +
                                     warp * part + 32 * s + 8 * q);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s)
      out_weights[s] = load_weights(in.out_weight + static_cast<std::int64_t>(out_column + g) * width +
                                    head * head_size + 32 * s + 8 * q);
  }
  // The thread's pair of columns of the sum of partial products.
  const int pair_row = thread_index() / 12, pair_column = thread_index() % 12 * 2, pair_kind = pair_column / 8;
  const int pair_of_head = rank * 8 + pair_column % 8;
  const float2 pair_bias =
      *reinterpret_cast<const float2*>(in.qkv_bias + pair_kind * width + head * head_size + pair_of_head);
  float* vectors = AttentionShared::vectors(memory);
  copy_vectors(in.in, vectors);

  // Attention of rows rank and rank + 8, each by half of the warps, or of one row by all.
  const int own = (rank < count) + (rank + cluster_size < count);
  const int row_warps = own == 2 ? warps / 2 : warps, index = warp / row_warps;
  const int local = rank + cluster_size * index, row = base + local, c = lane % 8;
  const std::int64_t stride = 2 * width;
  // Only the first layer follows a kernel that sets the positions.
  if (in.in.table != nullptr) wait_previous();
  const bool active = index < own && in.in.slots[row] >= 0;
  const int position = active ? in.in.positions[row] : 0;
  bf16* keys = in.cache + (active ? in.in.slots[row] : 0) * in.in.capacity * stride + head * head_size + 8 * c;
  const int fetched_each = AttentionShared::fetched_blocks / (own == 2 ? 2 : 1);
  uint4* fetched = AttentionShared::fetched(memory) + index * fetched_each * position_block * 16 + c;
  if (active) {
    for (int b = warp % row_warps; b < fetched_each; b += row_warps) {
#pragma unroll
      for (int i = 0; i < position_block / 4; ++i) {
        const int at = b * position_block + 4 * i + lane / 8;
        if (at >= position) continue;
        copy_async(fetched + at * 16, keys + at * stride, true);
        copy_async(fetched + at * 16 + 8, keys + width + at * stride, true);
      }
    }
  }
  copy_commit();
  cluster_sync();  // all blocks have started, so their shared memory may be written
  if (in.in.table == nullptr) wait_previous();
  copy_wait<1>();
  block_sync();
  make_rows(in.in, base, count, head == 0, rows, AttentionShared::sums(memory), vectors, rank);

  // Computes columns 8 rank .. 8 rank + 7 of the head's queries, keys and values; each warp multiplies `part` columns.
  if (warp < warp_parts) {
    float c[3][4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint4 low, high;
      load_rows(rows, chunks, warp * 2 + s, count, lane, low, high);
#pragma unroll
      for (int t = 0; t < 3; ++t) multiply_chunk(c[t], low, high, weights[t][s]);
    }
#pragma unroll
    for (int t = 0; t < 3; ++t)
      store_tile(products + warp * tile_rows * AttentionShared::columns, AttentionShared::columns, 8 * t, c[t], count,
                 lane);
  }
  block_sync();
  if (pair_row < count) {
    const float2 sum = sum_parts(products, AttentionShared::columns, pair_row, pair_column, warp_parts);
    std::uint32_t* target =
        AttentionShared::qkv(memory) + (pair_row / cluster_size) * 96 + pair_kind * 32 + pair_of_head / 2;
    *remote(target, pair_row % cluster_size) = pack(add(sum.x, pair_bias.x), add(sum.y, pair_bias.y));
  }
  copy_wait<0>();
  cluster_sync();

  const int block_count = active ? position / position_block + 1 : 0;
  float* blocks =
      AttentionShared::blocks(memory) +
      index * static_cast<int>((in.in.capacity + position_block - 1) / position_block) * AttentionShared::block_floats;
  if (active) {
    const uint4* own_row = reinterpret_cast<const uint4*>(AttentionShared::qkv(memory) + index * 96);
    const uint4 packed = own_row[c];
    constexpr float scale = 1.4426950408889634f / 8;
    const float query[8] = {times(scale, low_half(packed.x)), times(scale, high_half(packed.x)),
                            times(scale, low_half(packed.y)), times(scale, high_half(packed.y)),
                            times(scale, low_half(packed.z)), times(scale, high_half(packed.z)),
                            times(scale, low_half(packed.w)), times(scale, high_half(packed.w))};
    for (int b = warp % row_warps; b < block_count; b += row_warps) {
      const bool near = b < fetched_each;
      const uint4* from = near ? fetched : reinterpret_cast<const uint4*>(keys);
      const Attended block = attend_block(query, from, near ? 8 : width / 8, near ? 16 : stride / 8, near,
                                          b * position_block, position, own_row + 8 + c, own_row + 16 + c, lane);
      float* target = blocks + b * AttentionShared::block_floats;
      if (lane < 8) {
#pragma unroll
        for (int i = 0; i < 8; i += 2)
          *reinterpret_cast<float2*>(target + 8 * c + i) = float2{block.values[i], block.values[i + 1]};
      }
      if (lane == 0) *reinterpret_cast<float2*>(target + 64) = float2{block.largest, block.sum};
    }
    // Stores the new key and value for later steps.
    if (warp % row_warps == 0 && lane < 16)
      *reinterpret_cast<uint4*>(keys + position * stride + (lane < 8 ? 0 : width)) = own_row[8 + lane];
  }
  block_sync();
  if (index < own && warp % row_warps == 0) {
    float2 values{0, 0};
    if (active) {
      float2 total{0, 0};
      // Loads several blocks at once and merges them one by one.
      constexpr int loaded = 4;
      for (int first = 0; first < block_count; first += loaded) {
        float2 totals[loaded], parts[loaded];
#pragma unroll
        for (int b = 0; b < loaded; ++b) {
          const float* from = blocks + (first + b < block_count ? first + b : first) * AttentionShared::block_floats;
          totals[b] = *reinterpret_cast<const float2*>(from + 64);
          parts[b] = *reinterpret_cast<const float2*>(from + 2 * lane);
        }
#pragma unroll
        for (int b = 0; b < loaded; ++b) {
          if (first + b >= block_count) break;
          if (first + b == 0) {
            total = totals[0];
            values = parts[0];
            continue;
          }
          const Merge by = merge(total.x, totals[b].x);
          total = float2{by.largest, merged(by, total.y, totals[b].y)};
          values = float2{merged(by, values.x, parts[b].x), merged(by, values.y, parts[b].y)};
        }
      }
      values = float2{values.x / total.y, values.y / total.y};
    }
    std::uint32_t* target =
        reinterpret_cast<std::uint32_t*>(AttentionShared::mixed(memory) + chunk_place(local, lane / 4, 8)) + lane % 4;
    const std::uint32_t packed = pack(values.x, values.y);
#pragma unroll
    for (int other = 0; other < cluster_size; ++other) *remote(target, other) = packed;
  }
  cluster_sync();
  if (warp < warp_parts) {
    float c[4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint4 low, high;
      load_rows(AttentionShared::mixed(memory), 8, s, count, lane, low, high);
      multiply_chunk(c, low, high, out_weights[s]);
    }
    store_tile(in.partial + (static_cast<std::int64_t>(head) * in.in.rows + base) * width, width, out_column, c, count,
               lane);
  }
}

struct FeedForwardShared {
  static constexpr int columns = 16;
  static SOME_DEVICE float* sums(char* memory) { return reinterpret_cast<float*>(memory); }
  static SOME_DEVICE float* products(char* memory) { return reinterpret_cast<float*>(memory + 4096); }
  static SOME_DEVICE uint4* rows(char* memory) { return reinterpret_cast<uint4*>(memory + 12288); }
  static SOME_DEVICE uint4* hidden(char* memory) { return reinterpret_cast<uint4*>(memory + 28672); }
  static SOME_DEVICE float* vectors(char* memory) { return reinterpret_cast<float*>(memory + 32768); }
  static constexpr int bytes = 38912;
};

// Grid: 8 blocks per 128 hidden units and 16 rows.
SOME_KERNEL(threads, 2) feed_forward_few_kernel(const FeedForwardStep in) {
  char* memory = shared_memory();
  float* products = FeedForwardShared::products(memory);
  uint4* rows = FeedForwardShared::rows(memory);
  const int rank = block_index() % cluster_size, cluster = block_index() / cluster_size;
  const int clusters = (in.hidden + hidden_part - 1) / hidden_part;
  const int piece = cluster % clusters, base = cluster / clusters * in.in.cluster_rows;
  const int warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, q = lane % 4;
  const int width = in.in.width, warp_parts = width / part, chunks = width / 8;
  const int left = in.in.rows - base, count = left < in.in.cluster_rows ? left : in.in.cluster_rows;
  const int first = piece * hidden_part + rank * 16, out_column = (rank * warp_parts + warp) * 8;
  uint4 weights1[2][2] = {}, weights2[4] = {};
  if (warp < warp_parts) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
      for (int s = 0; s < 2; ++s)
        if (first + 8 * t < in.hidden)
          weights1[t][s] = load_weights(in.weight1 + static_cast<std::int64_t>(first + 8 * t + g) * width +
                                        warp * part + 32 * s + 8 * q);
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int column = piece * hidden_part + 32 * s + 8 * q;
      if (column < in.hidden)
        weights2[s] = load_weights(in.weight2 + static_cast<std::int64_t>(out_column + g) * in.hidden + column);
    }
  }
  // The thread's pair of hidden units.
  const int pair_row = thread_index() / 8, pair_column = thread_index() % 8 * 2, unit = first + pair_column;
  float2 pair_bias{0, 0};
  if (unit < in.hidden) pair_bias = *reinterpret_cast<const float2*>(in.bias1 + unit);
  float* vectors = FeedForwardShared::vectors(memory);
  copy_vectors(in.in, vectors);
  cluster_sync();
  wait_previous();
  copy_wait<0>();
  block_sync();
  make_rows(in.in, base, count, piece == 0, rows, FeedForwardShared::sums(memory), vectors, rank);
  if (warp < warp_parts) {
    float c[2][4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint4 low, high;
      load_rows(rows, chunks, warp * 2 + s, count, lane, low, high);
#pragma unroll
      for (int t = 0; t < 2; ++t) multiply_chunk(c[t], low, high, weights1[t][s]);
    }
#pragma unroll
    for (int t = 0; t < 2; ++t)
      store_tile(products + warp * tile_rows * FeedForwardShared::columns, FeedForwardShared::columns, 8 * t, c[t],
                 count, lane);
  }
  block_sync();
  if (pair_row < count) {
    const float2 sum = sum_parts(products, FeedForwardShared::columns, pair_row, pair_column, warp_parts);
    std::uint32_t packed = 0;
    if (unit < in.hidden) packed = pack(gelu(rounded(add(sum.x, pair_bias.x))), gelu(rounded(add(sum.y, pair_bias.y))));
    std::uint32_t* target =
        reinterpret_cast<std::uint32_t*>(FeedForwardShared::hidden(memory) +
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
      load_rows(FeedForwardShared::hidden(memory), hidden_part / 8, s, count, lane, low, high);
      multiply_chunk(c, low, high, weights2[s]);
    }
    store_tile(in.partial + (static_cast<std::int64_t>(piece) * in.in.rows + base) * width, width, out_column, c, count,
               lane);
  }
}

struct HeadShared {
  static constexpr int columns = 64;
  static SOME_DEVICE float* sums(char* memory) { return reinterpret_cast<float*>(memory); }
  static SOME_DEVICE float* products(char* memory) { return reinterpret_cast<float*>(memory + 4096); }
  static SOME_DEVICE uint4* rows(char* memory) { return reinterpret_cast<uint4*>(memory + 36864); }
  static SOME_DEVICE float* vectors(char* memory) { return reinterpret_cast<float*>(memory + 53248); }
  static constexpr int bytes = 59392;
};

// Grid x: blocks of 64 columns, a multiple of 8; y: groups of 16 rows.
SOME_KERNEL(threads, 2) head_few_kernel(const HeadStep in) {
  char* memory = shared_memory();
  float* products = HeadShared::products(memory);
  uint4* rows = HeadShared::rows(memory);
  const int rank = block_index() % cluster_size, base = block_index_y() * in.in.cluster_rows;
  const int warp = thread_index() / 32, lane = thread_index() % 32, g = lane / 4, q = lane % 4;
  const int width = in.in.width, warp_parts = width / part, chunks = width / 8, first = block_index() * 64;
  const int left = in.in.rows - base, count = left < in.in.cluster_rows ? left : in.in.cluster_rows;
  uint4 weights[8][2] = {};
  if (warp < warp_parts) {
#pragma unroll
    for (int t = 0; t < 8; ++t) {
#pragma unroll
      for (int s = 0; s < 2; ++s)
        if (first + 8 * t + g < in.vocab)
          weights[t][s] = load_weights(in.weight + static_cast<std::int64_t>(first + 8 * t + g) * width + warp * part +
                                       32 * s + 8 * q);
    }
  }
  float* vectors = HeadShared::vectors(memory);
  copy_vectors(in.in, vectors);
  cluster_sync();
  wait_previous();
  copy_wait<0>();
  block_sync();
  make_rows(in.in, base, count, block_index() / cluster_size == 0, rows, HeadShared::sums(memory), vectors, rank);
  if (warp < warp_parts) {
    float c[8][4] = {};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint4 low, high;
      load_rows(rows, chunks, warp * 2 + s, count, lane, low, high);
#pragma unroll
      for (int t = 0; t < 8; ++t) multiply_chunk(c[t], low, high, weights[t][s]);
    }
#pragma unroll
    for (int t = 0; t < 8; ++t)
      store_tile(products + warp * tile_rows * HeadShared::columns, HeadShared::columns, 8 * t, c[t], count, lane);
  }
  block_sync();
  for (int item = thread_index(); item < count * 32; item += threads) {
    const int row = item / 32, column = item % 32 * 2;
    if (first + column >= in.vocab) continue;
    const float2 sum = sum_parts(products, HeadShared::columns, row, column, warp_parts);
    const float2 bias = *reinterpret_cast<const float2*>(in.bias + first + column);
    *reinterpret_cast<float2*>(in.logits + static_cast<std::int64_t>(base + row) * in.vocab + first + column) =
        float2{add(sum.x, bias.x), add(sum.y, bias.y)};
  }
}

}  // namespace some::decoding
