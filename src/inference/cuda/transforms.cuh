// Experts that are Hadamard transforms (some.init = "hadamard") in a modulated block: a warp applies the transform of
// 512 numbers to a state instead of multiplying by a stored matrix. Activations are rounded to bf16, as those of stored
// matrices are, so that the kernels for few and for many rows compute the same bits.
#pragma once

#include "inference/cuda/rows.cuh"
#include "kernels/cuda/hadamard_512.cuh"

namespace some::decoding {

constexpr int transform_words = cuda::transform_size / 32;  // 32-bit words of one block of signs

// Calls write(column, four activations) for the lane's columns of one transform. load(column): four bf16 numbers of the
// state; signs: of the block, as cached by HadamardSigns.
template <typename Load, typename Write>
SOME_DEVICE void transform_state(const std::uint32_t* signs, int lane, Load&& load, Write&& write) {
  using namespace some::cuda;  // NOLINT(google-build-using-namespace)
  const Transform512 transform(lane);
  const int in = LayoutA::base(lane), out = LayoutB::base(lane);
  Packed512 state;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint2 piece = load(cuda::position<LayoutA>(in, i, j));
      state.words[i][j][0] = piece.x;
      state.words[i][j][1] = piece.y;
    }
  }
  const Float512 result = transform(Signs512::load<LayoutA>(signs, in).applied(state));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) write(cuda::position<LayoutB>(out, i, j), result.values[i][j]);
  }
}

constexpr int transform_threads = 128;

// Computes the modulated hidden units of one row and block of 512 units per warp: grid (rows / warps, blocks).
SOME_KERNEL(transform_threads, 4) row_transforms_kernel(const RowTransforms all) {
  const RowModulation& in = all.modulation;
  const Modulations& by = in.modulations;
  wait_previous();
  const int row = block_index() * (transform_threads / 32) + thread_index() / 32, lane = thread_index() % 32;
  if (row >= in.rows) return;
  const int block = block_index_y(), first = block * some::cuda::transform_size;
  const int slot = by.shift > 0 ? all.slots[row] : 0, position = by.shift > 0 ? all.positions[row] : 0;
  float sums[16] = {};
#pragma unroll
  for (int i = 0; i < max_choices; ++i) {
    if (i >= in.choices) break;
    const std::int64_t choice = static_cast<std::int64_t>(row) * in.choices + i;
    const int expert = in.indices[choice];
    const bf16* from = all.x + static_cast<std::int64_t>(row) * all.width;
    if (by.shift > 0) {
      const int before = position - 1 - expert % by.shift;
      from = slot >= 0 && before >= 0 ? all.states + (slot * all.capacity + before) * all.width : nullptr;
    }
    const float weight = times(by.scale, in.gates[choice]);
    const float* gains = by.gains + static_cast<std::int64_t>(expert) * in.columns + first;
    int piece = 0;
    transform_state(
        by.signs + (static_cast<std::int64_t>(expert) * by.blocks + block) * transform_words, lane,
        [&](int column) {
          return from != nullptr && column < all.width ? load_written(reinterpret_cast<const uint2*>(from + column))
                                                       : uint2{0, 0};
        },
        [&](int column, const float(&values)[4]) {
          if (first + column < in.columns) {
            const float4 gain = *reinterpret_cast<const float4*>(gains + column);
            const float factors[4] = {gain.x, gain.y, gain.z, gain.w};
#pragma unroll
            for (int r = 0; r < 4; ++r)
              sums[piece + r] = times_add(times(weight, factors[r]), rounded(values[r]), sums[piece + r]);
          }
          piece += 4;
        });
  }
  const int out = some::cuda::LayoutB::base(lane);
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const int column = first + some::cuda::position<some::cuda::LayoutB>(out, piece / 2, piece % 2);
    if (column >= in.columns) continue;
    const std::int64_t at = static_cast<std::int64_t>(row) * in.columns + column;
    const uint2 hidden = load_written(reinterpret_cast<const uint2*>(in.hidden + at));
    const float* v = sums + 4 * piece;
    *reinterpret_cast<uint2*>(in.y + at) =
        uint2{pack(modulated(by, low_half(hidden.x), v[0]), modulated(by, high_half(hidden.x), v[1])),
              pack(modulated(by, low_half(hidden.y), v[2]), modulated(by, high_half(hidden.y), v[3]))};
  }
}

}  // namespace some::decoding
