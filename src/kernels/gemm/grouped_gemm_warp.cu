// Grouped GEMM with mma.sync, for GPUs before Hopper: tiles of 128x128, 32 deep, four stages of asynchronous copies,
// and eight warps that compute 64x32 each. Rows of `a` are gathered while they are loaded. Two blocks fit on a
// multiprocessor.
//
// The narrow variant serves sizes that are multiples of 4 but not of 8, on every GPU: it moves 8 bytes at a time, and
// only stores.
#include "kernels/cuda/launch.cuh"
#include "kernels/gemm/grouped_gemm_kernel.cuh"
#include "kernels/gemm/low_rank_epilogue.cuh"

namespace some::cuda {
namespace {

constexpr int block_columns = 128;
constexpr int block_depth = 32;
constexpr int stages = 4;
constexpr int stage_bytes = (tile_rows + block_columns) * block_depth * 2;
constexpr int shared_bytes = stages * stage_bytes;

// Rows of 64 bytes, whose 16-byte pieces are permuted so that the eight rows of a matrix load are in different banks.
__device__ __forceinline__ std::uint32_t narrow_row(int row, int piece) {
  return row * 64 + ((piece ^ ((row >> 1) & 3)) << 4);
}
// Rows of 256 bytes, also permuted (a transposed b, with one row per step in depth).
__device__ __forceinline__ std::uint32_t wide_row(int row, int piece) { return row * 256 + ((piece ^ (row & 7)) << 4); }

// Copies eight elements of a row, of which the first `valid` (at most 8; a multiple of 4) exist and the others become
// zeros. The rows of a narrow operand start at multiples of 8 bytes.
template <bool kNarrow>
__device__ __forceinline__ void copy_piece(std::uint32_t target, const bf16* source, int valid, const bf16* base) {
  if constexpr (kNarrow) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = valid > 4 * half;
      asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(target + 8 * half),
                   "l"(exists ? source + 4 * half : base), "r"(exists ? 8 : 0)
                   : "memory");
    }
  } else {
    cp_async(target, valid > 0 ? source : base, valid > 0);
  }
}

// Stores 16 rows and 32 columns that one warp holds in the accumulator layout, 8 bytes at a time.
__device__ __forceinline__ void store_narrow(const float* sums, const GemmArguments& arguments, int row, int row_end,
                                             int column, int lane) {
  bf16* const result = static_cast<bf16*>(arguments.result);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = row + (lane >> 2) + 8 * half;
    std::uint32_t values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = pack(sums[i * 4 + 2 * half], sums[i * 4 + 2 * half + 1]);
    transpose_quad(values, lane);
    const int at = column + (lane & 3) * 8;
    bf16* const target = result + static_cast<std::int64_t>(j) * arguments.columns + at;
    if (j >= row_end) continue;
    if (at < arguments.columns) *reinterpret_cast<uint2*>(target) = make_uint2(values[0], values[1]);
    if (at + 4 < arguments.columns) *reinterpret_cast<uint2*>(target + 4) = make_uint2(values[2], values[3]);
  }
}

template <Epilogue kEpilogue, bool kTransposed, bool kNarrow = false>
__global__ void __launch_bounds__(256, 2) warp_kernel(const GemmArguments arguments) {
  if constexpr (kNarrow) wait_previous_kernel();
  const int tile_index = blockIdx.x / arguments.column_tiles;
  if (tile_index >= row_tile_count(arguments)) return;
  const Tile tile = row_tile(arguments, tile_index);
  const int first_column = (blockIdx.x % arguments.column_tiles) * block_columns;
  const int columns = arguments.columns, depth = arguments.depth;
  const bf16* const a = static_cast<const bf16*>(arguments.a);
  const bf16* const b = static_cast<const bf16*>(arguments.b) + static_cast<std::int64_t>(tile.group) * columns * depth;

  extern __shared__ __align__(128) unsigned char memory[];
  const std::uint32_t base = shared_address(memory);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;

  // In each stage a thread copies two pieces of a and two of b.
  const bf16* a_rows[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int j = min(tile.begin + thread / 4 + 64 * i, tile.end - 1);
    a_rows[i] = a + static_cast<std::int64_t>(source_row(arguments, j)) * depth;
  }
  const auto load_stage = [&](int step) {
    const std::uint32_t a_base = base + (step % stages) * stage_bytes, b_base = a_base + tile_rows * block_depth * 2;
    const int start = step * block_depth;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int piece = thread & 3, c = start + piece * 8;
      copy_piece<kNarrow>(a_base + narrow_row(thread / 4 + 64 * i, piece), a_rows[i] + c, depth - c, a);
      if constexpr (kTransposed) {
        const int row = thread / 16 + 16 * i, n = first_column + (thread & 15) * 8;
        copy_piece<kNarrow>(b_base + wide_row(row, thread & 15),
                            b + static_cast<std::int64_t>(start + row) * columns + n,
                            start + row < depth ? columns - n : 0, b);
      } else {
        const int n = first_column + thread / 4 + 64 * i;
        copy_piece<kNarrow>(b_base + narrow_row(thread / 4 + 64 * i, piece),
                            b + static_cast<std::int64_t>(n) * depth + c, n < columns ? depth - c : 0, b);
      }
    }
  };

  const int steps = (depth + block_depth - 1) / block_depth;
#pragma unroll
  for (int step = 0; step < stages - 1; ++step) {
    if (step < steps) load_stage(step);
    cp_async_commit();
  }

  const int warp_row = (warp & 1) * 64, warp_column = (warp >> 1) * 32;
  float sums[4][16] = {};
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<stages - 2>();
    __syncthreads();
    if (step + stages - 1 < steps) load_stage(step + stages - 1);
    cp_async_commit();
    const std::uint32_t a_base = base + (step % stages) * stage_bytes, b_base = a_base + tile_rows * block_depth * 2;
#pragma unroll
    for (int part = 0; part < block_depth / 16; ++part) {
      std::uint32_t left[4][4], right[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ldmatrix_x4(left[i], a_base + narrow_row(warp_row + i * 16 + (lane & 15), part * 2 + (lane >> 4)));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = warp_column + i * 16;
        if constexpr (kTransposed) {
          const int row = part * 16 + (lane & 15);
          ldmatrix_x4_transposed(right[i], b_base + wide_row(row, n / 8 + (lane >> 4)));
        } else {
          const int row = n + (lane & 7) + (lane >> 4) * 8;
          ldmatrix_x4(right[i], b_base + narrow_row(row, part * 2 + ((lane >> 3) & 1)));
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          multiply_add(&sums[i][n * 4], left[i], right[n / 2][(n & 1) * 2], right[n / 2][(n & 1) * 2 + 1]);
        }
      }
    }
  }
  cp_async_wait<0>();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first_column + warp_column, row = tile.begin + warp_row + i * 16;
    if constexpr (kNarrow) {
      store_narrow(sums[i], arguments, row, tile.end, column, lane);
    } else {
      if (arguments.rank > 0) add_low_rank<4, false>(sums[i], arguments, tile.group, row, tile.end, column, lane);
      epilogue_rows<kEpilogue, 4>(sums[i], arguments, row, tile.end, column, column / 32, lane);
    }
  }
}

template <Epilogue kEpilogue>
void launch(Context& ctx, const GroupedGemm& product) {
  const GemmArguments arguments = arguments_of(product, block_columns, 32);
  const std::int64_t tiles = tile_table_entries(product.rows, product.groups) - 1;
  const dim3 grid(static_cast<unsigned>(tiles * arguments.column_tiles));
  const auto kernel = product.b_transposed ? warp_kernel<kEpilogue, true> : warp_kernel<kEpilogue, false>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  kernel<<<grid, 256, shared_bytes, ctx.cuda->stream>>>(arguments);
  SOME_CUDA_LAUNCHED();
}

}  // namespace

void launch_narrow(Context& ctx, const GroupedGemm& product) {
  const GemmArguments arguments = arguments_of(product, block_columns, 32);
  const std::int64_t tiles = tile_table_entries(product.rows, product.groups) - 1;
  const dim3 grid(static_cast<unsigned>(tiles * arguments.column_tiles));
  const auto kernel =
      product.b_transposed ? warp_kernel<Epilogue::store, true, true> : warp_kernel<Epilogue::store, false, true>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  launch_dependent(ctx, kernel, grid, 256, shared_bytes, arguments);
}

void launch_warp(Context& ctx, const GroupedGemm& product) {
  switch (product.finish) {
    case Epilogue::store: return launch<Epilogue::store>(ctx, product);
    case Epilogue::gelu: return launch<Epilogue::gelu>(ctx, product);
    case Epilogue::gelu_backward: return launch<Epilogue::gelu_backward>(ctx, product);
    case Epilogue::gelu_slope: return launch<Epilogue::gelu_slope>(ctx, product);
    case Epilogue::slope_backward: return launch<Epilogue::slope_backward>(ctx, product);
  }
}

}  // namespace some::cuda
