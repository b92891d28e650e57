// Flash attention over unpadded sequences in tiles (bf16, accumulated in fp32) with mma.sync. Only one tile of the S x
// S attention weights exists at a time, in registers.
//
// FLOPs per head and sequence: forward 4*S^2*h, backward 14*S^2*h (half of each when causal). The backward pass is
// expensive because dq, and dk with dv, are computed by two kernels that each recompute the weights. In return, one
// warp sums each result in a fixed order, without atomics. Each warp owns 16*kBlocks rows (queries, or keys for dk and
// dv); two blocks of 16 rows share each operand loaded from shared memory.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/primitives.cuh"

namespace some::cuda {

struct AttentionArguments {
  const void* qkv;
  const std::int32_t* offsets;
  const void* out;
  const void* dout;
  void* result;  // out, or dqkv
  float* lse;    // [heads, T]
  float* delta;  // [heads, T]: dot product of dout and out, per row and head
  int tokens, heads, head_size, causal;
  float scale;
};

inline constexpr int attention_threads = 128;
inline constexpr float log2_e = 1.4426950408889634f;

// Returns the byte offset of an element in shared memory. Rows are padded by 16 bytes, so that for every head size the
// eight rows of a matrix load (ldmatrix) are in different banks.
template <int kHead>
__device__ __forceinline__ std::uint32_t attention_offset(int row, int column) {
  return row * (kHead * 2 + 16) + column * 2;
}

template <int kHead, int kRows>
inline constexpr int attention_tile_bytes = kRows*(kHead * 2 + 16);

// Copies kRows rows of one head at a time. A thread always copies the same 16 bytes of every `each`-th row, so that
// addresses advance by constants. For head sizes between powers of two, some threads copy nothing.
template <int kHead, int kRows>
struct HeadRows {
  static constexpr int columns = kHead <= 16 ? 2 : kHead <= 32 ? 4 : kHead <= 64 ? 8 : 16;
  static constexpr int each = attention_threads / columns;
  const bf16* source;
  std::int64_t stride;
  int row, offset;  // the thread's first row (1 << 30 if its column is beyond the head) and first element
  std::uint32_t place;
  bool active;

  __device__ __forceinline__ HeadRows(const bf16* head, std::int64_t row_stride, int head_size)
      : source(head), stride(row_stride) {
    const int first = threadIdx.x / columns, column = threadIdx.x % columns * 8;
    row = column < head_size ? first : 1 << 30;
    offset = first * static_cast<int>(row_stride) + column;
    place = attention_offset<kHead>(first, column);
    active = column < kHead;
  }
  // Loads the rows starting at `first`. Rows at or after `end`, and columns beyond the head's size, are filled with
  // zeros.
  __device__ __forceinline__ void load(std::uint32_t target, int first, int end) const {
    if (!active) return;
    const bf16* from = source + first * stride + offset;
    const int left = end - first - row;
#pragma unroll
    for (int i = 0; i < kRows / each; ++i) {
      const bool valid = i * each < left;
      cp_async(target + place + attention_offset<kHead>(i * each, 0), valid ? from : source, valid);
      from += each * stride;
    }
  }
};

// Returns the address from which a lane loads its row of the matrices that form an operand of depth 16. `a` has 16
// rows. `b` has 16 columns, which are either rows in memory (b_rows) or stored as columns with the summed axis
// outermost (b_depth).
template <int kHead>
__device__ __forceinline__ std::uint32_t a_address(std::uint32_t base, int row, int column, int lane) {
  return base + attention_offset<kHead>(row + (lane & 15), column + (lane >> 4) * 8);
}
template <int kHead>
__device__ __forceinline__ std::uint32_t b_rows_address(std::uint32_t base, int row, int column, int lane) {
  return base + attention_offset<kHead>(row + (lane & 7) + (lane >> 4) * 8, column + ((lane >> 3) & 1) * 8);
}
template <int kHead>
__device__ __forceinline__ std::uint32_t b_depth_address(std::uint32_t base, int row, int column, int lane) {
  return base + attention_offset<kHead>(row + (lane & 15), column + (lane >> 4) * 8);
}

// Computes products += left * right^T, for kBlocks*16 rows of `left` and kTiles*8 rows of `right`.
template <int kHead, int kBlocks, int kTiles>
__device__ __forceinline__ void multiply_rows(float (&products)[kBlocks][kTiles][4], std::uint32_t left, int left_row,
                                              std::uint32_t right, int right_row, int lane) {
#pragma unroll
  for (int column = 0; column < kHead; column += 16) {
    std::uint32_t a[kBlocks][4];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) ldmatrix_x4(a[i], a_address<kHead>(left, left_row + 16 * i, column, lane));
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b, b_rows_address<kHead>(right, right_row + 8 * n, column, lane));
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        multiply_add(products[i][n], a[i], b[0], b[1]);
        multiply_add(products[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// Computes sums += weights * rows. The weights are in the accumulator layout and are rounded to bf16 here; the rows
// start at `row`.
template <int kHead, int kBlocks, int kTiles>
__device__ __forceinline__ void multiply_weights(float (&sums)[kBlocks][kHead / 8][4],
                                                 const float (&weights)[kBlocks][kTiles][4], std::uint32_t rows,
                                                 int row, int lane) {
#pragma unroll
  for (int n = 0; n < kTiles; n += 2) {
    std::uint32_t a[kBlocks][4];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      a[i][0] = pack(weights[i][n][0], weights[i][n][1]);
      a[i][1] = pack(weights[i][n][2], weights[i][n][3]);
      a[i][2] = pack(weights[i][n + 1][0], weights[i][n + 1][1]);
      a[i][3] = pack(weights[i][n + 1][2], weights[i][n + 1][3]);
    }
#pragma unroll
    for (int column = 0; column < kHead; column += 16) {
      std::uint32_t b[4];
      ldmatrix_x4_transposed(b, b_depth_address<kHead>(rows, row + 8 * n, column, lane));
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        multiply_add(sums[i][column / 8], a[i], b[0], b[1]);
        multiply_add(sums[i][column / 8 + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// Stores rows of one head, each multiplied by its factor, to global memory.
template <int kHead, int kBlocks>
__device__ __forceinline__ void store_head_rows(const float (&sums)[kBlocks][kHead / 8][4],
                                                const float (&factors)[kBlocks][2], bf16* target, std::int64_t stride,
                                                int first, int end, int head_size, int lane) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + 16 * i + 8 * half + (lane >> 2);
      if (row >= end) continue;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        const int column = n * 8 + 2 * (lane & 3);
        if (column < head_size) {
          *reinterpret_cast<std::uint32_t*>(target + row * stride + column) =
              pack(sums[i][n][2 * half] * factors[i][half], sums[i][n][2 * half + 1] * factors[i][half]);
        }
      }
    }
  }
}

inline constexpr int key_rows = 64;       // keys or queries loaded per step
inline constexpr int backward_part = 32;  // number of these rows whose weights the backward kernels keep in registers

template <int kHead, int kBlocks>
struct AttentionShared {
  static constexpr int own = 64 * kBlocks;  // rows whose results one block computes
  static constexpr int forward = attention_tile_bytes<kHead, own> + 4 * attention_tile_bytes<kHead, key_rows>;
  static constexpr int backward =
      2 * attention_tile_bytes<kHead, own> + 4 * attention_tile_bytes<kHead, key_rows> + 4 * key_rows * 4;
};

// Computes out = softmax(scale * q k^T) v and lse for 64*kBlocks queries of one head of one sequence.
template <int kHead, int kBlocks>
__global__ void __launch_bounds__(attention_threads) attention_forward_kernel(const AttentionArguments arguments) {
  wait_previous_kernel();
  constexpr int own = AttentionShared<kHead, kBlocks>::own;
  const int head = blockIdx.x, sequence = blockIdx.y, tile = gridDim.z - 1 - blockIdx.z;  // the longest rows first
  const int begin = arguments.offsets[sequence], length = arguments.offsets[sequence + 1] - begin;
  const int first = tile * own;
  if (first >= length) return;
  const int width = arguments.heads * arguments.head_size;
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  const bf16* const queries = static_cast<const bf16*>(arguments.qkv) + begin * stride + head * arguments.head_size;
  const bf16* const keys = queries + width;
  const bf16* const values = keys + width;

  extern __shared__ __align__(128) unsigned char memory[];
  const std::uint32_t q_base = shared_address(memory);
  const std::uint32_t k_base = q_base + attention_tile_bytes<kHead, own>;
  constexpr int step_bytes = attention_tile_bytes<kHead, key_rows>;
  const std::uint32_t v_base = k_base + 2 * step_bytes;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warp_row = warp * 16 * kBlocks;
  const int last_key = arguments.causal ? min(length, first + own) : length;
  const int steps = (last_key + key_rows - 1) / key_rows;

  HeadRows<kHead, own>(queries, stride, arguments.head_size).load(q_base, first, length);
  HeadRows<kHead, key_rows> passing(keys, stride, arguments.head_size);
  const auto load_step = [&](int step) {
    passing.source = keys;
    passing.load(k_base + (step & 1) * step_bytes, step * key_rows, length);
    passing.source = values;
    passing.load(v_base + (step & 1) * step_bytes, step * key_rows, length);
    cp_async_commit();
  };
  load_step(0);

  const float factor = arguments.scale * log2_e;
  float sums[kBlocks][kHead / 8][4] = {};
  float largest[kBlocks][2], total[kBlocks][2] = {};
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) largest[i][0] = largest[i][1] = -INFINITY;
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load_step(step + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const int key = step * key_rows, query = first + warp_row;
    if (!(arguments.causal && key > query + 16 * kBlocks - 1)) {
      float scores[kBlocks][key_rows / 8][4] = {};
      multiply_rows<kHead, kBlocks, key_rows / 8>(scores, q_base, warp_row, k_base + (step & 1) * step_bytes, 0, lane);
      const bool masked = key + key_rows > length || (arguments.causal && key + key_rows - 1 > query);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (masked) {
            const int row = query + 16 * i + 8 * half + (lane >> 2);
            const int visible = arguments.causal ? min(length, row + 1) : length;
#pragma unroll
            for (int n = 0; n < key_rows / 8; ++n) {
#pragma unroll
              for (int c = 0; c < 2; ++c) {
                if (key + n * 8 + 2 * (lane & 3) + c >= visible) scores[i][n][2 * half + c] = -INFINITY;
              }
            }
          }
          float high = largest[i][half];
#pragma unroll
          for (int n = 0; n < key_rows / 8; ++n)
            high = fmaxf(high, fmaxf(scores[i][n][2 * half], scores[i][n][2 * half + 1]));
          high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
          high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
          const float shift = high == -INFINITY ? 0.f : high * factor;
          const float shrink = exp2_fast(largest[i][half] * factor - shift);
          largest[i][half] = high;
          float sum = 0.f;
#pragma unroll
          for (int n = 0; n < key_rows / 8; ++n) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              float& score = scores[i][n][2 * half + c];
              score = exp2_fast(fmaf(score, factor, -shift));
              sum += score;
            }
          }
          total[i][half] = fmaf(total[i][half], shrink, sum);
          if (__any_sync(0xffffffffu, shrink != 1.f)) {  // rarely needed: the largest score is usually found early
#pragma unroll
            for (int n = 0; n < kHead / 8; ++n) {
              sums[i][n][2 * half] *= shrink;
              sums[i][n][2 * half + 1] *= shrink;
            }
          }
        }
      }
      multiply_weights<kHead, kBlocks, key_rows / 8>(sums, scores, v_base + (step & 1) * step_bytes, 0, lane);
    }
    __syncthreads();
  }

  float factors[kBlocks][2];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[i][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      factors[i][half] = 1.f / sum;
      const int row = first + warp_row + 16 * i + 8 * half + (lane >> 2);
      if ((lane & 3) == 0 && row < length) {
        arguments.lse[static_cast<std::int64_t>(head) * arguments.tokens + begin + row] =
            largest[i][half] * arguments.scale + logf(sum);
      }
    }
  }
  bf16* const out =
      static_cast<bf16*>(arguments.result) + static_cast<std::int64_t>(begin) * width + head * arguments.head_size;
  store_head_rows<kHead, kBlocks>(sums, factors, out, width, first + warp_row, length, arguments.head_size, lane);
}

// Adds the dot product of two vectors of eight bf16 numbers to `sum`.
__device__ __forceinline__ void add_products(float& sum, const uint4& left, const uint4& right) {
  const auto add = [&](std::uint32_t a, std::uint32_t b) {
    sum = fmaf(low_half(a), low_half(b), fmaf(high_half(a), high_half(b), sum));
  };
  add(left.x, right.x);
  add(left.y, right.y);
  add(left.z, right.z);
  add(left.w, right.w);
}

// Returns the dot product of `columns` numbers (a multiple of 8) starting at `at`. The four lanes of a row compute it
// together, and all get the same result.
template <int kHead>
__device__ __forceinline__ float quad_dot(const bf16* left, const bf16* right, std::int64_t at, int columns, int lane) {
  float sum = 0.f;
#pragma unroll
  for (int first = 0; first < kHead; first += 32) {
    const int column = first + (lane & 3) * 8;
    if (column < columns) {
      float a[8], b[8];
      load_elements<8>(left + at + column, a);
      load_elements<8>(right + at + column, b);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(a[i], b[i], sum);
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// Computes dk and dv of 64*kBlocks keys while the queries stream past. The weights are kept transposed, with keys as
// rows, so that they can directly be the left operand of both sums.
template <int kHead, int kBlocks>
__global__ void __launch_bounds__(attention_threads)
    attention_keys_backward_kernel(const AttentionArguments arguments) {
  wait_previous_kernel();
  constexpr int own = AttentionShared<kHead, kBlocks>::own;
  const int head = blockIdx.x, sequence = blockIdx.y, tile = blockIdx.z;
  const int begin = arguments.offsets[sequence], length = arguments.offsets[sequence + 1] - begin;
  const int first = tile * own;
  if (first >= length) return;
  const int width = arguments.heads * arguments.head_size;
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  const bf16* const queries = static_cast<const bf16*>(arguments.qkv) + begin * stride + head * arguments.head_size;
  const bf16* const keys = queries + width;
  const bf16* const values = keys + width;
  const bf16* const upstream =
      static_cast<const bf16*>(arguments.dout) + static_cast<std::int64_t>(begin) * width + head * arguments.head_size;
  const float* const lse = arguments.lse + static_cast<std::int64_t>(head) * arguments.tokens + begin;
  const float* const delta = arguments.delta + static_cast<std::int64_t>(head) * arguments.tokens + begin;

  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int own_bytes = attention_tile_bytes<kHead, own>, step_bytes = attention_tile_bytes<kHead, key_rows>;
  const std::uint32_t k_base = shared_address(memory), v_base = k_base + own_bytes;
  const std::uint32_t q_base = v_base + own_bytes, d_base = q_base + 2 * step_bytes;
  float* const row_data =
      reinterpret_cast<float*>(memory + 2 * own_bytes + 4 * step_bytes);  // [2][lse, delta][key_rows]
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warp_row = warp * 16 * kBlocks;
  const int first_step = arguments.causal ? first / key_rows : 0;
  const int steps = (length + key_rows - 1) / key_rows;

  HeadRows<kHead, own>(keys, stride, arguments.head_size).load(k_base, first, length);
  HeadRows<kHead, own>(values, stride, arguments.head_size).load(v_base, first, length);
  const HeadRows<kHead, key_rows> passing(queries, stride, arguments.head_size);
  const HeadRows<kHead, key_rows> passing_upstream(upstream, width, arguments.head_size);
  const auto load_step = [&](int step) {
    passing.load(q_base + (step & 1) * step_bytes, step * key_rows, length);
    passing_upstream.load(d_base + (step & 1) * step_bytes, step * key_rows, length);
    cp_async_commit();
    const int index = threadIdx.x % key_rows, row = step * key_rows + index;
    float* const target = row_data + ((step & 1) * 2 + threadIdx.x / key_rows) * key_rows + index;
    // A nonexistent row has an infinite log-sum-exp, so that its weights are zero.
    if (threadIdx.x < key_rows) {
      *target = row < length ? lse[row] * log2_e : INFINITY;
    } else {
      *target = row < length ? delta[row] : 0.f;
    }
  };
  load_step(first_step);

  const float factor = arguments.scale * log2_e;
  float dk[kBlocks][kHead / 8][4] = {}, dv[kBlocks][kHead / 8][4] = {};
  for (int step = first_step; step < steps; ++step) {
    if (step + 1 < steps) {
      load_step(step + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const std::uint32_t q_step = q_base + (step & 1) * step_bytes, d_step = d_base + (step & 1) * step_bytes;
    const float* const lse_step = row_data + (step & 1) * 2 * key_rows;
    const float* const delta_step = lse_step + key_rows;
    const int key = first + warp_row;
#pragma unroll 1
    for (int part = 0; part < key_rows; part += backward_part) {
      const int query = step * key_rows + part;
      if (query >= length || (arguments.causal && query + backward_part - 1 < key)) continue;
      float weights[kBlocks][backward_part / 8][4] = {}, slopes[kBlocks][backward_part / 8][4] = {};
      multiply_rows<kHead, kBlocks, backward_part / 8>(weights, k_base, warp_row, q_step, part, lane);
      multiply_rows<kHead, kBlocks, backward_part / 8>(slopes, v_base, warp_row, d_step, part, lane);
      const bool masked = arguments.causal && query < key + 16 * kBlocks - 1;
#pragma unroll
      for (int n = 0; n < backward_part / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int column = part + n * 8 + 2 * (lane & 3) + c;
          const float row_lse = lse_step[column], row_delta = delta_step[column];
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float weight = exp2_fast(fmaf(weights[i][n][2 * half + c], factor, -row_lse));
              if (masked && step * key_rows + column < key + 16 * i + 8 * half + (lane >> 2)) weight = 0.f;
              weights[i][n][2 * half + c] = weight;
              slopes[i][n][2 * half + c] = weight * (slopes[i][n][2 * half + c] - row_delta);
            }
          }
        }
      }
      multiply_weights<kHead, kBlocks, backward_part / 8>(dv, weights, d_step, part, lane);
      multiply_weights<kHead, kBlocks, backward_part / 8>(dk, slopes, q_step, part, lane);
    }
    __syncthreads();
  }

  float ones[kBlocks][2], scales[kBlocks][2];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    ones[i][0] = ones[i][1] = 1.f;
    scales[i][0] = scales[i][1] = arguments.scale;
  }
  bf16* const result = static_cast<bf16*>(arguments.result) + begin * stride + head * arguments.head_size;
  store_head_rows<kHead, kBlocks>(dk, scales, result + width, stride, first + warp_row, length, arguments.head_size,
                                  lane);
  store_head_rows<kHead, kBlocks>(dv, ones, result + 2 * width, stride, first + warp_row, length, arguments.head_size,
                                  lane);
}

// Computes dq of 64*kBlocks queries, and the delta of these rows, while the keys stream past.
template <int kHead, int kBlocks>
__global__ void __launch_bounds__(attention_threads)
    attention_queries_backward_kernel(const AttentionArguments arguments) {
  wait_previous_kernel();
  constexpr int own = AttentionShared<kHead, kBlocks>::own;
  const int head = blockIdx.x, sequence = blockIdx.y, tile = gridDim.z - 1 - blockIdx.z;
  const int begin = arguments.offsets[sequence], length = arguments.offsets[sequence + 1] - begin;
  const int first = tile * own;
  if (first >= length) return;
  const int width = arguments.heads * arguments.head_size;
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  const bf16* const queries = static_cast<const bf16*>(arguments.qkv) + begin * stride + head * arguments.head_size;
  const bf16* const keys = queries + width;
  const bf16* const values = keys + width;
  const bf16* const upstream =
      static_cast<const bf16*>(arguments.dout) + static_cast<std::int64_t>(begin) * width + head * arguments.head_size;

  const bf16* const outputs =
      static_cast<const bf16*>(arguments.out) + static_cast<std::int64_t>(begin) * width + head * arguments.head_size;

  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int own_bytes = attention_tile_bytes<kHead, own>, step_bytes = attention_tile_bytes<kHead, key_rows>;
  const std::uint32_t q_base = shared_address(memory), d_base = q_base + own_bytes;
  const std::uint32_t k_base = d_base + own_bytes, v_base = k_base + 2 * step_bytes;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warp_row = warp * 16 * kBlocks;
  const int last_key = arguments.causal ? min(length, first + own) : length;
  const int steps = (last_key + key_rows - 1) / key_rows;

  HeadRows<kHead, own>(queries, stride, arguments.head_size).load(q_base, first, length);
  HeadRows<kHead, own>(upstream, width, arguments.head_size).load(d_base, first, length);
  HeadRows<kHead, key_rows> passing(keys, stride, arguments.head_size);
  const auto load_step = [&](int step) {
    passing.source = keys;
    passing.load(k_base + (step & 1) * step_bytes, step * key_rows, length);
    passing.source = values;
    passing.load(v_base + (step & 1) * step_bytes, step * key_rows, length);
    cp_async_commit();
  };
  load_step(0);

  float row_lse[kBlocks][2], row_delta[kBlocks][2];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + warp_row + 16 * i + 8 * half + (lane >> 2);
      const std::int64_t at = static_cast<std::int64_t>(head) * arguments.tokens + begin + row;
      row_lse[i][half] = row < length ? arguments.lse[at] * log2_e : INFINITY;
      row_delta[i][half] = quad_dot<kHead>(upstream, outputs, static_cast<std::int64_t>(row) * width,
                                           row < length ? arguments.head_size : 0, lane);
      if (row < length && (lane & 3) == 0) arguments.delta[at] = row_delta[i][half];
    }
  }
  const float factor = arguments.scale * log2_e;
  float dq[kBlocks][kHead / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      load_step(step + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    const std::uint32_t k_step = k_base + (step & 1) * step_bytes, v_step = v_base + (step & 1) * step_bytes;
    const int query = first + warp_row;
#pragma unroll 1
    for (int part = 0; part < key_rows; part += backward_part) {
      const int key = step * key_rows + part;
      if (key >= length || (arguments.causal && key > query + 16 * kBlocks - 1)) continue;
      float weights[kBlocks][backward_part / 8][4] = {}, slopes[kBlocks][backward_part / 8][4] = {};
      multiply_rows<kHead, kBlocks, backward_part / 8>(weights, q_base, warp_row, k_step, part, lane);
      multiply_rows<kHead, kBlocks, backward_part / 8>(slopes, d_base, warp_row, v_step, part, lane);
      const bool masked = key + backward_part > length || (arguments.causal && key + backward_part - 1 > query);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = query + 16 * i + 8 * half + (lane >> 2);
          const int visible = arguments.causal ? min(length, row + 1) : length;
#pragma unroll
          for (int n = 0; n < backward_part / 8; ++n) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              float weight = exp2_fast(fmaf(weights[i][n][2 * half + c], factor, -row_lse[i][half]));
              if (masked && key + n * 8 + 2 * (lane & 3) + c >= visible) weight = 0.f;
              slopes[i][n][2 * half + c] = weight * (slopes[i][n][2 * half + c] - row_delta[i][half]);
            }
          }
        }
      }
      multiply_weights<kHead, kBlocks, backward_part / 8>(dq, slopes, k_step, part, lane);
    }
    __syncthreads();
  }
  float scales[kBlocks][2];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) scales[i][0] = scales[i][1] = arguments.scale;
  bf16* const result = static_cast<bf16*>(arguments.result) + begin * stride + head * arguments.head_size;
  store_head_rows<kHead, kBlocks>(dq, scales, result, stride, first + warp_row, length, arguments.head_size, lane);
}

}  // namespace some::cuda
