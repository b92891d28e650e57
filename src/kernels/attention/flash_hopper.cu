// Flash attention on Hopper for heads of 64 columns: tiles of 64 queries by 64 keys, multiplied by one warpgroup
// (wgmma). A row of a head has 128 bytes, which is one row of the 128-byte swizzle. So a tile of 64 rows is one TMA box
// and serves as either operand, as stored or transposed. The attention weights of a tile stay in the registers they
// were computed in and are the left operand of the next matmul.
//
// Each matmul of a tile takes 128 tensor core cycles; there are 2 forward and 7 backward (see tiles.cuh). With mma.sync
// each matmul would take 256 to 320 cycles of shared memory bandwidth. Documents are short, so the number of resident
// blocks matters most: four per multiprocessor forward; backward three for dk and dv and four for dq, which need fewer
// registers and are a kernel of their own. Each block computes the row sums of dout * out itself, which saves a launch.
#include <algorithm>

#include "kernels/attention/flash_hopper.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/hopper/pipeline.cuh"
#include "kernels/hopper/tile_load.cuh"
#include "kernels/hopper/wgmma_64.cuh"

namespace some::cuda {
namespace {

constexpr int rows = 64;  // rows of a tile; also the columns of a head
constexpr int tile_bytes = rows * 128;
constexpr int threads = 128;
constexpr int max_compared = 64;  // sequences whose lengths a warp compares (find_share)

// Layout of shared memory. A block keeps `kOwn` tiles of its own rows, and two stages of `kPassing` tiles each for the
// rows that stream past.
template <int kOwn, int kPassing>
struct Room {
  static constexpr int stage_bytes = kPassing * tile_bytes;
  static constexpr int row_data = kOwn * tile_bytes + 2 * stage_bytes;  // [lse, delta][rows]
  static constexpr int barriers = row_data + 2 * rows * 4;
  static constexpr int bytes = 1024 + barriers + 2 * 8;
};
using ForwardRoom = Room<1, 2>;
using KeysRoom = Room<2, 3>;
using QueriesRoom = Room<2, 2>;

struct HopperAttention {
  CUtensorMap qkv, out, dout;
  AttentionArguments common;
  int sequences, max_tiles;  // max_tiles: of one sequence
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Starts products = left * right^T for two tiles of rows; does not wait for the result.
__device__ __forceinline__ void multiply_rows(Sums& products, std::uint32_t left, std::uint32_t right) {
  const std::uint64_t a = wgmma_descriptor(left, 1024, 16), b = wgmma_descriptor(right, 1024, 16);
#pragma unroll
  for (int part = 0; part < 4; ++part) wgmma_64x64(products, a + part * (32 >> 4), b + part * (32 >> 4), part > 0);
}

// Starts sums += weights * rows, with the weights in registers; does not wait for the result.
__device__ __forceinline__ void multiply_weights(Sums& sums, const std::uint32_t (&weights)[4][4],
                                                 std::uint32_t right) {
  const std::uint64_t b = wgmma_descriptor(right, 1024, 16);
#pragma unroll
  for (int part = 0; part < 4; ++part) wgmma_64x64<1>(sums, weights[part], b + part * (16 * 128 >> 4));
}

// Packs the attention weights of a tile as the left operand of a matmul, 16 columns per part.
__device__ __forceinline__ void pack_weights(std::uint32_t (&packed)[4][4], const Sums& weights) {
#pragma unroll
  for (int part = 0; part < 4; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[part][i] = pack(weights[8 * part + 2 * i], weights[8 * part + 2 * i + 1]);
  }
}

// Work of one block: tile `tile` of a sequence of `tiles` tiles, for one head.
struct Share {
  int head, begin, length, tiles, tile;
  bool exists;
};

// Returns the work of the block with this number. Blocks are numbered by levels, the highest first. Level s has one
// tile of each sequence with at least s tiles: the tile that streams s tiles when causal. So the longest work starts
// first, and no block is idle. A warp compares two sequences per lane; with more, every sequence has a block at every
// level.
// With kKeys, the rows of the tile are keys, and the tiles of queries stream past.
template <bool kKeys>
__device__ __forceinline__ Share find_share(const HopperAttention& all, int number) {
  const AttentionArguments& common = all.common;
  const int lane = threadIdx.x & 31;
  int level = all.max_tiles;
  Share share{};
  share.head = number % common.heads;
  number /= common.heads;
  const auto tiles_in = [](int length) { return (length + rows - 1) / rows; };
  if (all.sequences > max_compared) {
    const int sequence = number % all.sequences;
    level -= number / all.sequences;
    share.begin = common.offsets[sequence];
    share.length = common.offsets[sequence + 1] - share.begin;
    share.exists = level <= tiles_in(share.length);
  } else {
    int begin[2], length[2], mine[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int sequence = lane + 32 * i;
      begin[i] = sequence < all.sequences ? common.offsets[sequence] : 0;
      length[i] = sequence < all.sequences ? common.offsets[sequence + 1] - begin[i] : 0;
      mine[i] = tiles_in(length[i]);
    }
    for (; level > 0; --level) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned long_enough = __ballot_sync(0xffffffffu, mine[i] >= level);
        const int count = __popc(long_enough);
        if (!share.exists && number < count) {
          const bool found = mine[i] >= level && __popc(long_enough & ((1u << lane) - 1)) == number;
          const int sequence = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, found))) - 1;
          share.begin = __shfl_sync(0xffffffffu, begin[i], sequence);
          share.length = __shfl_sync(0xffffffffu, length[i], sequence);
          share.exists = true;
        }
        number -= count;
      }
      if (share.exists) break;
    }
  }
  share.tiles = tiles_in(share.length);
  share.tile = kKeys ? share.tiles - level : level - 1;
  return share;
}

// Stores the rows of a tile, each multiplied by its factor, 16 bytes at a time.
__device__ __forceinline__ void store_tile(const Sums& sums, const float (&factors)[2], bf16* target,
                                           std::int64_t stride, int left, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * warp + 8 * half + (lane >> 2);
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      std::uint32_t values[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int at = 4 * (4 * block + n) + 2 * half;
        values[n] = pack(sums[at] * factors[half], sums[at + 1] * factors[half]);
      }
      transpose_quad(values, lane);
      if (row < left) {
        *reinterpret_cast<uint4*>(target + row * stride + 32 * block + 8 * (lane & 3)) =
            make_uint4(values[0], values[1], values[2], values[3]);
      }
    }
  }
}

// Returns the address of the block's shared memory, with its barriers initialized.
template <typename Where>
__device__ __forceinline__ std::uint32_t prepare(unsigned char* memory) {
  const std::uint32_t base = (shared_address(memory) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    mbarrier_start(base + Where::barriers, 1);
    mbarrier_start(base + Where::barriers + 8, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  return base;
}

__device__ __forceinline__ void forward(const HopperAttention& all, unsigned char* memory) {
  const std::uint32_t base = prepare<ForwardRoom>(memory);
  wait_previous_kernel();
  const Share share = find_share<false>(all, blockIdx.x);
  if (!share.exists) return;
  const AttentionArguments& common = all.common;
  const int width = common.heads * rows, first = share.tile * rows;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int steps = common.causal ? share.tile + 1 : share.tiles;
  const auto stage = [&](int step) { return base + tile_bytes + (step & 1) * ForwardRoom::stage_bytes; };
  const auto full = [&](int step) { return base + ForwardRoom::barriers + 8 * (step & 1); };
  const auto load = [&](int step, int more) {  // called by one thread
    const int column = share.head * rows, row = share.begin + step * rows;
    mbarrier_expect_bytes(full(step), ForwardRoom::stage_bytes + more);
    tma_load_box(stage(step), &all.qkv, full(step), width + column, row, 0);
    tma_load_box(stage(step) + tile_bytes, &all.qkv, full(step), 2 * width + column, row, 0);
  };
  if (threadIdx.x == 0) {
    load(0, tile_bytes);
    tma_load_box(base, &all.qkv, full(0), share.head * rows, share.begin + first, 0);
    if (steps > 1) load(1, 0);
  }

  const float factor = common.scale * log2_e;
  Sums sums = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait(full(step), step >> 1 & 1);
    Sums scores;
    wgmma_fence();
    multiply_rows(scores, base, stage(step));
    wgmma_commit();
    wgmma_wait<0>();
    refine(scores);
    if (step + 1 == steps) {  // the only tile with masked keys
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int row = first + 16 * warp + (i & 2) * 4 + (lane >> 2);
        const int key = step * rows + (i >> 2) * 8 + 2 * (lane & 3) + (i & 1);
        if (key >= (common.causal ? min(share.length, row + 1) : share.length)) scores[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = largest[half];
#pragma unroll
      for (int n = 0; n < 8; ++n) high = fmaxf(high, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
      high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
      const float shift = high == -INFINITY ? 0.f : high * factor;
      const float shrink = exp2_fast(largest[half] * factor - shift);
      largest[half] = high;
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[4 * n + 2 * half + c];
          score = exp2_fast(fmaf(score, factor, -shift));
          sum += score;
        }
      }
      total[half] = fmaf(total[half], shrink, sum);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        sums[4 * n + 2 * half] *= shrink;
        sums[4 * n + 2 * half + 1] *= shrink;
      }
    }
    std::uint32_t weights[4][4];
    pack_weights(weights, scores);
    wgmma_fence();
    multiply_weights(sums, weights, stage(step) + tile_bytes);
    wgmma_commit();
    wgmma_wait<0>();
    refine(sums);
    __syncthreads();
    if (threadIdx.x == 0 && step + 2 < steps) load(step + 2, 0);
  }

  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = total[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    factors[half] = 1.f / sum;
    const int row = first + 16 * warp + 8 * half + (lane >> 2);
    if ((lane & 3) == 0 && row < share.length) {
      common.lse[static_cast<std::int64_t>(share.head) * common.tokens + share.begin + row] =
          largest[half] * common.scale + logf(sum);
    }
  }
  bf16* const out =
      static_cast<bf16*>(common.result) + static_cast<std::int64_t>(share.begin + first) * width + share.head * rows;
  store_tile(sums, factors, out, width, share.length - first, warp, lane);
}

// Computes dk and dv of 64 keys while the queries stream past. The weights are transposed, with keys as rows.
__device__ __forceinline__ void keys_backward(const HopperAttention& all, const Share& share, std::uint32_t base,
                                              float* row_data) {
  const AttentionArguments& common = all.common;
  const int width = common.heads * rows, first = share.tile * rows;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first_step = common.causal ? share.tile : 0, steps = share.tiles - first_step;
  const auto stage = [&](int step) { return base + 2 * tile_bytes + (step & 1) * KeysRoom::stage_bytes; };
  const auto full = [&](int step) { return base + KeysRoom::barriers + 8 * (step & 1); };
  const auto load = [&](int step, int more) {  // called by one thread
    const int column = share.head * rows, row = share.begin + (first_step + step) * rows;
    mbarrier_expect_bytes(full(step), KeysRoom::stage_bytes + more);
    tma_load_box(stage(step), &all.qkv, full(step), column, row, 0);
    tma_load_box(stage(step) + tile_bytes, &all.dout, full(step), column, row, 0);
    tma_load_box(stage(step) + 2 * tile_bytes, &all.out, full(step), column, row, 0);
  };
  if (threadIdx.x == 0) {
    load(0, 2 * tile_bytes);
    tma_load_box(base, &all.qkv, full(0), width + share.head * rows, share.begin + first, 0);
    tma_load_box(base + tile_bytes, &all.qkv, full(0), 2 * width + share.head * rows, share.begin + first, 0);
    if (steps > 1) load(1, 0);
  }
  // Two threads per streamed row: both compute its delta, and the second loads its lse, one step ahead. A nonexistent
  // row has an infinite lse, so that its weights are zero.
  const int row = threadIdx.x >> 1, half_row = threadIdx.x & 1;
  const float* const lse = common.lse + static_cast<std::int64_t>(share.head) * common.tokens + share.begin;
  const auto lse_of = [&](int step) {
    const int query = (first_step + step) * rows + row;
    return query < share.length ? lse[query] * log2_e : INFINITY;
  };
  float next_lse = lse_of(0);

  const float factor = common.scale * log2_e;
  Sums dk = {}, dv = {};
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait(full(step), step >> 1 & 1);
    const std::uint32_t queries = stage(step), upstream = queries + tile_bytes;
    Sums weights, slopes;
    wgmma_fence();
    multiply_rows(weights, base, queries);
    multiply_rows(slopes, base + tile_bytes, upstream);
    wgmma_commit();
    float delta = 0.f;
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      const std::uint32_t place = upstream + row * 128 + (((half_row * 4 + piece) ^ (row & 7)) << 4);
      const uint4 left = load_shared(place), right = load_shared(place + tile_bytes);
      add_products(delta, left, right);
    }
    delta += __shfl_xor_sync(0xffffffffu, delta, 1);
    row_data[half_row * rows + row] = half_row == 0 ? delta : next_lse;
    if (step + 1 < steps) next_lse = lse_of(step + 1);
    wgmma_wait<0>();
    refine(weights);
    refine(slopes);
    __syncthreads();
    const bool masked = common.causal && step == 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int column = 8 * n + 2 * (lane & 3);
      const float2 deltas = *reinterpret_cast<const float2*>(row_data + column);
      const float2 sums_of = *reinterpret_cast<const float2*>(row_data + rows + column);
#pragma unroll
      for (int i = 4 * n; i < 4 * n + 4; ++i) {
        float weight = exp2_fast(fmaf(weights[i], factor, -((i & 1) == 0 ? sums_of.x : sums_of.y)));
        if (masked && column + (i & 1) < 16 * warp + (i & 2) * 4 + (lane >> 2)) weight = 0.f;
        weights[i] = weight;
        slopes[i] = weight * (slopes[i] - ((i & 1) == 0 ? deltas.x : deltas.y));
      }
    }
    std::uint32_t left[4][4], other[4][4];
    pack_weights(left, weights);
    pack_weights(other, slopes);
    wgmma_fence();
    multiply_weights(dv, left, upstream);
    multiply_weights(dk, other, queries);
    wgmma_commit();
    wgmma_wait<0>();
    refine(dv);
    refine(dk);
    __syncthreads();
    if (threadIdx.x == 0 && step + 2 < steps) load(step + 2, 0);
  }
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  bf16* const result = static_cast<bf16*>(common.result) + (share.begin + first) * stride + share.head * rows;
  const float ones[2] = {1.f, 1.f}, scales[2] = {common.scale, common.scale};
  store_tile(dk, scales, result + width, stride, share.length - first, warp, lane);
  store_tile(dv, ones, result + 2 * width, stride, share.length - first, warp, lane);
}

// Computes dq of 64 queries while the keys stream past.
__device__ __forceinline__ void queries_backward(const HopperAttention& all, const Share& share, std::uint32_t base) {
  const AttentionArguments& common = all.common;
  const int width = common.heads * rows, first = share.tile * rows;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int steps = common.causal ? share.tile + 1 : share.tiles;
  const auto stage = [&](int step) { return base + 2 * tile_bytes + (step & 1) * QueriesRoom::stage_bytes; };
  const auto full = [&](int step) { return base + QueriesRoom::barriers + 8 * (step & 1); };
  const auto load = [&](int step, int more) {  // called by one thread
    const int column = share.head * rows, row = share.begin + step * rows;
    mbarrier_expect_bytes(full(step), 2 * tile_bytes + more);
    tma_load_box(stage(step), &all.qkv, full(step), width + column, row, 0);
    tma_load_box(stage(step) + tile_bytes, &all.qkv, full(step), 2 * width + column, row, 0);
  };
  if (threadIdx.x == 0) {
    load(0, 2 * tile_bytes);
    tma_load_box(base, &all.qkv, full(0), share.head * rows, share.begin + first, 0);
    tma_load_box(base + tile_bytes, &all.dout, full(0), share.head * rows, share.begin + first, 0);
    if (steps > 1) load(1, 0);
  }
  const std::int64_t own = static_cast<std::int64_t>(share.begin + first) * width + share.head * rows;
  float row_lse[2], row_delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * warp + 8 * half + (lane >> 2);
    const bool valid = first + row < share.length;
    row_lse[half] =
        valid ? common.lse[static_cast<std::int64_t>(share.head) * common.tokens + share.begin + first + row] * log2_e
              : INFINITY;
    row_delta[half] = quad_dot<rows>(static_cast<const bf16*>(common.dout), static_cast<const bf16*>(common.out),
                                     own + static_cast<std::int64_t>(row) * width, valid ? rows : 0, lane);
  }

  const float factor = common.scale * log2_e;
  Sums dq = {};
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait(full(step), step >> 1 & 1);
    const std::uint32_t keys = stage(step), values = keys + tile_bytes;
    Sums weights, slopes;
    wgmma_fence();
    multiply_rows(weights, base, keys);
    multiply_rows(slopes, base + tile_bytes, values);
    wgmma_commit();
    wgmma_wait<0>();
    refine(weights);
    refine(slopes);
    const bool masked = step + 1 == steps;  // the only tile with masked keys
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int half = i >> 1 & 1, row = first + 16 * warp + 8 * half + (lane >> 2);
      float weight = exp2_fast(fmaf(weights[i], factor, -row_lse[half]));
      if (masked) {
        const int key = step * rows + (i >> 2) * 8 + 2 * (lane & 3) + (i & 1);
        if (key >= (common.causal ? min(share.length, row + 1) : share.length)) weight = 0.f;
      }
      slopes[i] = weight * (slopes[i] - row_delta[half]);
    }
    std::uint32_t left[4][4];
    pack_weights(left, slopes);
    wgmma_fence();
    multiply_weights(dq, left, keys);
    wgmma_commit();
    wgmma_wait<0>();
    refine(dq);
    __syncthreads();
    if (threadIdx.x == 0 && step + 2 < steps) load(step + 2, 0);
  }
  const std::int64_t stride = 3 * static_cast<std::int64_t>(width);
  bf16* const result = static_cast<bf16*>(common.result) + (share.begin + first) * stride + share.head * rows;
  const float scales[2] = {common.scale, common.scale};
  store_tile(dq, scales, result, stride, share.length - first, warp, lane);
}

#endif

__global__ void __launch_bounds__(threads, 4) hopper_forward_kernel(const __grid_constant__ HopperAttention all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  forward(all, memory);
#endif
}

__global__ void __launch_bounds__(threads, 3) hopper_keys_backward_kernel(const __grid_constant__ HopperAttention all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const std::uint32_t base = prepare<KeysRoom>(memory);
  wait_previous_kernel();
  const Share share = find_share<true>(all, blockIdx.x);
  if (!share.exists) return;
  keys_backward(all, share, base,
                reinterpret_cast<float*>(memory + (base - shared_address(memory)) + KeysRoom::row_data));
#endif
}

// Follows the kernel above directly and reads nothing that it writes, so its blocks run beside the last ones of that
// kernel and wait only at their end, for the kernels that follow. What they read is complete: the kernel above lets
// this one start after its own wait.
__global__ void __launch_bounds__(threads, 4)
    hopper_queries_backward_kernel(const __grid_constant__ HopperAttention all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const std::uint32_t base = prepare<QueriesRoom>(memory);
  const Share share = find_share<false>(all, blockIdx.x);
  if (share.exists) queries_backward(all, share, base);
  wait_previous_kernel();
#endif
}

template <typename Kernel>
void launch(const Context& ctx, Kernel kernel, HopperAttention& all, const Sequences& sequences, int shared) {
  const AttentionArguments& common = all.common;
  const std::int64_t width = static_cast<std::int64_t>(common.heads) * rows;
  all.qkv = describe(common.qkv, 3 * width, common.tokens, 1, rows);
  all.sequences = static_cast<int>(sequences.count);
  all.max_tiles = static_cast<int>((sequences.longest + rows - 1) / rows);
  std::int64_t tiles = sequences.count * all.max_tiles;
  if (sequences.count <= max_compared) tiles = std::min(tiles, (common.tokens + (rows - 1) * sequences.count) / rows);
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  launch_dependent(ctx, kernel, static_cast<unsigned>(tiles * common.heads), threads, static_cast<std::size_t>(shared),
                   all);
}

}  // namespace

bool fits_hopper(const Context& ctx, const AttentionArguments& arguments) {
  return ctx.compute == DType::bf16 && ctx.cuda->major == 9 && arguments.head_size == rows &&
         all_aligned16(arguments.qkv, arguments.out, arguments.dout, arguments.result);
}

void launch_hopper_forward(Context& ctx, const AttentionArguments& arguments, const Sequences& sequences) {
  HopperAttention all{};
  all.common = arguments;
  launch(ctx, hopper_forward_kernel, all, sequences, ForwardRoom::bytes);
}

void launch_hopper_backward(Context& ctx, const AttentionArguments& arguments, const Sequences& sequences) {
  HopperAttention all{};
  all.common = arguments;
  const std::int64_t width = static_cast<std::int64_t>(arguments.heads) * rows;
  all.out = describe(arguments.out, width, arguments.tokens, 1, rows);
  all.dout = describe(arguments.dout, width, arguments.tokens, 1, rows);
  launch(ctx, hopper_keys_backward_kernel, all, sequences, KeysRoom::bytes);
  launch(ctx, hopper_queries_backward_kernel, all, sequences, QueriesRoom::bytes);
}

}  // namespace some::cuda
