// Operations on whole tensors; each reads and writes its elements once.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "ops/elementwise.h"

namespace some::cuda {
namespace {

constexpr int threads = 256;

// Computes target[i] = function(i); each thread computes one element or, if everything is aligned, a group of WIDTH
// elements.
template <typename Function>
__global__ void __launch_bounds__(threads) for_each_kernel(std::int64_t count, Function function) {
  wait_previous_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) function(i);
}

template <typename Function>
void for_each(Context& ctx, std::int64_t count, Function function) {
  if (count == 0) return;
  launch_dependent(ctx, for_each_kernel<Function>, grid_for(count, threads), threads, 0, count, function);
}

template <typename From, typename To, int WIDTH, bool ADD>
struct Transfer {
  const From* source;
  To* target;
  __device__ void operator()(std::int64_t i) const {
    float values[WIDTH];
    load_elements<WIDTH>(source + i * WIDTH, values);
    if constexpr (ADD) {
      float old[WIDTH];
      load_elements<WIDTH>(target + i * WIDTH, old);
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) values[j] += old[j];
    }
    store_elements<WIDTH>(target + i * WIDTH, values);
  }
};

template <bool ADD>
void transfer(Context& ctx, const Tensor& x, Tensor& y, const char* what) {
  const std::int64_t count = x.elements();
  if (y.elements() != count) failed(Code::shape_mismatch, "{}: {} elements into {}", what, count, y.elements());
  with_real_type(x.dtype(), what, [&](auto from) {
    with_real_type(y.dtype(), what, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* source = elements_of<From>(x);
      To* target = elements_of<To>(y);
      if (count % 8 == 0 && all_aligned16(source, target)) {
        for_each(ctx, count / 8, Transfer<From, To, 8, ADD>{source, target});
      } else {
        for_each(ctx, count, Transfer<From, To, 1, ADD>{source, target});
      }
    });
  });
}

template <typename T>
struct AddWhole {
  const T* source;
  T* target;
  __device__ void operator()(std::int64_t i) const { target[i] += source[i]; }
};

template <typename T>
struct Fill {
  T value;
  T* target;
  __device__ void operator()(std::int64_t i) const { target[i] = value; }
};

constexpr std::size_t max_values = 8;

struct FillEach {
  float values[max_values];
  float* target;
  __device__ void operator()(std::int64_t i) const { target[i] = values[i]; }
};

struct Exponential {
  const float* x;
  float* y;
  __device__ void operator()(std::int64_t i) const { y[i] = expf(x[i]); }
};

struct MultiplyAdd {
  const float *a, *b;
  float* y;
  __device__ void operator()(std::int64_t i) const { y[i] += a[i] * b[i]; }
};

constexpr int max_counts = 16;  // layers per launch

struct AddCounts {
  const std::int32_t* counts[max_counts];
  long long* totals[max_counts];
  int experts, columns;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t layer = i / experts, e = i % experts;
    long long sum = 0;
    for (int j = 0; j < columns; ++j) sum += counts[layer][e * columns + j];
    totals[layer][e] += sum;
  }
};

constexpr int sum_threads = 512;
constexpr int max_sum_blocks = 256;

__global__ void __launch_bounds__(sum_threads) sum_kernel(const float* x, std::int64_t count, double* partials) {
  __shared__ double shared[warp_size];
  double sum = 0.0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * sum_threads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * sum_threads)
    sum += x[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(max_sum_blocks) sum_partials_kernel(const double* partials, int count, float* out) {
  __shared__ double shared[warp_size];
  const double sum = block_sum(threadIdx.x < count ? partials[threadIdx.x] : 0.0, shared);
  if (threadIdx.x == 0) out[0] = static_cast<float>(sum);
}

// Gathers rows as whole 16-byte words, whatever the element type.
template <typename Word>
__global__ void __launch_bounds__(threads)
    gather_kernel(const Word* x, const std::int32_t* rows, Word* y, std::int64_t count, std::int64_t words) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count * words) return;
  const std::int32_t row = rows[i / words];
  y[i] = row < 0 ? Word{} : x[row * words + i % words];
}

}  // namespace

void add_into(Context& ctx, const Tensor& x, Tensor& y) {
  if (x.dtype() != DType::i32 && x.dtype() != DType::i64) return transfer<true>(ctx, x, y, "add_into");
  if (y.elements() != x.elements())
    failed(Code::shape_mismatch, "add_into: {} elements into {}", x.elements(), y.elements());
  if (x.dtype() == DType::i32) return for_each(ctx, x.elements(), AddWhole<std::int32_t>{ints(x), ints(y)});
  for_each(ctx, x.elements(), AddWhole<long long>{longs(x), longs(y)});
}
void convert(Context& ctx, const Tensor& x, Tensor& y) { transfer<false>(ctx, x, y, "convert"); }

void fill(Context& ctx, double value, Tensor& x) {
  // Zero has the same bits in every type.
  if (value == 0.0 && !std::signbit(value)) {
    if (x.bytes() > 0) SOME_CUDA_CHECK(cudaMemsetAsync(x.raw(), 0, x.bytes(), ctx.cuda->stream));
    return;
  }
  switch (x.dtype()) {
    case DType::f32: return for_each(ctx, x.elements(), Fill<float>{static_cast<float>(value), floats(x)});
    case DType::bf16:
      return for_each(ctx, x.elements(),
                      Fill<bf16>{__float2bfloat16_rn(static_cast<float>(value)), elements_of<bf16>(x)});
    case DType::i32: return for_each(ctx, x.elements(), Fill<std::int32_t>{static_cast<std::int32_t>(value), ints(x)});
    case DType::i64: return for_each(ctx, x.elements(), Fill<long long>{static_cast<long long>(value), longs(x)});
    case DType::f64: break;
  }
  failed(Code::type_unsupported, "fill does not support {} on the GPU", name_of(x.dtype()));
}

void fill_each(Context& ctx, std::span<const double> values, Tensor& x) {
  if (values.size() > max_values || static_cast<std::int64_t>(values.size()) != x.elements())
    failed(Code::size_unsupported, "fill_each: {} values for {} elements, at most {}", values.size(), x.elements(),
           max_values);
  FillEach each{{}, floats(x)};
  for (std::size_t i = 0; i < values.size(); ++i) each.values[i] = static_cast<float>(values[i]);
  for_each(ctx, x.elements(), each);
}

void sum_all(Context& ctx, const Tensor& x, Tensor& out) {
  const std::int64_t count = x.elements();
  const ArenaScope scope(*ctx.arena);
  const int blocks =
      static_cast<int>(std::clamp<std::int64_t>((count + 8 * sum_threads - 1) / (8 * sum_threads), 1, max_sum_blocks));
  double* partials = ctx.scratch({blocks}, DType::f64).data<double>();
  sum_kernel<<<blocks, sum_threads, 0, ctx.cuda->stream>>>(floats(x), count, partials);
  SOME_CUDA_LAUNCHED();
  sum_partials_kernel<<<1, max_sum_blocks, 0, ctx.cuda->stream>>>(partials, blocks, floats(out));
  SOME_CUDA_LAUNCHED();
}

void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, Tensor& y) {
  const std::int64_t count = rows.elements();
  if (count == 0 || x.elements() == 0) return;
  const std::size_t row_bytes = x.bytes() / static_cast<std::size_t>(x.dim(0));
  const auto launch = [&](auto word) {
    using Word = decltype(word);
    const std::int64_t words = static_cast<std::int64_t>(row_bytes / sizeof(Word));
    gather_kernel<<<grid_for(count * words, threads), threads, 0, ctx.cuda->stream>>>(
        static_cast<const Word*>(x.raw()), ints(rows), static_cast<Word*>(y.raw()), count, words);
    SOME_CUDA_LAUNCHED();
  };
  if (row_bytes % 16 == 0 && all_aligned16(x.raw(), y.raw()))
    launch(uint4{});
  else if (row_bytes % 4 == 0 && reinterpret_cast<std::uintptr_t>(x.raw()) % 4 == 0 &&
           reinterpret_cast<std::uintptr_t>(y.raw()) % 4 == 0)
    launch(std::uint32_t{});
  else
    launch(std::uint16_t{});
}

void exponential(Context& ctx, const Tensor& x, Tensor& y) {
  for_each(ctx, x.elements(), Exponential{floats(x), floats(y)});
}

void multiply_add(Context& ctx, const Tensor& a, const Tensor& b, Tensor& y) {
  for_each(ctx, y.elements(), MultiplyAdd{floats(a), floats(b), floats(y)});
}

void add_counts(Context& ctx, std::span<const Tensor> counts, std::span<const Tensor> totals) {
  for (std::size_t begin = 0; begin < counts.size(); begin += max_counts) {
    const std::size_t number = std::min<std::size_t>(max_counts, counts.size() - begin);
    AddCounts add{};
    add.experts = static_cast<int>(counts[begin].dim(0));
    add.columns = static_cast<int>(counts[begin].dim(1));
    for (std::size_t i = 0; i < number; ++i) {
      if (counts[begin + i].shape() != counts[begin].shape() || totals[begin + i].elements() != add.experts)
        failed(Code::shape_mismatch, "add_counts: counts {} and totals {} do not match {}",
               counts[begin + i].shape().text(), totals[begin + i].shape().text(), counts[begin].shape().text());
      add.counts[i] = ints(counts[begin + i]);
      add.totals[i] = longs(totals[begin + i]);
    }
    for_each(ctx, static_cast<std::int64_t>(number) * add.experts, add);
  }
}

}  // namespace some::cuda
