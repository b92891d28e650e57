// The frozen library on the GPU, with the same bits as on the CPU. Elements are generated where they are needed and
// written once. This file is compiled without contracting products into sums (CMakeLists.txt).
#include <algorithm>

#include "experts/library.h"
#include "experts/methods.h"
#include "experts/orthogonal_cuda.h"
#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {
namespace {

constexpr int threads = 256;
constexpr int group = 4;  // elements per thread: one random block for the default library, two for the others

// Adds the sum over the block to *hash; for integers any order gives the same result.
__device__ void add_hash(unsigned long long mine, unsigned long long* hash) {
  __shared__ unsigned long long shared[threads / warp_size];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_xor_sync(full_warp, mine, offset);
  if (threadIdx.x % warp_size == 0) shared[threadIdx.x / warp_size] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  unsigned long long total = 0;
  for (const unsigned long long part : shared) total += part;
  atomicAdd(hash, total);
}

struct DefaultElement {
  RandomStream stream;
  float bound;
  __device__ float operator()(std::uint64_t index) const { return default_element(stream, index, bound); }
};

// The last dropped entry of a column, in the order of (priority, row).
struct Threshold {
  std::uint64_t priority;
  std::int32_t row;
};

struct SparseElement {
  RandomStream stream, drops;
  const Threshold* thresholds;  // [experts, cols]
  std::uint64_t first_expert, rows, cols;
  __device__ float operator()(std::uint64_t index) const {
    const std::uint64_t column = index % cols, row = index / cols % rows, expert = index / cols / rows;
    const Threshold last = thresholds[(expert - first_expert) * cols + column];
    const std::uint64_t priority = drop_priority(drops, index);
    if (priority < last.priority || (priority == last.priority && static_cast<std::int32_t>(row) <= last.row))
      return 0.0f;
    return sparse_element(stream, index);
  }
};

// Fills `out` with the elements [begin, end) of the stream, so that out[0] is element `begin`, and adds their hash.
template <typename T, typename Element>
__global__ void __launch_bounds__(threads) fill_kernel(LibraryMatrix matrix, Element element, std::uint64_t begin,
                                                       std::uint64_t end, T* out, unsigned long long* hash) {
  unsigned long long mine = 0;
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * threads * group;
  const std::uint64_t first = begin / group * group;
  for (std::uint64_t base = first + (static_cast<std::uint64_t>(blockIdx.x) * threads + threadIdx.x) * group;
       base < end; base += step) {
    float values[group];
#pragma unroll
    for (int j = 0; j < group; ++j) {
      // With `base | j` instead of `base + j`, the compiler sees that the four share a random block and generates it
      // once.
      const std::uint64_t index = base | static_cast<std::uint64_t>(j);
      const bool inside = index >= begin && index < end;
      values[j] = inside ? element(index) : 0.0f;
      if (inside) mine += hash_element(matrix, index, values[j]);
    }
    if (begin == first && base + group <= end) {
      store_elements<group>(out + (base - begin), values);
    } else {
      for (int j = 0; j < group; ++j) {
        if (base + j >= begin && base + j < end) out[base + j - begin] = from_f32<T>(values[j]);
      }
    }
  }
  add_hash(mine, hash);
}

// Finds the threshold of one column; block (column, expert) bisects the priority until exactly `dropped` entries are at
// or below it.
__global__ void __launch_bounds__(threads)
    threshold_kernel(RandomStream drops, std::uint64_t first_expert, int rows, int cols, Threshold* thresholds) {
  extern __shared__ std::uint64_t priorities[];
  __shared__ double shared[warp_size];
  const std::uint64_t expert = first_expert + blockIdx.y;
  const int column = blockIdx.x, dropped = dropped_in_column(rows);
  const std::uint64_t first = expert * rows * cols + column;
  for (int row = threadIdx.x; row < rows; row += threads)
    priorities[row] = drop_priority(drops, first + static_cast<std::uint64_t>(row) * cols);
  __syncthreads();
  const auto at_or_below = [&](std::uint64_t limit) {
    int count = 0;
    for (int row = threadIdx.x; row < rows; row += threads) count += priorities[row] <= limit ? 1 : 0;
    return static_cast<int>(block_sum(static_cast<double>(count), shared));
  };
  std::uint64_t low = 0, high = ~std::uint64_t{0};  // the threshold lies in [low, high]
  int count = 0;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    count = at_or_below(middle);
    if (count == dropped) {
      low = high = middle;
    } else if (count < dropped) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  count = at_or_below(low);
  if (threadIdx.x != 0) return;
  Threshold last{low, rows};
  if (count > dropped) {  // if priorities are equal, only the lowest rows are dropped
    int surplus = count - dropped;
    for (last.row = rows - 1; surplus > 0; --last.row) surplus -= priorities[last.row] == low ? 1 : 0;
  }
  thresholds[(expert - first_expert) * cols + column] = last;
}

struct Job {  // one matrix of the experts of a layer
  MatrixDraw draw;
  Block experts;
  const Tensor& weights;
  unsigned long long* hash;  // on the device; added to
};

template <typename Element>
void fill(Context& ctx, const Job& job, const Element& element) {
  const std::uint64_t count = static_cast<std::uint64_t>(job.weights.elements()),
                      begin = static_cast<std::uint64_t>(job.experts.begin) * job.draw.rows * job.draw.cols;
  const int blocks = static_cast<int>(
      std::min<std::uint64_t>((count + threads * group - 1) / (threads * group), 16 * ctx.cuda->multiprocessors));
  with_real_type(job.weights.dtype(), "an expert library", [&](auto tag) {
    fill_kernel<<<blocks, threads, 0, ctx.cuda->stream>>>(job.draw.matrix, element, begin, begin + count,
                                                          elements_of<decltype(tag)>(job.weights), job.hash);
    SOME_CUDA_LAUNCHED();
  });
}

void draw_default(Context& ctx, const Job& job) {
  fill(ctx, job, DefaultElement{job.draw.stream, default_bound(job.draw.cols)});
}

void draw_orthogonal(Context& ctx, const Job& job) {
  fill_orthogonal(ctx, job.draw.matrix, job.draw.stream, job.experts, job.draw.rows, job.draw.cols, job.weights,
                  job.hash);
}

void draw_sparse(Context& ctx, const Job& job) {
  const int rows = job.draw.rows, cols = job.draw.cols;
  const std::size_t shared = sizeof(std::uint64_t) * rows;
  if (shared > (96 << 10))
    failed(Code::size_unsupported, "a sparse library on the GPU may have at most {} rows per matrix (got {})",
           (96 << 10) / 8, rows);
  const Tensor memory = Tensor::empty({static_cast<std::int64_t>(sizeof(Threshold) / 8) * job.experts.count() * cols},
                                      DType::i64, ctx.device);
  Threshold* thresholds = static_cast<Threshold*>(memory.raw());
  SOME_CUDA_CHECK(cudaFuncSetAttribute(threshold_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 << 10));
  const auto first = static_cast<std::uint64_t>(job.experts.begin);
  threshold_kernel<<<dim3(cols, static_cast<unsigned>(job.experts.count())), threads, shared, ctx.cuda->stream>>>(
      job.draw.drops, first, rows, cols, thresholds);
  SOME_CUDA_LAUNCHED();
  fill(ctx, job,
       SparseElement{job.draw.stream, job.draw.drops, thresholds, first, static_cast<std::uint64_t>(rows),
                     static_cast<std::uint64_t>(cols)});
}

struct Method {
  const char* name;
  void (*draw)(Context& ctx, const Job& job);
};
constexpr Method methods[] = {{"default", draw_default}, {"orthogonal", draw_orthogonal}, {"sparse", draw_sparse}};

void fill_matrix(Context& ctx, const LibrarySpec& spec, int layer, LibraryMatrix matrix, int rows, int cols,
                 const Tensor& weights, unsigned long long* hash) {
  const MatrixDraw draw{matrix, library_stream(spec.seed, layer, matrix), library_drop_stream(spec.seed, layer, matrix),
                        rows, cols};
  for (const Method& method : methods) {
    if (spec.method == method.name) return method.draw(ctx, {draw, spec.wanted(), weights, hash});
  }
  failed(Code::library_invalid, "{} = \"{}\" cannot be generated on a GPU; use the CPU", "some.init", spec.method);
}

}  // namespace

LayerLibrary make_layer_library(Context& ctx, const LibrarySpec& spec, int layer) {
  check_library(spec);
  LayerLibrary library;
  const Tensor hash = Tensor::zeros({1}, DType::i64, ctx.device);
  auto* sum = reinterpret_cast<unsigned long long*>(longs(hash));
  const std::int64_t experts = spec.wanted().count();
  library.weights.w1 = Tensor::empty({experts, spec.d_ffn, spec.d_model}, ctx.compute, ctx.device);
  fill_matrix(ctx, spec, layer, LibraryMatrix::w1, spec.d_ffn, spec.d_model, library.weights.w1, sum);
  if (spec.has_w2) {
    library.weights.w2 = Tensor::empty({experts, spec.d_model, spec.d_ffn}, ctx.compute, ctx.device);
    fill_matrix(ctx, spec, layer, LibraryMatrix::w2, spec.d_model, spec.d_ffn, library.weights.w2, sum);
  }
  library.hash = static_cast<std::uint64_t>(hash.to(Device::cpu).data<std::int64_t>()[0]);
  return library;
}

}  // namespace some::cuda
