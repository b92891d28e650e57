// Computes the weight gradients of several dense layers in one launch on Hopper: target[m, n] += sum over tokens of
// dy[., m] * x[., n]. Each block computes a 128 x 128 tile of one of the matrices over all tokens, so that no second
// pass has to add up parts and the order of every sum is fixed.
//
// A block of the model has about as many tiles as a GPU has multiprocessors (A4 has 128, the variant with input
// projection and features 122, for 132). Each matrix has only 2 to 48 tiles, so for a single one cuBLASLt would divide
// the sums into parts and add these up in a second kernel. The summed axis is the outermost of both operands, which the
// tensor cores accept directly in bf16. For 64 tokens, a tile takes 512 cycles of the tensor cores and 640 of shared
// memory: each of two warpgroups reads 24 KiB, and TMA writes 32, at 128 bytes per cycle.
//
// The gradient of the bias, the column sums of dy, is one more column of the GEMM: dy^T times a vector of ones. The
// tiles of one row of tiles read the same columns of dy and share this work: each does it for its part of the tokens.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/strided_matmul.h"
#include "kernels/hopper/tile_load.cuh"
#include "kernels/reduce/column_sums.h"
#include "ops/cuda/deferred_gradients.h"
#include "ops/deferred_gradients.h"

namespace some::cuda {
namespace {

constexpr int tile = 128;
constexpr int step_rows = 64;                  // tokens per stage
constexpr int box_bytes = step_rows * 64 * 2;  // one TMA box has 64 columns
constexpr int stage_bytes = 4 * box_bytes;     // two boxes of dy, two of x
constexpr int stages = 6;
constexpr int ones_bytes = 1024;
constexpr int threads = 384;  // one warpgroup, of which a single thread loads, and two that multiply
constexpr int multiplying_warps = 8;
constexpr int shared_bytes = 1024 + stages * stage_bytes + ones_bytes + 2 * 8 * stages;
constexpr int max_products = 8;  // per launch

// One matrix. Its tiles are numbered starting at `first`, one row of tiles after another.
struct WeightGradientGemm {
  CUtensorMap dy, x;
  float* target;    // [m, n]
  float* partials;  // [column tiles, m]: partial column sums of dy; null if there is no bias
  int m, n, first, column_tiles;
};
struct WeightGradientGemms {
  WeightGradientGemm products[max_products];
  int count, tiles, steps;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A stage is `full` once its data has arrived and `empty` once it has been used.
struct Stages {
  std::uint32_t data, ones, barriers;
  int stage = 0, parity;
  __device__ Stages(unsigned char* memory, int first_parity) : parity(first_parity) {
    data = (shared_address(memory) + 1023) & ~1023u;
    ones = data + stages * stage_bytes;
    barriers = ones + ones_bytes;
  }
  __device__ std::uint32_t full(int which) const { return barriers + 8 * which; }
  __device__ std::uint32_t empty(int which) const { return barriers + 8 * (stages + which); }
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Location of a tile: its matrix, and its row and column of tiles there.
struct Place {
  const WeightGradientGemm* product;
  int row_tile, column_tile;
  __device__ Place(const WeightGradientGemms& all, int number) {
    int which = 0;
    while (which + 1 < all.count && number >= all.products[which + 1].first) ++which;
    product = &all.products[which];
    row_tile = (number - product->first) / product->column_tiles;
    column_tile = (number - product->first) % product->column_tiles;
  }
};

__device__ __forceinline__ void load_tiles(const WeightGradientGemms& all, Stages at) {
  for (int number = blockIdx.x; number < all.tiles; number += gridDim.x) {
    const Place place(all, number);
    const int first_m = place.row_tile * tile, first_n = place.column_tile * tile;
    for (int step = 0; step < all.steps; ++step) {
      mbarrier_wait(at.empty(at.stage), at.parity);
      const std::uint32_t target = at.data + at.stage * stage_bytes, barrier = at.full(at.stage);
      mbarrier_expect_bytes(barrier, stage_bytes);
      tma_load_box(target, &place.product->dy, barrier, first_m, step * step_rows, 0);
      tma_load_box(target + box_bytes, &place.product->dy, barrier, first_m + 64, step * step_rows, 0);
      tma_load_box(target + 2 * box_bytes, &place.product->x, barrier, first_n, step * step_rows, 0);
      tma_load_box(target + 3 * box_bytes, &place.product->x, barrier, first_n + 64, step * step_rows, 0);
      at.advance();
    }
  }
}

// Multiplies `count` stages of this warpgroup's 64 rows. `previous` is the preceding stage, which is released as soon
// as its MMAs are done.
template <bool kTotals>
__device__ __forceinline__ void multiply_steps(float (&sums)[64], float (&totals)[4], Stages& at, int& previous,
                                               int count, int half, int lane) {
  for (int step = 0; step < count; ++step) {
    mbarrier_wait(at.full(at.stage), at.parity);
    const std::uint32_t base = at.data + at.stage * stage_bytes;
    const std::uint64_t left = wgmma_descriptor(base + half * box_bytes, 1024, box_bytes);
    const std::uint64_t right = wgmma_descriptor(base + 2 * box_bytes, 1024, box_bytes);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < step_rows / 16; ++part) {
      const std::uint64_t left_part = left + part * (16 * 128 >> 4);
      wgmma_64x128<1, 1>(sums, left_part, right + part * (16 * 128 >> 4), previous >= 0 || part > 0);
      if constexpr (kTotals)
        wgmma_64x8<0, 1>(totals, left_part, wgmma_descriptor(at.ones, 1024, 16), step > 0 || part > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();  // the previous step's operands have been read, so its stage can be refilled
    if (previous >= 0 && lane == 0) mbarrier_arrive(at.empty(previous));
    previous = at.stage;
    at.advance();
  }
}

__device__ __forceinline__ void multiply_tiles(const WeightGradientGemms& all, Stages at) {
  const int half = threadIdx.x / 128 - 1, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  for (int number = blockIdx.x; number < all.tiles; number += gridDim.x) {
    const Place place(all, number);
    const WeightGradientGemm& product = *place.product;
    const int row = place.row_tile * tile + half * 64 + warp * 16 + (lane >> 2);
    const int column = place.column_tile * tile + (lane & 3) * 2;
    float2 before[32];
    float sums[64], totals[4];
    const auto each = [&](auto&& take) {  // visits the pairs of numbers that this thread holds
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int m = row + (i & 1) * 8, n = column + (i >> 1) * 8;
        take(i,
             m < product.m && n < product.n ? product.target + static_cast<std::int64_t>(m) * product.n + n : nullptr);
      }
    };
    each([&](int i, const float* from) {
      before[i] = from != nullptr ? *reinterpret_cast<const float2*>(from) : make_float2(0.f, 0.f);
    });
    int previous = -1, begin = 0, end = 0;
    if (product.partials != nullptr) {
      begin = all.steps * place.column_tile / product.column_tiles;
      end = all.steps * (place.column_tile + 1) / product.column_tiles;
    }
    multiply_steps<false>(sums, totals, at, previous, begin, half, lane);
    multiply_steps<true>(sums, totals, at, previous, end - begin, half, lane);
    multiply_steps<false>(sums, totals, at, previous, all.steps - end, half, lane);
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(at.empty(previous));
    each([&](int i, float* to) {
      if (to != nullptr)
        *reinterpret_cast<float2*>(to) = make_float2(before[i].x + sums[2 * i], before[i].y + sums[2 * i + 1]);
    });
    if (product.partials != nullptr && (lane & 3) == 0) {
      float* const parts = product.partials + static_cast<std::int64_t>(place.column_tile) * product.m;
      if (row < product.m) parts[row] = end > begin ? totals[0] : 0.f;
      if (row + 8 < product.m) parts[row + 8] = end > begin ? totals[2] : 0.f;
    }
  }
}

#endif

__global__ void __launch_bounds__(threads, 1) gradients_kernel(const __grid_constant__ WeightGradientGemms all) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const Stages at(memory, 0);
  if (threadIdx.x < ones_bytes / 16) {
    constexpr std::uint32_t two_ones = 0x3f803f80u;
    store_shared(at.ones + threadIdx.x * 16, make_uint4(two_ones, two_ones, two_ones, two_ones));
    fence_proxy_async();
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; ++stage) {
      mbarrier_start(at.full(stage), 1);
      mbarrier_start(at.empty(stage), multiplying_warps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  wait_previous_kernel();
  if (threadIdx.x < 128) {
    if (threadIdx.x == 0) load_tiles(all, Stages(memory, 1));
  } else {
    multiply_tiles(all, at);
  }
#endif
}

struct DeferredGradient {
  Tensor dy, x;
  Param weight, bias;
  std::int64_t rows() const { return x.dim(0); }
  int m() const { return static_cast<int>(weight.value.dim(0)); }
  int n() const { return static_cast<int>(weight.value.dim(1)); }
  int column_tiles() const { return (n() + tile - 1) / tile; }
  int tiles() const { return (m() + tile - 1) / tile * column_tiles(); }
};

}  // namespace

struct DeferredGradients {
  bool deferring = false;
  std::vector<DeferredGradient> waiting;
  std::vector<DeferredGradient> others;  // whose sizes need a GEMM of cuBLASLt
};

namespace {

// Returns the gradients that the context defers, or null.
DeferredGradients* deferred_gradients(const Context& ctx) {
  DeferredGradients* const gradients = ctx.deferred != nullptr ? ctx.deferred->gradients.get() : nullptr;
  return gradients != nullptr && gradients->deferring ? gradients : nullptr;
}

// Returns a descriptor of the first `columns` columns of a matrix, read in boxes of step_rows x 64.
CUtensorMap describe_rows(const Tensor& matrix, int columns) {
  const auto rows = static_cast<cuuint64_t>(matrix.dim(0)),
             stride = static_cast<cuuint64_t>(std::max<std::int64_t>(columns, stride_of(matrix, columns))) * 2;
  return encode<3>(matrix.raw(), {static_cast<cuuint64_t>(columns), rows, 1}, {stride, stride * rows},
                   {64, step_rows, 1});
}

// Computes all gradients in one launch.
void launch(Context& ctx, const std::vector<DeferredGradient>& all) {
  WeightGradientGemms products{};
  products.count = static_cast<int>(all.size());
  products.steps = static_cast<int>((all.front().rows() + step_rows - 1) / step_rows);
  const ArenaScope scope(*ctx.arena);
  const auto sums_bias = [](const DeferredGradient& one) { return one.bias && one.bias.grad; };
  std::int64_t parts = 0;
  for (const DeferredGradient& one : all) parts += sums_bias(one) ? std::int64_t{one.column_tiles()} * one.m() : 0;
  float* const room = parts > 0 ? partial_sums_buffer(ctx, parts) : nullptr;
  float* partials = room;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const DeferredGradient& one = all[i];
    WeightGradientGemm& product = products.products[i];
    product.dy = describe_rows(one.dy, one.m());
    product.x = describe_rows(one.x, one.n());
    product.target = floats(one.weight.grad);
    product.m = one.m();
    product.n = one.n();
    product.first = products.tiles;
    product.column_tiles = one.column_tiles();
    products.tiles += one.tiles();
    if (!sums_bias(one)) continue;
    product.partials = partials;
    partials += std::int64_t{one.column_tiles()} * one.m();
  }
  SOME_CUDA_CHECK(cudaFuncSetAttribute(gradients_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  launch_dependent(ctx, gradients_kernel, static_cast<unsigned>(std::min(products.tiles, ctx.cuda->multiprocessors)),
                   threads, shared_bytes, products);
  partials = room;
  for (const DeferredGradient& one : all) {
    if (!sums_bias(one)) continue;
    add_partials(ctx, partials, one.column_tiles(), one.m(), floats(one.bias.grad));
    partials += std::int64_t{one.column_tiles()} * one.m();
  }
}

// True if one launch is faster than the GEMMs of cuBLASLt, which divide the tokens. It is if its tiles leave at most
// half of the multiprocessors idle; and if the sums are so short that each GEMM, with the launch that sums its bias,
// takes longer than 16 steps of a tile (6 us).
bool fills(const Context& ctx, const std::vector<DeferredGradient>& all) {
  int tiles = 0;
  for (const DeferredGradient& one : all) tiles += one.tiles();
  const int rounds = (tiles + ctx.cuda->multiprocessors - 1) / ctx.cuda->multiprocessors;
  const std::int64_t steps = (all.front().rows() + step_rows - 1) / step_rows;
  return 2 * tiles >= rounds * ctx.cuda->multiprocessors || rounds * steps <= 16 * std::ssize(all);
}

void finish_waiting(Context& ctx, DeferredGradients& gradients) {
  std::vector<DeferredGradient> all;
  all.swap(gradients.waiting);
  if (all.empty()) return;
  if (fills(ctx, all)) return launch(ctx, all);
  for (const DeferredGradient& one : all) add_gradient(ctx, one.dy, one.x, one.weight, one.bias);
}

void finish_others(Context& ctx, DeferredGradients& gradients) {
  for (const DeferredGradient& one : std::exchange(gradients.others, {}))
    add_gradient(ctx, one.dy, one.x, one.weight, one.bias);
}

}  // namespace

bool defer_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias) {
  DeferredGradients* const gradients = deferred_gradients(ctx);
  if (gradients == nullptr || !weight.grad || ctx.cuda->major != 9) return false;
  if (dy.dtype() != DType::bf16 || x.dtype() != DType::bf16 || weight.grad.dtype() != DType::f32) return false;
  if (weight.value.dim(0) % 8 != 0 || weight.value.dim(1) % 8 != 0 ||
      !all_aligned16(dy.raw(), x.raw(), weight.grad.raw())) {
    gradients->others.push_back({dy, x, weight, bias});
    return true;
  }
  // All gradients of a launch sum over the same tokens, and no two add to the same target.
  std::vector<DeferredGradient>& waiting = gradients->waiting;
  const bool other_tokens = !waiting.empty() && waiting.front().rows() != x.dim(0);
  const bool twice = std::any_of(waiting.begin(), waiting.end(), [&](const DeferredGradient& one) {
    return one.weight.grad.raw() == weight.grad.raw();
  });
  if (other_tokens || twice || waiting.size() == max_products) finish_waiting(ctx, *gradients);
  waiting.push_back({dy, x, weight, bias});
  return true;
}

void add_gradient(Context& ctx, const Tensor& dy, const Tensor& x, const Param& weight, const Param& bias) {
  if (bias && bias.grad)
    add_column_sums(ctx, dy.raw(), dy.dtype(), dy.dim(0), dy.dim(1), floats(bias.grad), nullptr, bias.value.dim(0));
  if (weight.grad)
    matmul_strided(ctx, weight.value.dim(0), weight.value.dim(1), x.dim(0), {dy.raw(), dy.dtype(), true},
                   {x.raw(), x.dtype(), false}, weight.grad.raw(), weight.grad.dtype(), true, nullptr,
                   {stride_of(dy, weight.value.dim(0)), stride_of(x, weight.value.dim(1)), 0});
}

void defer_gradients(Context& ctx) {
  std::shared_ptr<DeferredGradients>& gradients = ctx.deferred->gradients;
  if (gradients == nullptr) gradients = std::make_shared<DeferredGradients>();
  gradients->deferring = true;
}

void finish_gradients(Context& ctx, Context& where) {
  DeferredGradients* const gradients = deferred_gradients(ctx);
  if (gradients == nullptr) return;
  // Sums that wait are added up by whoever needs room for others, which must not be while another stream computes them.
  struct Undeferred {
    Context& ctx;
    Deferred* const before = ctx.deferred;
    ~Undeferred() { ctx.deferred = before; }
  };
  const Undeferred restored{where};
  if (&where != &ctx) where.deferred = nullptr;
  finish_waiting(where, *gradients);
  finish_others(where, *gradients);
  gradients->deferring = false;
}

void discard_gradients(Context& ctx) {
  DeferredGradients* const gradients = deferred_gradients(ctx);
  if (gradients == nullptr) return;
  gradients->waiting.clear();
  gradients->others.clear();
  gradients->deferring = false;
}

}  // namespace some::cuda
