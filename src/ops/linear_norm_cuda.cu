// A dense layer, the residual sum and LayerNorm in one kernel on Hopper: a block has 64 rows and all of their columns
// (up to 512). Two warpgroups multiply, 64 x 256 each; a thread of a third has the copy engine bring both operands and
// at last the residual's rows, to which the product is added where they lie in shared memory. From there each warp
// takes whole rows, as the norm's own kernel does: only sums and normed rows are written. Every number is rounded where
// the separate operations would round it.
#include <algorithm>

#include "ops/cuda_launch.cuh"
#include "ops/grouped_gemm_hopper_load.cuh"
#include "ops/linear_norm.h"

namespace some::ops::cuda {
namespace {

constexpr float epsilon = 1e-5f;
constexpr int rows_each = 64;
constexpr int most_columns = 512;
constexpr std::int64_t fewest_rows = 2048;
constexpr int left_bytes = rows_each * block_depth * 2;
constexpr int right_bytes = most_columns * block_depth * 2;  // as much as 64 rows of the residual have
constexpr int stages = 3;
constexpr int multiplying = 256, threads = multiplying + 128;
constexpr int shared_bytes = 1024 + stages * (left_bytes + right_bytes) + 2 * 8 * stages;

struct NormArguments {
  const bf16* bias;  // or null
  const float *weight, *shift;
  bf16 *sum, *y;
  float *means, *rstds;
  int rows, columns, depth;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A stage is `full` when its data has arrived and `empty` when it has been used.
struct NormStages {
  std::uint32_t data, barriers;
  int stage = 0, parity;
  __device__ NormStages(unsigned char* memory, int first_parity) : parity(first_parity) {
    data = (shared_address(memory) + 1023) & ~1023u;
    barriers = data + stages * (left_bytes + right_bytes);
  }
  __device__ std::uint32_t right() const { return data + stage * right_bytes; }
  __device__ std::uint32_t left() const { return data + stages * right_bytes + stage * left_bytes; }
  __device__ std::uint32_t full(int which) const { return barriers + 8 * which; }
  __device__ std::uint32_t empty(int which) const { return barriers + 8 * (stages + which); }
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ std::uint32_t load_pair(std::uint32_t address) {
  std::uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_pair(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(address), "r"(value) : "memory");
}
// Where eight columns of a row of the residual lie.
__device__ __forceinline__ std::uint32_t piece_place(std::uint32_t tile, int row, int piece) {
  return tile + (piece >> 3) * (right_bytes / 8) + row * 128 + (((piece & 7) ^ (row & 7)) << 4);
}

__device__ __forceinline__ void load_tiles(const CUtensorMap* map_x, const CUtensorMap* map_weight,
                                           const CUtensorMap* map_residual, NormStages at, int tiles, int steps) {
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int row = tile * rows_each;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(at.empty(at.stage), at.parity);
      const std::uint32_t barrier = at.full(at.stage);
      barrier_expect(barrier, left_bytes + right_bytes);
      copy_box(at.left(), map_x, barrier, step * block_depth, row, 0);
      copy_box(at.right(), map_weight, barrier, step * block_depth, 0, 0);
      copy_box(at.right() + right_bytes / 2, map_weight, barrier, step * block_depth, most_columns / 2, 0);
      at.advance();
    }
    barrier_wait(at.empty(at.stage), at.parity);
    const std::uint32_t barrier = at.full(at.stage);
    barrier_expect(barrier, right_bytes);
#pragma unroll
    for (int box = 0; box < most_columns / 64; ++box)
      copy_box(at.right() + box * (right_bytes / 8), map_residual, barrier, box * 64, row, 0);
    at.advance();
  }
}

// One row in shared memory, by a warp: the sum is written as it is, and normed.
__device__ __forceinline__ void norm_row(const NormArguments& arguments, std::uint32_t tile, int row, std::int64_t line,
                                         int lane) {
  constexpr int parts = 2;
  float values[parts][8];
  float total = 0.f;
  const std::int64_t base = line * arguments.columns;
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    const int piece = p * 32 + lane;
    const uint4 word = load_shared(piece_place(tile, row, piece));
    unpack16<bf16>(word, values[p]);
    if (piece * 8 < arguments.columns) *reinterpret_cast<uint4*>(arguments.sum + base + piece * 8) = word;
#pragma unroll
    for (int i = 0; i < 8; ++i) total += values[p][i];  // columns that are not there are zeros
  }
  const float mean = warp_sum(total) / static_cast<float>(arguments.columns);
  float squares = 0.f;
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    if ((p * 32 + lane) * 8 >= arguments.columns) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += (values[p][i] - mean) * (values[p][i] - mean);
  }
  const float rstd = 1.f / sqrtf(warp_sum(squares) / static_cast<float>(arguments.columns) + epsilon);
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    const int column = (p * 32 + lane) * 8;
    if (column >= arguments.columns) continue;
    float scale[8], shift[8];
    load_elements<8>(arguments.weight + column, scale);
    load_elements<8>(arguments.shift + column, shift);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[p][i] = (values[p][i] - mean) * rstd * scale[i] + shift[i];
    store_elements<8>(arguments.y + base + column, values[p]);
  }
  if (lane == 0) {
    arguments.means[line] = mean;
    arguments.rstds[line] = rstd;
  }
}

__device__ __forceinline__ void finish_tiles(const NormArguments& arguments, NormStages at, int tiles, int steps) {
  const int half = threadIdx.x / 128, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int row = (warp & 3) * 16 + (lane >> 2);  // and eight further
  const int first_column = half * (most_columns / 2) + (lane & 3) * 2;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float sums[2][64];
    int previous = -1;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(at.full(at.stage), at.parity);
      const std::uint64_t left = matrix_place(at.left(), 1024, 16);
      const std::uint64_t right = matrix_place(at.right() + half * (right_bytes / 2), 1024, 16);
      products_fence();
#pragma unroll
      for (int part = 0; part < block_depth / 16; ++part)
        multiply_256<0>(sums, left + part * (32 >> 4), right + part * (32 >> 4), step > 0 || part > 0);
      products_commit();
      products_wait<1>();  // the step before has been read: its stage can be filled again
      if (previous >= 0 && lane == 0) barrier_arrive(at.empty(previous));
      previous = at.stage;
      at.advance();
    }
    products_wait<0>();
    if (lane == 0) barrier_arrive(at.empty(previous));

    // sum = residual + (product + bias), each rounded, in the residual's place.
    barrier_wait(at.full(at.stage), at.parity);
    const std::uint32_t residual = at.right();
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      const int column = first_column + j * 8;
      std::uint32_t bias = 0;
      if (arguments.bias != nullptr && column < arguments.columns)
        bias = __ldg(reinterpret_cast<const unsigned*>(arguments.bias + column));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t place = piece_place(residual, row + 8 * i, column >> 3) + (column & 7) * 2;
        const std::uint32_t before = load_pair(place);
        const float* const product = &sums[j / 16][j % 16 * 4 + 2 * i];
        const std::uint32_t made = pack(product[0] + low_half(bias), product[1] + high_half(bias));
        store_pair(place, pack(low_half(before) + low_half(made), high_half(before) + high_half(made)));
      }
    }
    named_sync(1, multiplying);
#pragma unroll 2
    for (int i = 0; i < rows_each / 8; ++i) {
      const int own = warp * (rows_each / 8) + i;
      const std::int64_t line = static_cast<std::int64_t>(tile) * rows_each + own;
      if (line < arguments.rows) norm_row(arguments, residual, own, line, lane);
    }
    publish_shared();  // the copy engine writes there next
    __syncwarp();
    if (lane == 0) barrier_arrive(at.empty(at.stage));
    at.advance();
  }
}

#endif

__global__ void __launch_bounds__(threads, 1)
    linear_norm_kernel(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_weight,
                       const __grid_constant__ CUtensorMap map_residual,
                       const __grid_constant__ NormArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const NormStages at(memory, 0);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; ++stage) {
      barrier_start(at.full(stage), 1);
      barrier_start(at.empty(stage), multiplying / 32);
    }
    barriers_visible();
  }
  __syncthreads();
  after_previous();
  const int tiles = (arguments.rows + rows_each - 1) / rows_each;
  const int steps = (arguments.depth + block_depth - 1) / block_depth;
  if (threadIdx.x >= multiplying) {
    fewer_registers<40>();
    if (threadIdx.x == multiplying) load_tiles(&map_x, &map_weight, &map_residual, NormStages(memory, 1), tiles, steps);
  } else {
    more_registers<232>();
    finish_tiles(arguments, at, tiles, steps);
  }
#endif
}

bool serves(const Context& ctx, const Tensor& x, const Param& weight, const Param& bias, const Tensor& residual,
            const Param& norm_weight, const Param& norm_bias, const Tensor& sum, const Tensor& y) {
  const std::int64_t rows = x.dim(0), depth = x.dim(1), columns = residual.dim(1);
  return ctx.cuda->major == 9 && ctx.compute == DType::bf16 && rows >= fewest_rows && rows < std::int64_t{1} << 31 &&
         depth % 8 == 0 && columns % 8 == 0 && columns > most_columns / 2 && columns <= most_columns &&
         (!bias || bias.compute.dtype() == DType::bf16) &&
         all_aligned16(x.raw(), weight.compute.raw(), bias ? bias.compute.raw() : nullptr, residual.raw(),
                       norm_weight.value.raw(), norm_bias.value.raw(), sum.raw(), y.raw());
}

}  // namespace

void linear_norm_forward(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, const Tensor& residual,
                         const Param& norm_weight, const Param& norm_bias, Tensor& sum, Tensor& y, Tensor& mean,
                         Tensor& rstd) {
  if (!serves(ctx, x, weight, bias, residual, norm_weight, norm_bias, sum, y)) {
    const ArenaScope scope(*ctx.arena);
    Tensor made = ctx.scratch(residual.shape());
    cuda::linear_forward(ctx, x, weight, bias, made);
    return cuda::add_norm_forward(ctx, residual, &made, norm_weight, norm_bias, sum, y, mean, rstd);
  }
  const std::int64_t rows = x.dim(0), depth = x.dim(1), columns = residual.dim(1);
  NormArguments arguments{};
  arguments.bias = bias ? elements_of<bf16>(bias.compute) : nullptr;
  arguments.weight = floats(norm_weight.value);
  arguments.shift = floats(norm_bias.value);
  arguments.sum = elements_of<bf16>(sum);
  arguments.y = elements_of<bf16>(y);
  arguments.means = floats(mean);
  arguments.rstds = floats(rstd);
  arguments.rows = static_cast<int>(rows);
  arguments.columns = static_cast<int>(columns);
  arguments.depth = static_cast<int>(depth);
  const CUtensorMap map_x = describe(x.raw(), depth, rows, 1, rows_each);
  const CUtensorMap map_weight = describe(weight.compute.raw(), depth, columns, 1, most_columns / 2);
  const CUtensorMap map_residual = describe(residual.raw(), columns, rows, 1, rows_each);
  SOME_CUDA_CHECK(cudaFuncSetAttribute(linear_norm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const std::int64_t tiles = (rows + rows_each - 1) / rows_each;
  launch_behind(ctx, linear_norm_kernel,
                static_cast<unsigned>(std::min<std::int64_t>(ctx.cuda->multiprocessors, tiles)), threads, shared_bytes,
                map_x, map_weight, map_residual, arguments);
}

}  // namespace some::ops::cuda
