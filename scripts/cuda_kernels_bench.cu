// Checks and times the experts' and attention's CUDA kernels by themselves.
//
//   cuda_kernels_bench small    few small cases (for compute-sanitizer)
//   cuda_kernels_bench check    every kernel over a table of shapes, against sums in double precision on the GPU
//   cuda_kernels_bench time     times and rates, with cuBLAS on dense products of the same size for comparison
//
// Built by scripts/cuda_kernels_bench.sh.
#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/context.h"
#include "ops/attention.h"
#include "ops/cuda_attention.cuh"
#include "ops/experts.h"
#include "ops/grouped_gemm.h"

using namespace some;
using cuda::bf16;

namespace {

int failures = 0;

__host__ __device__ std::uint32_t mix(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdull;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ull;
  return static_cast<std::uint32_t>(value >> 32);
}

template <typename T>
__global__ void fill_kernel(T* data, std::int64_t count, std::uint64_t seed, float scale) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sum = 0.f;  // four uniform numbers: near enough to a bell
  for (int n = 0; n < 4; ++n) sum += mix((seed * 4 + n) * 0x9e3779b97f4a7c15ull + i) * 2.3283064e-10f - 0.5f;
  data[i] = cuda::from_float<T>(sum * 1.7320508f * scale);
}

Tensor random_tensor(Context& ctx, Shape shape, DType type, std::uint64_t seed, float scale) {
  Tensor result = Tensor::empty(std::move(shape), type, Device::cuda);
  const std::int64_t count = result.elements();
  const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
  if (count == 0) return result;
  if (type == DType::bf16) {
    fill_kernel<<<blocks, 256, 0, ctx.cuda->stream>>>(static_cast<bf16*>(result.raw()), count, seed, scale);
  } else {
    fill_kernel<<<blocks, 256, 0, ctx.cuda->stream>>>(static_cast<float*>(result.raw()), count, seed, scale);
  }
  SOME_CUDA_LAUNCHED();
  return result;
}

template <typename T>
__global__ void widen_kernel(const T* from, double* to, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = cuda::as_float(from[i]);
}

// A device tensor as doubles.
Tensor wide(Context& ctx, const Tensor& tensor) {
  Tensor result = Tensor::empty(tensor.shape(), DType::f64, Device::cuda);
  const std::int64_t count = tensor.elements();
  const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
  if (tensor.dtype() == DType::bf16) {
    widen_kernel<<<blocks, 256, 0, ctx.cuda->stream>>>(static_cast<bf16*>(tensor.raw()), result.data<double>(), count);
  } else {
    widen_kernel<<<blocks, 256, 0, ctx.cuda->stream>>>(tensor.data<float>(), result.data<double>(), count);
  }
  SOME_CUDA_LAUNCHED();
  return result;
}

std::vector<double> host(const Tensor& tensor) {
  Tensor copy = tensor.to(Device::cpu);
  return {copy.data<double>(), copy.data<double>() + copy.elements()};
}

Tensor wide_zeros(Shape shape) { return Tensor::zeros(std::move(shape), DType::f64, Device::cuda); }

// |result - truth| / |truth|; a number that is not one counts as infinite.
double distance(Context& ctx, const Tensor& result, const Tensor& truth) {
  const std::vector<double> got = host(wide(ctx, result)), want = host(truth);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

void report(const std::string& name, const std::string& shape, double error, double limit) {
  const bool good = error <= limit;
  failures += good ? 0 : 1;
  std::printf("%-34s %-44s %.2e %s\n", name.c_str(), shape.c_str(), error, good ? "ok" : "FAILED");
  std::fflush(stdout);
}

std::unique_ptr<Context> context(const char* precision) { return make_context(Device::cuda, precision); }

// ---- References: one thread a number, in double precision ----

__device__ double gelu_double(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752); }
__device__ double slope_double(double x) {
  return 0.5 * erfc(-x * 0.70710678118654752) + x * 0.39894228040143268 * exp(-0.5 * x * x);
}

// result[j, n] = sum_c a[order[j] / gather or j, c] * b[expert[j], n, c] (or b[.., c, n])
__global__ void product_reference(const double* a, const double* b, const int* order, int gather, const int* expert,
                                  int rows, int columns, int depth, bool transposed, double* result) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= static_cast<std::int64_t>(rows) * columns) return;
  const int j = static_cast<int>(i / columns), n = static_cast<int>(i % columns);
  const double* left = a + static_cast<std::int64_t>(gather != 0 ? order[j] / gather : j) * depth;
  const double* right = b + static_cast<std::int64_t>(expert[j]) * columns * depth;
  double sum = 0;
  for (int c = 0; c < depth; ++c)
    sum += left[c] * (transposed ? right[static_cast<std::int64_t>(c) * columns + n]
                                 : right[static_cast<std::int64_t>(n) * depth + c]);
  result[i] = sum;
}

enum class Map { gelu, slope, backward, scale, product };
// gelu: out = gelu(a). slope: out = gelu'(a). backward: out = gate * a * gelu'(pre). scale: out = gate * a.
// product: out = gate * a * pre.
__global__ void map_reference(Map map, const double* a, const double* pre, const double* gates, const int* order,
                              int rows, int columns, double* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= static_cast<std::int64_t>(rows) * columns) return;
  const double gate = gates != nullptr ? gates[order[i / columns]] : 1.0;
  if (map == Map::gelu) out[i] = gelu_double(a[i]);
  if (map == Map::slope) out[i] = slope_double(a[i]);
  if (map == Map::backward) out[i] = gate * a[i] * slope_double(pre[i]);
  if (map == Map::product) out[i] = gate * a[i] * pre[i];
  if (map == Map::scale) out[i] = gate * a[i];
}

// dgates[order[j]] = sum_n dact[j, n] * gelu(pre[j, n])
__global__ void gate_reference(const double* dact, const double* pre, const int* order, int rows, int columns,
                               double* dgates) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= rows) return;
  double sum = 0;
  for (int n = 0; n < columns; ++n)
    sum +=
        dact[static_cast<std::int64_t>(j) * columns + n] * gelu_double(pre[static_cast<std::int64_t>(j) * columns + n]);
  dgates[order[j]] = sum;
}

// target[order[j] / k] += rows[j], a thread a column, one token after another.
__global__ void scatter_reference(const double* rows, const int* order, int count, int k, int columns, double* target) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= columns) return;
  for (int j = 0; j < count; ++j)
    target[static_cast<std::int64_t>(order[j] / k) * columns + n] += rows[static_cast<std::int64_t>(j) * columns + n];
}

// target[e, m, n] += u[..] v[..] over the rows of e.
__global__ void outer_reference(const double* u, int u_gather, const double* v, int v_gather, const int* order,
                                const int* offsets, int m_size, int n_size, double* target) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, e = blockIdx.y;
  if (i >= m_size * n_size) return;
  double sum = 0;
  for (int j = offsets[e]; j < offsets[e + 1]; ++j) {
    sum += u[static_cast<std::int64_t>(u_gather != 0 ? order[j] / u_gather : j) * m_size + i / n_size] *
           v[static_cast<std::int64_t>(v_gather != 0 ? order[j] / v_gather : j) * n_size + i % n_size];
  }
  target[static_cast<std::int64_t>(e) * m_size * n_size + i] += sum;
}

unsigned blocks(std::int64_t count) { return static_cast<unsigned>((count + 255) / 256); }

// ---- Experts ----

struct ExpertCase {
  int tokens, d, f, experts, k;
  bool skewed = false, features = false;
  std::string text() const {
    return fmt::format("T {} d {} f {} E {} k {}{}{}", tokens, d, f, experts, k, skewed ? " skewed" : "",
                       features ? " features" : "");
  }
};

struct ExpertInputs {
  Tensor x, dy, gates, indices, expert_of_row;
  ExpertWeights weights;
  DispatchPlan plan;
};

// k distinct experts a token; skewed: nearly all tokens choose the first k.
Tensor choices(const ExpertCase& test) {
  Tensor indices = Tensor::empty({test.tokens, test.k}, DType::i32);
  std::vector<int> all(test.experts);
  for (int t = 0; t < test.tokens; ++t) {
    std::iota(all.begin(), all.end(), 0);
    for (int i = 0; i < test.k; ++i) {
      if (!(test.skewed && t % 16 != 0)) std::swap(all[i], all[i + mix(t * 64 + i + 17) % (test.experts - i)]);
      indices.data<int>()[t * test.k + i] = all[i];
    }
  }
  return indices;
}

ExpertInputs inputs(Context& ctx, const ExpertCase& test) {
  ExpertInputs in;
  in.x = random_tensor(ctx, {test.tokens, test.d}, ctx.compute, 1, 1.f);
  in.dy = random_tensor(ctx, {test.tokens, test.features ? test.f : test.d}, ctx.compute, 2, 1.f);
  in.gates = random_tensor(ctx, {test.tokens, test.k}, DType::f32, 3, 0.5f);
  in.weights.w1 = random_tensor(ctx, {test.experts, test.f, test.d}, ctx.compute, 4, 1.f / std::sqrt(float(test.d)));
  if (!test.features) {
    in.weights.w2 = random_tensor(ctx, {test.experts, test.d, test.f}, ctx.compute, 5, 1.f / std::sqrt(float(test.f)));
  }
  Tensor indices = choices(test);
  in.indices = indices.to(Device::cuda);
  in.plan = cuda::make_dispatch(ctx, in.indices, test.experts);
  Tensor order = in.plan.order.to(Device::cpu), expert_of_row = Tensor::empty({test.tokens * test.k}, DType::i32);
  for (int j = 0; j < test.tokens * test.k; ++j)
    expert_of_row.data<int>()[j] = indices.data<int>()[order.data<int>()[j]];
  in.expert_of_row = expert_of_row.to(Device::cuda);
  return in;
}

void check_dispatch(Context& ctx, const ExpertCase& test) {
  const ArenaScope scope(*ctx.arena);
  Tensor indices = choices(test);
  const DispatchPlan plan = cuda::make_dispatch(ctx, indices.to(Device::cuda), test.experts);
  const int count = test.tokens * test.k;
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  const int* chosen = indices.data<int>();
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return chosen[a] < chosen[b]; });
  Tensor got = plan.order.to(Device::cpu), place = plan.place.to(Device::cpu), offsets = plan.offsets.to(Device::cpu);
  Tensor tiles = plan.tiles.to(Device::cpu);
  int wrong = 0;
  for (int j = 0; j < count; ++j) wrong += got.data<int>()[j] != order[j] || place.data<int>()[order[j]] != j;
  int tile = 0;
  for (int e = 0; e < test.experts; ++e) {
    const int* bounds = offsets.data<int>() + e;
    wrong += bounds[1] - bounds[0] != std::count(chosen, chosen + count, e);
    for (int row = bounds[0]; row < bounds[1]; row += cuda::tile_rows) {
      const int* entry = tiles.data<int>() + 4 * ++tile;
      wrong += entry[0] != e || entry[1] != row || entry[2] != std::min(row + cuda::tile_rows, bounds[1]);
    }
  }
  wrong += tiles.data<int>()[0] != tile;
  report("dispatch", test.text(), wrong, 0);
}

const char* name_of_kernel(cuda::Kernel kernel) {
  switch (kernel) {
    case cuda::Kernel::plain: return "plain";
    case cuda::Kernel::warp: return "warp";
    case cuda::Kernel::warpgroup: return "warpgroup";
  }
  return "";
}

// Every kernel, each way of reading and finishing, whatever would be chosen.
void check_products(Context& ctx, const ExpertCase& test) {
  const ArenaScope scope(*ctx.arena);
  const ExpertInputs in = inputs(ctx, test);
  const int rows = test.tokens * test.k;
  const int* order = in.plan.order.data<int>();
  std::vector<cuda::Kernel> kernels = {cuda::Kernel::plain};
  if (test.d % 8 == 0 && test.f % 8 == 0) {
    kernels = {cuda::Kernel::plain, cuda::Kernel::warp};
    if (ctx.cuda->major == 9) kernels.push_back(cuda::Kernel::warpgroup);
  }
  const Tensor gathered = random_tensor(ctx, {rows, test.d}, ctx.compute, 8, 1.f);
  for (const bool transposed : {false, true}) {
    const Tensor& b = transposed ? in.weights.w2 : in.weights.w1;  // both make f columns from d
    for (const bool gather : {true, false}) {
      const Tensor& a = gather ? in.x : gathered;
      Tensor truth = wide_zeros({rows, test.f}), activated = wide_zeros({rows, test.f}),
             backward = wide_zeros({rows, test.f}), slopes = wide_zeros({rows, test.f}),
             sloped = wide_zeros({rows, test.f});
      Tensor sums = wide_zeros({rows});
      const Tensor pre = random_tensor(ctx, {rows, test.f}, ctx.compute, 9, 1.f);
      const Tensor wide_a = wide(ctx, a), wide_b = wide(ctx, b), wide_pre = wide(ctx, pre),
                   wide_gates = wide(ctx, in.gates);
      const std::int64_t count = static_cast<std::int64_t>(rows) * test.f;
      product_reference<<<blocks(count), 256, 0, ctx.cuda->stream>>>(
          wide_a.data<double>(), wide_b.data<double>(), order, gather ? test.k : 0, in.expert_of_row.data<int>(), rows,
          test.f, test.d, transposed, truth.data<double>());
      map_reference<<<blocks(count), 256, 0, ctx.cuda->stream>>>(Map::gelu, truth.data<double>(), nullptr, nullptr,
                                                                 order, rows, test.f, activated.data<double>());
      map_reference<<<blocks(count), 256, 0, ctx.cuda->stream>>>(Map::backward, truth.data<double>(),
                                                                 wide_pre.data<double>(), wide_gates.data<double>(),
                                                                 order, rows, test.f, backward.data<double>());
      map_reference<<<blocks(count), 256, 0, ctx.cuda->stream>>>(Map::slope, truth.data<double>(), nullptr, nullptr,
                                                                 order, rows, test.f, slopes.data<double>());
      map_reference<<<blocks(count), 256, 0, ctx.cuda->stream>>>(Map::product, truth.data<double>(),
                                                                 wide_pre.data<double>(), wide_gates.data<double>(),
                                                                 order, rows, test.f, sloped.data<double>());
      gate_reference<<<blocks(rows), 256, 0, ctx.cuda->stream>>>(truth.data<double>(), wide_pre.data<double>(), order,
                                                                 rows, test.f, sums.data<double>());
      SOME_CUDA_LAUNCHED();
      for (const cuda::Kernel kernel : kernels) {
        const std::string name = fmt::format("product {}{}{}", name_of_kernel(kernel), transposed ? " transposed" : "",
                                             gather ? " gather" : "");
        Tensor result = random_tensor(ctx, {rows, test.f}, ctx.compute, 10, 100.f);
        Tensor second = random_tensor(ctx, {rows, test.f}, ctx.compute, 11, 100.f);
        cuda::GroupedProduct product;
        product.type = ctx.compute;
        product.a = a.raw();
        product.b = b.raw();
        product.b_transposed = transposed;
        product.rows = rows;
        product.columns = test.f;
        product.depth = test.d;
        product.groups = test.experts;
        product.tiles = static_cast<const cuda::Tile*>(in.plan.tiles.raw());
        product.order = order;
        product.gather = gather ? test.k : 0;
        product.result = result.raw();
        const double limit = ctx.compute == DType::f32 ? 2e-6 : 4e-3;
        run_grouped_product(ctx, product, kernel);
        report(name + " store", test.text(), distance(ctx, result, truth), limit);
        product.finish = cuda::Finish::gelu;
        product.activated = second.raw();
        run_grouped_product(ctx, product, kernel);
        report(name + " gelu", test.text(), std::max(distance(ctx, result, truth), distance(ctx, second, activated)),
               limit);
        product.finish = cuda::Finish::gelu_slope;
        run_grouped_product(ctx, product, kernel);
        report(name + " gelu slope", test.text(),
               std::max(distance(ctx, result, slopes), distance(ctx, second, activated)), limit);
        product.finish = cuda::Finish::slope_backward;
        product.activated = nullptr;
        product.gates = in.gates.data<float>();
        result.copy_from(pre);
        run_grouped_product(ctx, product, kernel);
        report(name + " slope backward", test.text(), distance(ctx, result, sloped), limit);
        product.finish = cuda::Finish::gelu_backward;
        result.copy_from(pre);
        const int width = kernel == cuda::Kernel::plain ? 64 : kernel == cuda::Kernel::warp ? 32 : 128;
        const int slots = (test.f + width - 1) / width;
        Tensor parts = random_tensor(ctx, {rows, slots}, DType::f32, 12, 100.f);
        product.row_sums = parts.data<float>();
        run_grouped_product(ctx, product, kernel);
        const std::vector<double> got = host(wide(ctx, parts)), want = host(sums);
        const Tensor host_order = in.plan.order.to(Device::cpu);
        double off = 0, size = 0;
        for (int j = 0; j < rows; ++j) {
          double sum = 0;
          for (int slot = 0; slot < slots; ++slot) sum += got[static_cast<std::size_t>(j) * slots + slot];
          const double value = want[host_order.data<int>()[j]];
          off += (sum - value) * (sum - value);
          size += value * value;
        }
        const double sum_error = std::sqrt(off / size);
        report(name + " backward", test.text(),
               std::max(distance(ctx, result, backward), std::isfinite(sum_error) ? sum_error : INFINITY), limit);
      }
    }
  }
}

void check_experts(Context& ctx, const ExpertCase& test) {
  const ArenaScope scope(*ctx.arena);
  ExpertInputs in = inputs(ctx, test);
  const int rows = test.tokens * test.k, width = test.features ? test.f : test.d;
  const int* order = in.plan.order.data<int>();
  const cudaStream_t stream = ctx.cuda->stream;
  Tensor pre = random_tensor(ctx, {rows, test.f}, ctx.compute, 20, 100.f),
         y = random_tensor(ctx, {test.tokens, width}, ctx.compute, 21, 100.f);
  const Tensor dx_start = random_tensor(ctx, {test.tokens, test.d}, ctx.compute, 22, 1.f);
  Tensor dx = dx_start.clone(), dgates = random_tensor(ctx, {test.tokens, test.k}, DType::f32, 23, 100.f);
  ExpertGrads grads;
  grads.w1 = Tensor::zeros(in.weights.w1.shape(), DType::f32, Device::cuda);
  if (!test.features) grads.w2 = Tensor::zeros(in.weights.w2.shape(), DType::f32, Device::cuda);
  ExpertTape tape{pre, Tensor()};
  cuda::experts_forward(ctx, in.x, in.weights, in.plan, in.gates, tape, y);
  const Tensor kept = pre.clone();
  cuda::experts_backward(ctx, in.dy, in.x, in.weights, in.plan, in.gates, tape, dx, dgates, &grads);

  const Tensor x = wide(ctx, in.x), dy = wide(ctx, in.dy), gates = wide(ctx, in.gates), w1 = wide(ctx, in.weights.w1);
  const Tensor w2 = test.features ? Tensor() : wide(ctx, in.weights.w2);
  Tensor true_pre = wide_zeros({rows, test.f}), act = wide_zeros({rows, test.f}), dact = wide_zeros({rows, test.f});
  Tensor dpre = wide_zeros({rows, test.f}), gated = wide_zeros({rows, test.f}), rows_out = wide_zeros({rows, width});
  Tensor true_y = wide_zeros({test.tokens, width}), true_dgates = wide_zeros({test.tokens, test.k}),
         true_dx = wide(ctx, dx_start);
  Tensor rows_dx = wide_zeros({rows, test.d}), true_w1 = wide_zeros(grads.w1.shape());
  Tensor true_w2 = test.features ? Tensor() : wide_zeros(grads.w2.shape());
  const int* expert = in.expert_of_row.data<int>();
  const std::int64_t wide_count = static_cast<std::int64_t>(rows) * test.f;
  const auto product = [&](const Tensor& a, int gather, const Tensor& b, int columns, int depth, bool transposed,
                           Tensor& result) {
    product_reference<<<blocks(static_cast<std::int64_t>(rows) * columns), 256, 0, stream>>>(
        a.data<double>(), b.data<double>(), order, gather, expert, rows, columns, depth, transposed,
        result.data<double>());
  };
  const auto map = [&](Map kind, const Tensor& a, const double* p, const double* g, int columns, Tensor& out) {
    map_reference<<<blocks(static_cast<std::int64_t>(rows) * columns), 256, 0, stream>>>(
        kind, a.data<double>(), p, g, order, rows, columns, out.data<double>());
  };
  product(x, test.k, w1, test.f, test.d, false, true_pre);
  map(Map::gelu, true_pre, nullptr, nullptr, test.f, act);
  map(Map::scale, act, nullptr, gates.data<double>(), test.f, gated);
  if (test.features) {
    scatter_reference<<<blocks(width), 256, 0, stream>>>(gated.data<double>(), order, rows, test.k, width,
                                                         true_y.data<double>());
    Tensor identity = wide_zeros({rows, test.f});
    std::vector<double> source = host(dy);
    Tensor host_rows = Tensor::zeros({rows, test.f}, DType::f64), host_order = in.plan.order.to(Device::cpu);
    for (int j = 0; j < rows; ++j) {
      std::copy_n(source.data() + static_cast<std::size_t>(host_order.data<int>()[j] / test.k) * test.f, test.f,
                  host_rows.data<double>() + static_cast<std::size_t>(j) * test.f);
    }
    dact = host_rows.to(Device::cuda);
  } else {
    product(act, 0, w2, test.d, test.f, false, rows_out);
    map(Map::scale, rows_out, nullptr, gates.data<double>(), width, rows_out);
    scatter_reference<<<blocks(width), 256, 0, stream>>>(rows_out.data<double>(), order, rows, test.k, width,
                                                         true_y.data<double>());
    product(dy, test.k, w2, test.f, test.d, true, dact);
  }
  gate_reference<<<blocks(rows), 256, 0, stream>>>(dact.data<double>(), true_pre.data<double>(), order, rows, test.f,
                                                   true_dgates.data<double>());
  map_reference<<<blocks(wide_count), 256, 0, stream>>>(Map::backward, dact.data<double>(), true_pre.data<double>(),
                                                        gates.data<double>(), order, rows, test.f, dpre.data<double>());
  product(dpre, 0, w1, test.d, test.f, true, rows_dx);
  scatter_reference<<<blocks(test.d), 256, 0, stream>>>(rows_dx.data<double>(), order, rows, test.k, test.d,
                                                        true_dx.data<double>());
  const int* offsets = in.plan.offsets.data<int>();
  const dim3 grid(blocks(static_cast<std::int64_t>(test.d) * test.f), test.experts);
  outer_reference<<<grid, 256, 0, stream>>>(dpre.data<double>(), 0, x.data<double>(), test.k, order, offsets, test.f,
                                            test.d, true_w1.data<double>());
  if (!test.features) {
    outer_reference<<<grid, 256, 0, stream>>>(dy.data<double>(), test.k, gated.data<double>(), 0, order, offsets,
                                              test.d, test.f, true_w2.data<double>());
  }
  SOME_CUDA_LAUNCHED();
  const bool single = ctx.compute == DType::f32;
  const double limit = single ? 3e-6 : 1e-2;
  const std::string kind = single ? "fp32 " : "bf16 ";
  report(kind + "experts pre", test.text(), distance(ctx, kept, true_pre), limit);
  report(kind + "experts y", test.text(), distance(ctx, y, true_y), limit);
  report(kind + "experts dx", test.text(), distance(ctx, dx, true_dx), limit);
  report(kind + "experts dgates", test.text(), distance(ctx, dgates, true_dgates), limit);
  report(kind + "experts dw1", test.text(), distance(ctx, grads.w1, true_w1), limit);
  if (!test.features) report(kind + "experts dw2", test.text(), distance(ctx, grads.w2, true_w2), limit);

  // The same bits again.
  Tensor y_again = y.clone(), dx_again = dx_start.clone(), dgates_again = dgates.clone();
  ExpertTape again{kept.clone(), Tensor()};
  cuda::experts_forward(ctx, in.x, in.weights, in.plan, in.gates, again, y_again);
  cuda::experts_backward(ctx, in.dy, in.x, in.weights, in.plan, in.gates, again, dx_again, dgates_again, nullptr);
  const auto same = [](const Tensor& a, const Tensor& b) {
    const Tensor left = a.to(Device::cpu), right = b.to(Device::cpu);
    return std::memcmp(left.raw(), right.raw(), left.bytes()) == 0;
  };
  report(kind + "experts same bits", test.text(),
         same(y, y_again) && same(dx, dx_again) && same(dgates, dgates_again) ? 0 : 1, 0);
}

#include "cuda_kernels_bench_attention.inc"
#include "cuda_kernels_bench_times.inc"

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  try {
    const auto half = context("bf16"), single = context("fp32");
    if (mode == "time") {
      time_all(*half, argc > 2 ? argv[2] : "");
      return 0;
    }
    const bool small = mode == "small";
    for (const ExpertCase& test : {ExpertCase{1, 8, 8, 1, 1},
                                   {300, 8, 8, 7, 3},
                                   {1000, 8, 8, 64, 4},
                                   {3000, 8, 8, 300, 2, true},
                                   {20000, 8, 8, 1000, 4}}) {
      if (!small || test.tokens <= 300) check_dispatch(*half, test);
    }
    const std::vector<ExpertCase> cases = small ? std::vector<ExpertCase>{{1, 64, 128, 2, 1},
                                                                          {90, 72, 136, 5, 3},
                                                                          {150, 128, 256, 3, 2, true},
                                                                          {50, 12, 11, 3, 2},
                                                                          {40, 24, 40, 4, 2, false, true}}
                                                : std::vector<ExpertCase>{{1, 512, 1024, 64, 4},
                                                                          {3000, 512, 1024, 64, 4},
                                                                          {2000, 512, 1024, 64, 4, true},
                                                                          {777, 384, 1536, 8, 2},
                                                                          {333, 72, 136, 5, 3},
                                                                          {500, 256, 512, 1, 1},
                                                                          {500, 256, 768, 7, 7},
                                                                          {50, 12, 11, 3, 2},
                                                                          {60, 17, 23, 4, 2},
                                                                          {500, 128, 192, 6, 2, false, true},
                                                                          {40, 12, 11, 3, 2, false, true}};
    for (const ExpertCase& test : cases) {
      check_experts(*half, test);
      check_experts(*single, test);
      if (!test.features && test.tokens < 3000) check_products(*half, test);
    }
    check_attention_all(*half, *single, small);
  } catch (const Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
