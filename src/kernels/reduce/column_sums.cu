// Memory traffic: the matrix is read once, and written once if a result replaces it; the partial sums add a few
// percent.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/reduce/column_sums.h"
#include "kernels/reduce/deferred_sums.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

// WIDTH elements as they are stored: 16 bytes, or one element.
template <typename T, int WIDTH>
using Word = std::conditional_t<WIDTH == 1, T, uint4>;
template <typename T, int WIDTH>
__device__ __forceinline__ Word<T, WIDTH> load_word(const T* source) {
  return *reinterpret_cast<const Word<T, WIDTH>*>(source);
}
template <typename T, int WIDTH>
__device__ __forceinline__ void unpack(const Word<T, WIDTH>& word, float (&values)[WIDTH]) {
  if constexpr (WIDTH == 1) {
    values[0] = to_f32(word);
  } else {
    unpack16<T>(word, values);
  }
}

// Sources of the numbers to sum. `load` fetches the data of element `at`; `finish` computes the numbers to add and
// writes any other results. They are separate so that the loads of several rows are in flight before anything is
// written.
template <typename T, int WIDTH_>
struct Plain {
  static constexpr int WIDTH = WIDTH_, ahead = 8;
  const T* x;
  using Loaded = Word<T, WIDTH>;
  __device__ Loaded load(std::int64_t at) const { return load_word<T, WIDTH>(x + at); }
  __device__ void finish(std::int64_t, const Loaded& loaded, float (&values)[WIDTH]) const {
    unpack<T, WIDTH>(loaded, values);
  }
};

template <typename T, int WIDTH_>
struct Copied {
  static constexpr int WIDTH = WIDTH_, ahead = 8;
  const T* x;
  bf16* copy;
  using Loaded = Word<T, WIDTH>;
  __device__ Loaded load(std::int64_t at) const { return load_word<T, WIDTH>(x + at); }
  __device__ void finish(std::int64_t at, const Loaded& loaded, float (&values)[WIDTH]) const {
    unpack<T, WIDTH>(loaded, values);
    store_elements<WIDTH>(copy + at, values);
  }
};

template <typename T, int WIDTH_>
struct GeluBackward {
  static constexpr int WIDTH = WIDTH_, ahead = 4;
  const T* pre;
  T* dy;
  struct Loaded {
    Word<T, WIDTH> pre, dy;
  };
  __device__ Loaded load(std::int64_t at) const {
    return {load_word<T, WIDTH>(pre + at), load_word<T, WIDTH>(dy + at)};
  }
  __device__ void finish(std::int64_t at, const Loaded& loaded, float (&values)[WIDTH]) const {
    float x[WIDTH];
    unpack<T, WIDTH>(loaded.pre, x);
    unpack<T, WIDTH>(loaded.dy, values);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) values[i] *= gelu_of<T>(x[i]).derivative;
    store_elements<WIDTH>(dy + at, values);
  }
};

// Computes partial sums: block (x, y) sums the rows of chunk y in the 32*WIDTH columns starting at x*32*WIDTH; each
// warp takes every eighth row. partials: [chunks, columns], or null if only what `finish` writes is needed.
template <typename Source>
__global__ void __launch_bounds__(threads) column_sums_kernel(Source source, std::int64_t rows, std::int64_t columns,
                                                              std::int64_t rows_per_chunk, float* partials) {
  wait_previous_kernel();
  constexpr int WIDTH = Source::WIDTH, ahead = Source::ahead, block_columns = warp_size * WIDTH;
  __shared__ float shared[warps][block_columns + 1];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * block_columns;
  const std::int64_t column = first_column + lane * WIDTH;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_per_chunk;
  const std::int64_t end = min(rows, begin + rows_per_chunk);
  float sum[WIDTH] = {};
  if (column < columns) {
    for (std::int64_t row = begin + warp; row < end; row += warps * ahead) {
      typename Source::Loaded loaded[ahead];
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        if (row + j * warps < end) loaded[j] = source.load((row + j * warps) * columns + column);
      }
#pragma unroll
      for (int j = 0; j < ahead; ++j) {
        if (row + j * warps >= end) break;
        float values[WIDTH];
        source.finish((row + j * warps) * columns + column, loaded[j], values);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[i] += values[i];
      }
    }
  }
  if (partials == nullptr) return;
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) shared[warp][lane * WIDTH + i] = sum[i];
  __syncthreads();
  const int here = static_cast<int>(min(static_cast<std::int64_t>(block_columns), columns - first_column));
  for (int c = threadIdx.x; c < here; c += threads) {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += shared[w][c];
    partials[blockIdx.y * columns + first_column + c] = total;
  }
}

// The second stage of one sum, computed by `blocks` blocks of 32 columns each.
struct Sum {
  const float* partials;
  float *target, *second;
  int chunks, columns, split, blocks;
};
template <int kMost>
struct Sums {
  Sum sums[kMost];
};

template <int kMost>
__global__ void __launch_bounds__(threads) add_partials_kernel(const __grid_constant__ Sums<kMost> all) {
  wait_previous_kernel();
  int block = blockIdx.x, index = 0;
  if constexpr (kMost > 1) {
    while (block >= all.sums[index].blocks) block -= all.sums[index++].blocks;
  }
  const Sum& own = all.sums[index];
  const float* const partials = own.partials;
  const int chunks = own.chunks;
  const std::int64_t columns = own.columns;
  __shared__ float shared[warps][warp_size];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t column = static_cast<std::int64_t>(block) * warp_size + lane;
  float sum = 0.0f;
  if (columns == 1) {  // a single column: the lanes share its chunks
    for (int chunk = threadIdx.x; chunk < chunks; chunk += threads) sum += partials[chunk];
    sum = warp_sum(sum);
  } else if (column < columns) {
    constexpr int ahead = 16;  // loads in flight at a time
    for (int first = warp; first < chunks; first += ahead * warps) {
      float values[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const int chunk = first + i * warps;
        values[i] = chunk < chunks ? partials[chunk * columns + column] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if (first + i * warps < chunks) sum += values[i];
      }
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < warps; ++w) total += shared[w][lane];
  if (column < own.split) {
    if (own.target != nullptr) own.target[column] += total;
  } else if (own.second != nullptr) {
    own.second[column - own.split] += total;
  }
}

template <int WIDTH>
__global__ void __launch_bounds__(threads) convert_to_bf16_kernel(const float* x, bf16* y, std::int64_t vectors) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= vectors) return;
  float values[WIDTH];
  load_elements<WIDTH>(x + i * WIDTH, values);
  store_elements<WIDTH>(y + i * WIDTH, values);
}

}  // namespace

// Sums whose second stage is deferred, so that many share one launch. The buffer for their partial sums is small enough
// to stay in L2; when it is full, the second stages are launched.
struct DeferredSums {
  static constexpr int most = 96;
  static constexpr std::int64_t room_floats = std::int64_t{4} << 20;
  bool deferring = false;
  float* room;  // of the device's workspace
  std::int64_t used = 0;
  Sums<most> waiting;
  int count = 0, blocks = 0;

  explicit DeferredSums(float* workspace) : room(workspace) {}
  bool owns(const float* partials) const { return partials >= room && partials < room + room_floats; }
  bool adds_to(const float* target) const {
    if (target == nullptr) return false;
    for (int i = 0; i < count; ++i) {
      if (waiting.sums[i].target == target || waiting.sums[i].second == target) return true;
    }
    return false;
  }
  void forget() { used = count = blocks = 0; }
  void launch(Context& ctx) {
    if (count > 0) {
      launch_dependent(ctx, add_partials_kernel<most>, static_cast<unsigned>(blocks), threads, 0, waiting);
    }
    forget();
  }
};

namespace {

// Returns the sums that the context defers, or null.
DeferredSums* deferred_sums(const Context& ctx) {
  DeferredSums* const sums = ctx.deferred != nullptr ? ctx.deferred->sums.get() : nullptr;
  return sums != nullptr && sums->deferring ? sums : nullptr;
}

}  // namespace

float* partial_sums_buffer(Context& ctx, std::int64_t count) {
  DeferredSums* const sums = deferred_sums(ctx);
  const std::int64_t padded = (count + 3) / 4 * 4;
  if (sums == nullptr || padded > DeferredSums::room_floats) return floats(ctx.scratch({count}, DType::f32));
  if (sums->used + padded > DeferredSums::room_floats) sums->launch(ctx);
  float* const room = sums->room + sums->used;
  sums->used += padded;
  return room;
}

void add_partials(Context& ctx, const float* partials, int chunks, std::int64_t columns, float* target,
                  std::int64_t split, float* second) {
  if (columns == 0) return;
  const Sum sum{partials,
                target,
                second,
                chunks,
                static_cast<int>(columns),
                static_cast<int>(split < 0 ? columns : split),
                static_cast<int>(grid_for(columns, warp_size))};
  DeferredSums* const sums = deferred_sums(ctx);
  if (sums == nullptr || !sums->owns(partials)) {
    launch_dependent(ctx, add_partials_kernel<1>, static_cast<unsigned>(sum.blocks), threads, 0, Sums<1>{{sum}});
    return;
  }
  // Two sums with the same target must not run concurrently.
  const bool twice = sums->adds_to(target) || sums->adds_to(second);
  if (twice) sums->launch(ctx);
  sums->waiting.sums[sums->count++] = sum;
  sums->blocks += sum.blocks;
  if (twice || sums->count == DeferredSums::most) sums->launch(ctx);
}

void defer_sums(Context& ctx) {
  std::shared_ptr<DeferredSums>& sums = ctx.deferred->sums;
  if (sums == nullptr) {
    CudaState& state = *ctx.cuda;
    if (state.sums_workspace == nullptr) {
      if (some::cuda::capturing(state)) return;  // no memory can be allocated during capture: nothing is deferred
      state.sums_workspace_bytes = DeferredSums::room_floats * sizeof(float);
      state.sums_workspace = some::cuda::allocate(state, state.sums_workspace_bytes);
    }
    sums = std::make_shared<DeferredSums>(static_cast<float*>(state.sums_workspace));
  }
  sums->deferring = true;
}

void finish_sums(Context& ctx) {
  DeferredSums* const sums = deferred_sums(ctx);
  if (sums == nullptr) return;
  sums->launch(ctx);
  sums->deferring = false;
}

void discard_sums(Context& ctx) {
  DeferredSums* const sums = deferred_sums(ctx);
  if (sums == nullptr) return;
  sums->forget();
  sums->deferring = false;
}

namespace {

// Launches the sums. If target is null, only what the source writes is computed.
template <typename Source>
void launch_sums(Context& ctx, const Source& source, std::int64_t rows, std::int64_t columns, float* target,
                 std::int64_t wanted = -1) {
  const int column_blocks = grid_for(columns, warp_size * Source::WIDTH);
  // About four blocks per multiprocessor on the largest GPUs, but at least 64 rows per block.
  const std::int64_t chunks = std::clamp<std::int64_t>(528 / column_blocks, 1, (rows + 63) / 64);
  const std::int64_t rows_per_chunk = (rows + chunks - 1) / chunks;
  const int used = grid_for(rows, rows_per_chunk);
  const ArenaScope scope(*ctx.arena);
  float* partials = target != nullptr ? partial_sums_buffer(ctx, used * columns) : nullptr;
  launch_dependent(ctx, column_sums_kernel<Source>, dim3(column_blocks, used), threads, 0, source, rows, columns,
                   rows_per_chunk, partials);
  if (target != nullptr) add_partials(ctx, partials, used, columns, target, wanted);
}

}  // namespace

void add_column_sums(Context& ctx, const void* x, DType type, std::int64_t rows, std::int64_t columns, float* target,
                     bf16* copy, std::int64_t wanted) {
  if (rows == 0 || columns == 0) return;
  with_real_type(type, "a sum over rows", [&](auto tag) {
    using T = decltype(tag);
    constexpr int width = vector_width<T>;
    const T* source = static_cast<const T*>(x);
    const auto launch = [&](auto of_width) {
      constexpr int W = decltype(of_width)::value;
      copy != nullptr ? launch_sums(ctx, Copied<T, W>{source, copy}, rows, columns, target, wanted)
                      : launch_sums(ctx, Plain<T, W>{source}, rows, columns, target, wanted);
    };
    if (columns % 8 == 0 && aligned16(x) && aligned16(copy))
      launch(std::integral_constant<int, width>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
}

void gelu_backward_with_sums(Context& ctx, const void* pre, void* dy, DType type, std::int64_t rows,
                             std::int64_t columns, float* target) {
  if (rows == 0 || columns == 0) return;
  with_real_type(type, "GELU", [&](auto tag) {
    using T = decltype(tag);
    constexpr int width = vector_width<T>;
    const T* before = static_cast<const T*>(pre);
    T* gradient = static_cast<T*>(dy);
    if (columns % 8 == 0 && all_aligned16(before, gradient))
      launch_sums(ctx, GeluBackward<T, width>{before, gradient}, rows, columns, target);
    else
      launch_sums(ctx, GeluBackward<T, 1>{before, gradient}, rows, columns, target);
  });
}

void convert_to_bf16(Context& ctx, const float* x, bf16* y, std::int64_t count) {
  if (count == 0) return;
  if (count % 8 == 0 && all_aligned16(x, y)) {
    convert_to_bf16_kernel<8><<<grid_for(count / 8, threads), threads, 0, ctx.cuda->stream>>>(x, y, count / 8);
  } else {
    convert_to_bf16_kernel<1><<<grid_for(count, threads), threads, 0, ctx.cuda->stream>>>(x, y, count);
  }
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::cuda
