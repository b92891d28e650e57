// Grouped GEMM in plain fused multiply-adds, for any size, in f32 or bf16. Used for verification and for sizes that the
// tensor cores cannot handle. A tile of 128x64, computed by 256 threads, reads (128 + 64) * 16 numbers for every 128 *
// 64 * 16 multiply-adds.
#include "kernels/gemm/grouped_gemm_kernel.cuh"

namespace some::cuda {
namespace {

constexpr int block_columns = 64;
constexpr int block_depth = 16;

// Adds a low-rank correction to four columns of row j.
template <typename T>
__device__ void add_low_rank(float (&sums)[4], const GemmArguments& arguments, int group, int j, int column) {
  const int rank = arguments.rank, columns = arguments.columns;
  const T* const low = static_cast<const T*>(arguments.low) + static_cast<std::int64_t>(j) * rank;
  const T* const factor = static_cast<const T*>(arguments.factor) + static_cast<std::int64_t>(group) * columns * rank;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    if (column + n >= columns) break;
    for (int r = 0; r < rank; ++r) {
      const std::int64_t at = arguments.factor_transposed ? static_cast<std::int64_t>(r) * columns + column + n
                                                          : static_cast<std::int64_t>(column + n) * rank + r;
      sums[n] = fmaf(to_f32(low[r]), to_f32(factor[at]), sums[n]);
    }
  }
}

template <typename T, bool kTransposed>
__global__ void __launch_bounds__(256) plain_kernel(GemmArguments arguments, Epilogue finish) {
  const int tile_index = blockIdx.x / arguments.column_tiles;
  if (tile_index >= row_tile_count(arguments)) return;
  const int column_tile = blockIdx.x % arguments.column_tiles;
  const Tile tile = row_tile(arguments, tile_index);
  const int first_column = column_tile * block_columns;
  const int columns = arguments.columns, depth = arguments.depth;
  const T* const a = static_cast<const T*>(arguments.a);
  const T* const b = static_cast<const T*>(arguments.b) + static_cast<std::int64_t>(tile.group) * columns * depth;

  __shared__ float a_tile[block_depth][tile_rows + 4];
  __shared__ float b_tile[block_depth][block_columns + 4];
  __shared__ int sources[tile_rows];
  const int thread = threadIdx.x;
  if (thread < tile_rows) sources[thread] = source_row(arguments, min(tile.begin + thread, tile.end - 1));
  __syncthreads();

  const int thread_row = thread / 16, thread_column = thread % 16;
  float sums[8][4] = {};
  for (int start = 0; start < depth; start += block_depth) {
#pragma unroll
    for (int i = 0; i < tile_rows * block_depth / 256; ++i) {
      const int index = thread + i * 256, row = index / block_depth, c = index % block_depth;
      const bool valid = start + c < depth;
      a_tile[c][row] = valid ? to_f32(a[static_cast<std::int64_t>(sources[row]) * depth + start + c]) : 0.f;
    }
#pragma unroll
    for (int i = 0; i < block_columns * block_depth / 256; ++i) {
      const int index = thread + i * 256;
      const int n = kTransposed ? index % block_columns : index / block_depth;
      const int c = kTransposed ? index / block_columns : index % block_depth;
      const bool valid = first_column + n < columns && start + c < depth;
      const std::int64_t at = kTransposed ? static_cast<std::int64_t>(start + c) * columns + first_column + n
                                          : static_cast<std::int64_t>(first_column + n) * depth + start + c;
      b_tile[c][n] = valid ? to_f32(b[at]) : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < block_depth; ++c) {
      float left[8], right[4];
#pragma unroll
      for (int i = 0; i < 8; ++i) left[i] = a_tile[c][thread_row * 8 + i];
#pragma unroll
      for (int i = 0; i < 4; ++i) right[i] = b_tile[c][thread_column * 4 + i];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int n = 0; n < 4; ++n) sums[i][n] = fmaf(left[i], right[n], sums[i][n]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int j = tile.begin + thread_row * 8 + i;
    const bool in_group = j < tile.end;
    float gate = 1.f, row_sum = 0.f;
    if (in_group && arguments.rank > 0)
      add_low_rank<T>(sums[i], arguments, tile.group, j, first_column + thread_column * 4);
    if (in_group && reads_result(finish) && arguments.gates != nullptr) gate = arguments.gates[arguments.order[j]];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int column = first_column + thread_column * 4 + n;
      if (!in_group || column >= columns) continue;
      const std::int64_t at = static_cast<std::int64_t>(j) * columns + column;
      T* const result = static_cast<T*>(arguments.result);
      if (finish == Epilogue::store) {
        result[at] = from_f32<T>(sums[i][n]);
      } else if (finish == Epilogue::gelu) {
        const float pre = sums[i][n];
        result[at] = from_f32<T>(pre);
        static_cast<T*>(arguments.activated)[at] = from_f32<T>(gelu_of<T>(pre).value);
      } else if (finish == Epilogue::gelu_slope) {
        const Gelu gelu = gelu_of<T>(sums[i][n]);
        result[at] = from_f32<T>(gelu.derivative);
        static_cast<T*>(arguments.activated)[at] = from_f32<T>(gelu.value);
      } else if (finish == Epilogue::slope_backward) {
        result[at] = from_f32<T>(gate * sums[i][n] * to_f32(result[at]));
      } else {
        const Gelu gelu = gelu_of<T>(to_f32(result[at]));
        row_sum = fmaf(sums[i][n], gelu.value, row_sum);
        result[at] = from_f32<T>(gate * sums[i][n] * gelu.derivative);
      }
    }
    if (finish == Epilogue::gelu_backward && arguments.row_sums != nullptr) {
#pragma unroll
      for (int step = 8; step > 0; step /= 2) row_sum += __shfl_xor_sync(0xffffffffu, row_sum, step);
      if (thread_column == 0 && in_group) {
        arguments.row_sums[static_cast<std::int64_t>(j) * arguments.slots + column_tile] = row_sum;
      }
    }
  }
}

}  // namespace

void launch_plain(Context& ctx, const GroupedGemm& product) {
  const GemmArguments arguments = arguments_of(product, block_columns, block_columns);
  const std::int64_t tiles = tile_table_entries(product.rows, product.groups) - 1;
  const dim3 grid(static_cast<unsigned>(tiles * arguments.column_tiles));
  const auto launch = [&](auto kernel) { kernel<<<grid, 256, 0, ctx.cuda->stream>>>(arguments, product.finish); };
  if (product.type == DType::f32) {
    launch(product.b_transposed ? plain_kernel<float, true> : plain_kernel<float, false>);
  } else {
    launch(product.b_transposed ? plain_kernel<bf16, true> : plain_kernel<bf16, false>);
  }
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::cuda
