// Speed of the CPU operations in FLOP/s, compared with oneDNN using its own threading.
//   build/bench_ops --benchmark_filter=experts
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernels/cpu/gemm.h"
#include "ops/attention.h"
#include "ops/experts.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/route.h"
#include "runtime/context.h"

namespace {

using namespace some;
using namespace some;

Tensor numbers(Shape shape, const char* name, float scale) {
  Tensor tensor = Tensor::empty(std::move(shape), DType::f32);
  const RandomStream stream = random_stream(1, name);
  Threads threads;
  parallel_chunks(threads, tensor.elements(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      tensor.data<float>()[i] = scale * stream.symmetric(static_cast<std::uint64_t>(i));
  });
  return tensor;
}

void report(benchmark::State& state, double operations) {
  state.counters["FLOP/s"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::OneK::kIs1000);
}

Param parameter(Shape shape, const char* name, float scale) {
  Param param;
  param.value = param.compute = numbers(shape, name, scale);
  param.grad = Tensor::zeros(shape, DType::f32);
  return param;
}

// oneDNN with its own threading, compared with our tiles of single-threaded calls
void onednn_alone(benchmark::State& state) {
  double best = 0;
  Threads threads;
  for (auto _ : state)
    best = std::max(best, cpu::peak_gemm_rate(threads, state.range(0), state.range(1), state.range(2), 0.2));
  state.counters["FLOP/s"] = benchmark::Counter(best, benchmark::Counter::kDefaults, benchmark::Counter::OneK::kIs1000);
}
BENCHMARK(onednn_alone)->Args({4096, 512, 1024})->Iterations(2)->Unit(benchmark::kMillisecond);

void gemm_tiled(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool ta = state.range(3) & 1, tb = state.range(3) & 2;
  const Tensor a = numbers({m, k}, "a", 1), b = numbers({k, n}, "b", 1);
  Tensor c = Tensor::zeros({m, n}, DType::f32);
  Threads threads;
  for (auto _ : state) {
    cpu::gemm(threads, ta, tb, m, n, k, 1.0f, a.data<float>(), ta ? m : k, b.data<float>(), tb ? k : n, 0.0f,
              c.data<float>(), n);
  }
  report(state, 2.0 * static_cast<double>(m * n * k));
}
BENCHMARK(gemm_tiled)
    ->ArgNames({"m", "n", "k", "transposed"})
    ->Args({4096, 512, 1024, 0})
    ->Args({4096, 512, 1024, 2})
    ->Args({4096, 1152, 384, 2})
    ->Args({384, 1152, 4096, 1})
    ->Args({384, 384, 4096, 1})
    ->UseRealTime();

void gemm_own_kernel(benchmark::State& state) {
  const std::int64_t m = 1024, n = 512, k = 512;
  const Tensor a = numbers({m, k}, "a", 1), b = numbers({k, n}, "b", 1);
  Tensor c = Tensor::zeros({m, n}, DType::f32);
  for (auto _ : state) {
    cpu::native_gemm(cpu::Product<float>{false, true, m, n, k, 1.0f, a.data<float>(), k, b.data<float>(), k, 0.0f,
                                         c.data<float>(), n});
  }
  report(state, 2.0 * static_cast<double>(m * n * k));
}
BENCHMARK(gemm_own_kernel)->UseRealTime();

// The recipe of the speed requirement: d = 384, E = 64, f = 1024, k = 4; 4096 tokens.
struct ExpertsBench {
  static constexpr std::int64_t tokens = 4096, d = 384, f = 1024, experts = 64, k = 4;
  std::unique_ptr<Context> context = make_context("cpu", "fp32");
  Tensor x = numbers({tokens, d}, "x", 1), gates = numbers({tokens, k}, "gates", 1), dy = numbers({tokens, d}, "dy", 1);
  ExpertWeights weights{numbers({experts, f, d}, "w1", 0.05f), numbers({experts, d, f}, "w2", 0.03f)};
  ExpertTape tape{Tensor::zeros({tokens * k, f}, DType::f32), {}, {}, {}};
  Tensor y = Tensor::zeros({tokens, d}, DType::f32);
  Tensor dx = Tensor::zeros({tokens, d}, DType::f32), dgates = Tensor::zeros({tokens, k}, DType::f32);
  Tensor indices = Tensor::zeros({tokens, k}, DType::i32);
  DispatchPlan plan;
  ExpertsBench() {
    const Tensor ids = Tensor::zeros({tokens}, DType::i32);
    for (std::int64_t t = 0; t < tokens; ++t) ids.data<std::int32_t>()[t] = static_cast<std::int32_t>(t);
    hash_routing(*context, ids, static_cast<int>(experts), 1, 0, indices);
    plan = make_dispatch(*context, indices, static_cast<int>(experts));
  }
  static double operations() { return 4.0 * static_cast<double>(tokens * k * d * f); }
};

void experts_forward_frozen(benchmark::State& state) {
  ExpertsBench bench;
  for (auto _ : state)
    experts_forward(*bench.context, bench.x, bench.weights, bench.plan, bench.gates, bench.tape, bench.y);
  report(state, ExpertsBench::operations());
}
BENCHMARK(experts_forward_frozen)->UseRealTime()->Unit(benchmark::kMillisecond);

void experts_backward_frozen(benchmark::State& state) {
  ExpertsBench bench;
  experts_forward(*bench.context, bench.x, bench.weights, bench.plan, bench.gates, bench.tape, bench.y);
  for (auto _ : state) {
    experts_backward(*bench.context, {bench.dy, bench.x, bench.weights, bench.plan, bench.gates, bench.tape, bench.dx,
                                      Into::overwrite, bench.dgates});
  }
  report(state, ExpertsBench::operations());
}
BENCHMARK(experts_backward_frozen)->UseRealTime()->Unit(benchmark::kMillisecond);

struct AttentionBench {
  static constexpr std::int64_t count = 16, length = 256, tokens = count * length, d = 384;
  static constexpr int heads = 8;
  std::unique_ptr<Context> context = make_context("cpu", "fp32");
  Tensor qkv = numbers({tokens, 3 * d}, "qkv", 1), dout = numbers({tokens, d}, "dout", 1);
  Tensor out = Tensor::zeros({tokens, d}, DType::f32), lse = Tensor::zeros({heads, tokens}, DType::f32);
  Tensor dqkv = Tensor::zeros({tokens, 3 * d}, DType::f32);
  Sequences sequences{Tensor::zeros({count + 1}, DType::i32), count, length, tokens};
  AttentionBench() {
    for (std::int64_t s = 0; s <= count; ++s)
      sequences.offsets.data<std::int32_t>()[s] = static_cast<std::int32_t>(s * length);
  }
  // One GEMM of [length, length/2] by d: only the causal half
  static double product() {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(length) / 2 * static_cast<double>(d);
  }
};

void attention_forward_causal(benchmark::State& state) {
  AttentionBench bench;
  for (auto _ : state) {
    attention_forward(*bench.context, bench.qkv, bench.sequences, AttentionBench::heads, true, bench.out, bench.lse);
  }
  report(state, 2 * AttentionBench::product());
}
BENCHMARK(attention_forward_causal)->UseRealTime()->Unit(benchmark::kMillisecond);

void attention_backward_causal(benchmark::State& state) {
  AttentionBench bench;
  attention_forward(*bench.context, bench.qkv, bench.sequences, AttentionBench::heads, true, bench.out, bench.lse);
  for (auto _ : state) {
    attention_backward(*bench.context, bench.dout, bench.qkv, bench.out, bench.lse, bench.sequences,
                       AttentionBench::heads, true, bench.dqkv);
  }
  report(state, 4 * AttentionBench::product());  // required: dV, dP, dQ, dK; the scores are recomputed
}
BENCHMARK(attention_backward_causal)->UseRealTime()->Unit(benchmark::kMillisecond);

void linear_both_ways(benchmark::State& state) {
  auto context = make_context("cpu", "fp32");
  const std::int64_t tokens = 4096, in = 384, out = state.range(0);
  const Param weight = parameter({out, in}, "weight", 0.05f), bias = parameter({out}, "bias", 1);
  const Tensor x = numbers({tokens, in}, "x", 1), dy = numbers({tokens, out}, "dy", 1);
  Tensor y = Tensor::zeros({tokens, out}, DType::f32), dx = Tensor::zeros({tokens, in}, DType::f32);
  for (auto _ : state) {
    linear_forward(*context, x, weight, bias, y);
    linear_backward(*context, dy, x, weight, bias, &dx, Into::overwrite);
  }
  report(state, 6.0 * static_cast<double>(tokens * in * out));
}
BENCHMARK(linear_both_ways)->Arg(384)->Arg(1152)->UseRealTime()->Unit(benchmark::kMillisecond);

void head_loss_both_ways(benchmark::State& state) {
  auto context = make_context("cpu", "fp32");
  const std::int64_t tokens = 4096, d = 384, vocabulary = state.range(0);
  const Param weight = parameter({vocabulary, d}, "weight", 0.05f), bias = parameter({vocabulary}, "bias", 1);
  const Tensor h = numbers({tokens, d}, "h", 1), targets = Tensor::zeros({tokens}, DType::i32);
  Tensor nll = Tensor::zeros({tokens}, DType::f32), dh = Tensor::zeros({tokens, d}, DType::f32);
  for (auto _ : state) head_loss(*context, h, weight, bias, targets, 1.0 / static_cast<double>(tokens), nll, &dh);
  report(state, 6.0 * static_cast<double>(tokens * d * vocabulary));
}
BENCHMARK(head_loss_both_ways)->Arg(4096)->Arg(16384)->UseRealTime()->Unit(benchmark::kMillisecond);

void route_both_ways(benchmark::State& state) {
  auto context = make_context("cpu", "fp32");
  const std::int64_t tokens = 4096, d = 384, experts = state.range(0), k = 4;
  const Tensor query = numbers({tokens, d}, "query", 1), keys = numbers({experts, d}, "keys", 1),
               dgates = numbers({tokens, k}, "dgates", 1);
  Tensor temperature = numbers({1}, "temperature", 0), dquery = Tensor::zeros({tokens, d}, DType::f32);
  temperature.data<float>()[0] = 1;
  Routing routing{Tensor::zeros({tokens, k}, DType::i32), Tensor::zeros({tokens, k}, DType::f32),
                  Tensor::zeros({tokens, k}, DType::f32)};
  for (auto _ : state) {
    route_forward(*context, query, keys, nullptr, temperature, false, routing);
    route_backward(*context, dgates, routing, keys, temperature, dquery, nullptr);
  }
  report(state, 2.0 * static_cast<double>(tokens * d * experts));
}
BENCHMARK(route_both_ways)->Arg(64)->Arg(1024)->UseRealTime()->Unit(benchmark::kMillisecond);

// Passes over memory, in bytes/s
void report_bytes(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * bytes);
}

void norm_both_ways(benchmark::State& state) {
  auto context = make_context("cpu", "fp32");
  const std::int64_t tokens = 4096, d = 384;
  const Param weight = parameter({d}, "weight", 1), bias = parameter({d}, "bias", 1);
  const Tensor x = numbers({tokens, d}, "x", 1), addend = numbers({tokens, d}, "addend", 1),
               dy = numbers({tokens, d}, "dy", 1);
  Tensor sum = Tensor::zeros({tokens, d}, DType::f32), y = Tensor::zeros({tokens, d}, DType::f32),
         dsum = Tensor::zeros({tokens, d}, DType::f32);
  Tensor mean = Tensor::zeros({tokens}, DType::f32), rstd = Tensor::zeros({tokens}, DType::f32);
  for (auto _ : state) {
    add_norm_forward(*context, x, &addend, weight, bias, sum, y, mean, rstd);
    norm_backward(*context, dy, sum, mean, rstd, weight, bias, nullptr, dsum);
  }
  report_bytes(state, 7 * tokens * d * 4);
}
BENCHMARK(norm_both_ways)->UseRealTime()->Unit(benchmark::kMillisecond);

void adamw(benchmark::State& state) {
  auto context = make_context("cpu", "fp32");
  const std::int64_t count = std::int64_t{1} << 23;
  Tensor value = numbers({count}, "value", 1), first = Tensor::zeros({count}, DType::f32),
         second = Tensor::zeros({count}, DType::f32);
  const Tensor grad = numbers({count}, "grad", 1);
  Tensor norm = Tensor::zeros({1}, DType::f32);
  for (auto _ : state) {
    gradient_norm(*context, grad, norm);
    adamw_step(*context, value, value, grad, first, second, norm, AdamSettings{});
  }
  report_bytes(state, 8 * count * 4);
}
BENCHMARK(adamw)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
