// Kernels for many rows: matrix products in tiles of 32, 64 or 128 rows, norms by one warp per row, and attention by
// one warp per row and head. Their results are bit-identical to those of few_rows.cuh.
//
// Bytes per layer: keys and values once; weights once per tile of rows, from L2.
#pragma once

#include <type_traits>

#include "inference/cuda/rows.cuh"

namespace some::decoding {

constexpr int product_threads = 256;

template <int kRows>
struct ProductShared {
  // Slabs of `part` columns of both factors: as many as fit with two blocks per multiprocessor.
  static constexpr int stages = kRows == 32 ? 8 : kRows == 64 ? 6 : 4;
  static constexpr int a_chunks = kRows * 8, b_chunks = 64 * 8;
  static constexpr int bytes = stages * (a_chunks + b_chunks) * 16;
};

// Grid: columns / 64 x rows / kRows; for experts, columns / 64 x tiles of all experts.
template <int kRows, typename Step>
SOME_KERNEL(product_threads, 2)
product_kernel(const Step step) {
  using Shared = ProductShared<kRows>;
  constexpr bool of_experts = std::is_same_v<Step, ExpertProduct>, is_pair = std::is_same_v<Step, ProductPair>;
  constexpr int stages = Shared::stages, row_warps = kRows == 32 ? 2 : 4, column_warps = 8 / row_warps;
  constexpr int row_tiles = kRows / (16 * row_warps), tiles = 8 / column_warps;  // per warp
  constexpr int load_rows = product_threads / 8, loaded = kRows / load_rows;     // rows per thread
  Product in{};
  int base = block_index_y() * kRows, first_column = block_index() * 64;
  const std::int32_t* list = nullptr;
  if constexpr (of_experts) {
    wait_previous();
    in = step.product;
    int expert = 0, tile = block_index_y();
    for (; expert < step.experts; ++expert) {
      const int own = (step.counts[expert] + kRows - 1) / kRows;
      if (tile < own) break;
      tile -= own;
    }
    if (expert == step.experts) return;
    base = tile * kRows;
    list = step.lists + static_cast<std::int64_t>(expert) * step.list_stride;
    in.rows = step.counts[expert];
    in.weight += static_cast<std::int64_t>(expert) * in.columns * in.k;
  } else if constexpr (is_pair) {
    const int of_first = (step.first.columns + 63) / 64;
    in = block_index() < of_first ? step.first : step.second;
    if (block_index() >= of_first) first_column -= of_first * 64;
  } else {
    in = step;
  }
  uint4* a = reinterpret_cast<uint4*>(shared_memory());
  uint4* b = a + stages * Shared::a_chunks;
  const int slabs = (in.k + part - 1) / part, thread = thread_index(), own_chunk = thread % 8, own_row = thread / 8;
  const bf16* from[loaded];  // the rows that this thread loads; null: zeros
#pragma unroll
  for (int r = 0; r < loaded; ++r) {
    const int row = base + own_row + r * load_rows;
    from[r] = row < in.rows ? in.a + static_cast<std::int64_t>(row) * in.k : nullptr;
    if constexpr (of_experts) {
      if (row >= in.rows) continue;
      const int token = list[row] / step.choices;
      from[r] = in.a + static_cast<std::int64_t>(token) * in.k;
      if (step.shift == 0) continue;
      const int expert = static_cast<int>((list - step.lists) / step.list_stride);
      const int slot = in.slots[token], position = in.positions[token] - 1 - expert % step.shift;
      from[r] = slot >= 0 && position >= 0 ? step.states + (slot * in.capacity + position) * in.k : nullptr;
    }
  }
  const auto load_a = [&](int slab, int stage) {
    const int column = slab * part + own_chunk * 8;
#pragma unroll
    for (int r = 0; r < loaded; ++r) {
      const bool valid = from[r] != nullptr && column < in.k;
      copy_async(a + stage * Shared::a_chunks + chunk_place(own_row + r * load_rows, own_chunk, 8),
                 valid ? from[r] + column : in.weight, valid);
    }
  };
  const auto load_b = [&](int slab, int stage) {
    const int column = slab * part + own_chunk * 8;
#pragma unroll
    for (int r = 0; r < 64; r += load_rows) {
      const int row = own_row + r;
      const bool valid = first_column + row < in.columns && column < in.k;
      copy_async(b + stage * Shared::b_chunks + chunk_place(row, own_chunk, 8),
                 valid ? in.weight + static_cast<std::int64_t>(first_column + row) * in.k + column : in.weight, valid);
    }
  };
  // The weights of the first slabs do not depend on the previous kernel.
#pragma unroll
  for (int slab = 0; slab < stages - 1; ++slab)
    if (slab < slabs) load_b(slab, slab);
  if constexpr (!of_experts) wait_previous();
#pragma unroll
  for (int slab = 0; slab < stages - 1; ++slab) {
    if (slab < slabs) load_a(slab, slab);
    copy_commit();
  }
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
  const int row_tile = warp % row_warps * 16 * row_tiles, column_tile = warp / row_warps * tiles * 8;
  // Meanwhile loads operands of the epilogue.
  float2 bias[tiles];
  [[maybe_unused]] std::uint32_t residual[2 * row_tiles][tiles];
  std::int64_t cache_row[2 * row_tiles];
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    const int column = first_column + column_tile + t * 8 + 2 * q;
    bias[t] = float2{0, 0};
    if (in.bias != nullptr && column < in.columns) bias[t] = *reinterpret_cast<const float2*>(in.bias + column);
  }
#pragma unroll
  for (int half = 0; half < 2 * row_tiles; ++half) {
    const int row = base + row_tile + g + 8 * half;
    cache_row[half] = -1;
    if (in.result == ProductResult::qkv && row < in.rows && in.slots[row] >= 0)
      cache_row[half] = in.slots[row] * in.capacity + in.positions[row];
    if constexpr (kRows <= 64) {  // larger tiles leave no registers for this
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const int column = first_column + column_tile + t * 8 + 2 * q;
        residual[half][t] = 0;
        if (in.result == ProductResult::residual && row < in.rows && column < in.columns)
          residual[half][t] = *reinterpret_cast<const std::uint32_t*>(
              in.residual + static_cast<std::int64_t>(row) * in.columns + column);
      }
    }
  }
  float total[row_tiles][tiles][4] = {}, c[row_tiles][tiles][4] = {};
  int stage = 0, next = stages - 1, parts = 0;
  for (int slab = 0; slab < slabs; ++slab) {
    copy_wait<stages - 2>();
    block_sync();
    if (slab + stages - 1 < slabs) {
      load_a(slab + stages - 1, next);
      load_b(slab + stages - 1, next);
    }
    copy_commit();
    const uint4* slab_a = a + stage * Shared::a_chunks;
    const uint4* slab_b = b + stage * Shared::b_chunks;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint4 low[row_tiles], high[row_tiles];
#pragma unroll
      for (int r = 0; r < row_tiles; ++r) {
        low[r] = slab_a[chunk_place(row_tile + 16 * r + g, 4 * s + q, 8)];
        high[r] = slab_a[chunk_place(row_tile + 16 * r + g + 8, 4 * s + q, 8)];
      }
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const uint4 weights = slab_b[chunk_place(column_tile + t * 8 + g, 4 * s + q, 8)];
#pragma unroll
        for (int r = 0; r < row_tiles; ++r) multiply_chunk(c[r][t], low[r], high[r], weights);
      }
    }
    if (++parts == in.sum_parts || slab + 1 == slabs) {
      parts = 0;
#pragma unroll
      for (int r = 0; r < row_tiles; ++r) {
#pragma unroll
        for (int t = 0; t < tiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            total[r][t][i] = add(total[r][t][i], c[r][t][i]);
            c[r][t][i] = 0.0f;
          }
        }
      }
    }
    stage = stage + 1 == stages ? 0 : stage + 1;
    next = next + 1 == stages ? 0 : next + 1;
  }

#pragma unroll
  for (int half = 0; half < 2 * row_tiles; ++half) {
    const int row = base + row_tile + g + 8 * half;
    if (row >= in.rows) continue;
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int column = first_column + column_tile + t * 8 + 2 * q;
      if (column >= in.columns) continue;
      float2 v{total[half / 2][t][half % 2 * 2], total[half / 2][t][half % 2 * 2 + 1]};
      v = float2{add(v.x, bias[t].x), add(v.y, bias[t].y)};
      std::int64_t at = static_cast<std::int64_t>(row) * in.columns + column;
      if constexpr (of_experts) at = static_cast<std::int64_t>(list[row]) * in.columns + column;
      switch (in.result) {
        case ProductResult::qkv: {
          const std::uint32_t packed = pack(v.x, v.y);
          if (column < in.k) {
            *reinterpret_cast<std::uint32_t*>(in.y + static_cast<std::int64_t>(row) * in.k + column) = packed;
          } else if (cache_row[half] >= 0) {
            *reinterpret_cast<std::uint32_t*>(in.cache + cache_row[half] * 2 * in.k + column - in.k) = packed;
          }
          break;
        }
        case ProductResult::gelu:
          *reinterpret_cast<std::uint32_t*>(in.y + at) = pack(gelu(rounded(v.x)), gelu(rounded(v.y)));
          break;
        case ProductResult::residual: {
          std::uint32_t r = 0;
          if constexpr (kRows <= 64)
            r = residual[half][t];
          else
            r = *reinterpret_cast<const std::uint32_t*>(in.residual + at);
          *reinterpret_cast<std::uint32_t*>(in.y + at) = pack(add(low_half(r), v.x), add(high_half(r), v.y));
          break;
        }
        case ProductResult::plain: *reinterpret_cast<std::uint32_t*>(in.y + at) = pack(v.x, v.y); break;
        case ProductResult::logits: *reinterpret_cast<float2*>(in.logits + at) = v; break;
      }
    }
  }
}

// One warp per row and head. Keys and values pass through shared memory with double buffering: the next block of
// positions is copied while the current one is used.
constexpr int attention_threads = 128;
constexpr int attention_bytes = attention_threads / 32 * 2 * position_block * 2 * head_size * 2;

SOME_KERNEL(attention_threads, 3) row_attention_kernel(const RowAttention in) {
  const int warp = thread_index() / 32, lane = thread_index() % 32, c = lane % 8;
  const int item = block_index() * (attention_threads / 32) + warp;
  constexpr int position_chunks = 2 * head_size / 8, block_chunks = position_block * position_chunks;
  uint4* buffers = reinterpret_cast<uint4*>(shared_memory()) + warp * 2 * block_chunks + c;
  wait_previous();
  if (item >= in.rows * in.heads) return;
  const int row = item / in.heads, head = item % in.heads, width = in.heads * head_size;
  uint4* target = reinterpret_cast<uint4*>(in.mixed + static_cast<std::int64_t>(row) * width + head * head_size) + c;
  const int slot = in.slots[row];
  if (slot < 0) {
    if (lane < 8) *target = uint4{0, 0, 0, 0};
    return;
  }
  const int position = in.positions[row];
  const std::int64_t stride = width / 4, values = width / 8;
  const uint4* keys = reinterpret_cast<const uint4*>(in.cache + slot * in.capacity * 2 * width + head * head_size) + c;
  const auto fetch = [&](int first, uint4* buffer) {
#pragma unroll
    for (int i = 0; i < position_block / 4; ++i) {
      const int at = first + 4 * i + lane / 8;
      if (at > position) break;
      copy_async(buffer + (at - first) * position_chunks, keys + at * stride, true);
      copy_async(buffer + (at - first) * position_chunks + 8, keys + at * stride + values, true);
    }
    copy_commit();
  };
  fetch(0, buffers);
  const uint4 packed =
      load_written(reinterpret_cast<const uint4*>(in.queries + row * in.query_stride + head * head_size) + c);
  constexpr float scale = 1.4426950408889634f / 8;
  const float query[8] = {times(scale, low_half(packed.x)), times(scale, high_half(packed.x)),
                          times(scale, low_half(packed.y)), times(scale, high_half(packed.y)),
                          times(scale, low_half(packed.z)), times(scale, high_half(packed.z)),
                          times(scale, low_half(packed.w)), times(scale, high_half(packed.w))};
  Attended all{};
  for (int first = 0, turn = 0; first <= position; first += position_block, turn ^= 1) {
    fetch(first + position_block, buffers + (turn ^ 1) * block_chunks);
    copy_wait<1>();
    // Each lane reads only what it copied itself.
    const uint4* from = buffers + turn * block_chunks - first * position_chunks;
    const uint4* last = from + position * position_chunks;
    const Attended block = attend_block(query, from, 8, position_chunks, true, first, position, last, last + 8, lane);
    if (first == 0) {
      all = block;
      continue;
    }
    const Merge by = merge(all.largest, block.largest);
    all.largest = by.largest;
    all.sum = merged(by, all.sum, block.sum);
#pragma unroll
    for (int i = 0; i < 8; ++i) all.values[i] = merged(by, all.values[i], block.values[i]);
  }
  if (lane < 8)
    *target = uint4{
        pack(all.values[0] / all.sum, all.values[1] / all.sum), pack(all.values[2] / all.sum, all.values[3] / all.sum),
        pack(all.values[4] / all.sum, all.values[5] / all.sum), pack(all.values[6] / all.sum, all.values[7] / all.sum)};
}

SOME_KERNEL(threads, 2) row_keys_kernel(const RowKeys in) {
  wait_previous();
  const int chunks = 2 * in.width / 8, item = block_index() * threads + thread_index(), row = item / chunks,
            chunk = item % chunks;
  if (row >= in.rows || in.slots[row] < 0) return;
  const uint4* from = reinterpret_cast<const uint4*>(in.qkv + static_cast<std::int64_t>(row) * 3 * in.width + in.width);
  uint4* to = reinterpret_cast<uint4*>(in.cache + (in.slots[row] * in.capacity + in.positions[row]) * 2 * in.width);
  to[chunk] = load_written(from + chunk);
}

SOME_KERNEL(threads, 2) row_embedding_kernel(const RowEmbedding in) {
  wait_previous();
  const int item = block_index() * threads + thread_index(), row = item / (in.width / 4),
            column = item % (in.width / 4) * 4;
  if (item < in.clears) in.cleared[item] = 0;
  if (row >= in.rows) return;
  const float4 e =
      *reinterpret_cast<const float4*>(in.table + static_cast<std::int64_t>(in.tokens[row]) * in.width + column);
  float4 at{0, 0, 0, 0};
  if (in.places != nullptr)
    at = *reinterpret_cast<const float4*>(in.places + static_cast<std::int64_t>(in.positions[row]) * in.width + column);
  *reinterpret_cast<uint2*>(in.x + static_cast<std::int64_t>(row) * in.width + column) =
      uint2{pack(times_add(in.scale, e.x, at.x), times_add(in.scale, e.y, at.y)),
            pack(times_add(in.scale, e.z, at.z), times_add(in.scale, e.w, at.w))};
}

// One warp per row.
SOME_KERNEL(threads, 2) row_norm_kernel(const RowNorm in) {
  wait_previous();
  const int row = block_index() * warps + thread_index() / 32, lane = thread_index() % 32, parts = in.width / 128;
  if (row >= in.rows) return;
  const std::int64_t from = in.row_of != nullptr ? in.row_of[row] : row;
  constexpr int most = largest_width / 128;
  float values[most][4];
#pragma unroll
  for (int p = 0; p < most; ++p) {
    if (p >= parts) break;
    const uint2 packed = load_written(reinterpret_cast<const uint2*>(in.sums + from * in.width + (p * 32 + lane) * 4));
    values[p][0] = low_half(packed.x);
    values[p][1] = high_half(packed.x);
    values[p][2] = low_half(packed.y);
    values[p][3] = high_half(packed.y);
  }
  norm_row(values, parts, in.width, in.weight, in.bias, lane);
#pragma unroll
  for (int p = 0; p < most; ++p) {
    if (p >= parts) break;
    const int column = (p * 32 + lane) * 4;
    const uint2 packed{pack(values[p][0], values[p][1]), pack(values[p][2], values[p][3])};
    *reinterpret_cast<uint2*>(in.x + static_cast<std::int64_t>(row) * in.width + column) = packed;
    if (in.states != nullptr && in.slots[row] >= 0)
      *reinterpret_cast<uint2*>(in.states + (in.slots[row] * in.capacity + in.positions[row]) * in.width + column) =
          packed;
  }
}

// Also reads the states of earlier rows of the same step, which an earlier kernel has stored.
SOME_KERNEL(threads, 2) row_convolution_kernel(const RowConvolution in) {
  wait_previous();
  const int item = block_index() * threads + thread_index(), row = item / (in.width / 4),
            column = item % (in.width / 4) * 4;
  if (row >= in.rows) return;
  const int slot = in.slots[row], position = in.positions[row];
  const std::int64_t place = (slot < 0 ? 0 : slot) * in.capacity + position;
  const uint2 packed =
      load_written(reinterpret_cast<const uint2*>(in.x + static_cast<std::int64_t>(row) * in.width + column));
  float look[4] = {low_half(packed.x), high_half(packed.x), low_half(packed.y), high_half(packed.y)};
  for (int j = 1; j <= in.taps && j <= position; ++j)
    convolve(look, in.states, in.taps_weight, place, j, column, in.width);
  *reinterpret_cast<uint2*>(in.y + static_cast<std::int64_t>(row) * in.width + column) =
      uint2{pack(look[0], look[1]), pack(look[2], look[3])};
}

// One warp per row.
SOME_KERNEL(threads, 2) row_routes_kernel(const RowRoutes in) {
  wait_previous();
  float* scores = reinterpret_cast<float*>(shared_memory());
  const int warp = thread_index() / 32, row = block_index() * warps + warp, lane = thread_index() % 32;
  if (row >= in.rows) return;
  const int choices = in.routes.choices;
  std::int32_t* chosen = in.indices + row * choices;
  route_row(in.routes, in.raw + static_cast<std::int64_t>(row) * query_size, in.routes.keys, query_size,
            scores + warp * max_experts, chosen, in.gates + row * choices, lane);
  if (lane >= choices) return;
  const int expert = chosen[lane];
  report_route(in.report, row, lane, expert, in.gates[row * choices + lane]);
  if (in.counts == nullptr) return;
  in.lists[static_cast<std::int64_t>(expert) * in.list_stride + count_atomic(in.counts + expert)] =
      row * choices + lane;
}

SOME_KERNEL(threads, 2) row_modulation_kernel(const RowModulation in) {
  wait_previous();
  const int pairs = in.columns / 2, item = block_index() * threads + thread_index(), row = item / pairs,
            column = item % pairs * 2;
  if (row >= in.rows) return;
  const std::int64_t at = static_cast<std::int64_t>(row) * in.columns + column;
  const std::uint32_t hidden = *reinterpret_cast<const std::uint32_t*>(in.hidden + at);
  float2 v{0, 0};
#pragma unroll
  for (int i = 0; i < max_choices; ++i) {
    if (i >= in.choices) break;
    const std::int64_t choice = static_cast<std::int64_t>(row) * in.choices + i;
    const std::uint32_t one = *reinterpret_cast<const std::uint32_t*>(in.activations + choice * in.columns + column);
    const float2 gain =
        *reinterpret_cast<const float2*>(in.modulations.gains + in.indices[choice] * in.columns + column);
    const float weight = times(in.modulations.scale, in.gates[choice]);
    v = float2{times_add(times(weight, gain.x), low_half(one), v.x),
               times_add(times(weight, gain.y), high_half(one), v.y)};
  }
  *reinterpret_cast<std::uint32_t*>(in.y + at) =
      pack(modulated(in.modulations, low_half(hidden), v.x), modulated(in.modulations, high_half(hidden), v.y));
}

}  // namespace some::decoding
