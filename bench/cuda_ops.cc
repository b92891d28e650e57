// Times the operations on the GPU at the shapes of A4, with all positions and with only the non-padding tokens (a
// quarter), one row per operation:
//   build/bench_cuda_ops
// "GB/s" counts the bytes that an operation must move, "TFLOP/s" the FLOPs of its GEMMs; compare both with the GPU's
// own limits (docs/performance.md). Without a GPU every row reports that.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "experts/library.h"
#include "keys/key_store.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/route.h"
#include "tensor/device.h"

namespace some {
namespace {

constexpr std::int64_t d = 512, vocabulary = 8192, experts = 64, top_k = 4;

struct Bench {
  std::unique_ptr<Context> ctx = make_context("cuda", "bf16");
  RandomStream stream = random_stream(1, "bench");

  Tensor random(Shape shape, DType type, double scale = 1.0) {
    Tensor host = Tensor::empty(shape, DType::f32);
    for (std::int64_t i = 0; i < host.elements(); ++i)
      host.data<float>()[i] = static_cast<float>(scale) * stream.symmetric(static_cast<std::uint64_t>(i));
    return host.to(type).to(ctx->device);
  }
  Tensor numbers(Shape shape, std::uint32_t below) {
    Tensor host = Tensor::empty(shape, DType::i32);
    for (std::int64_t i = 0; i < host.elements(); ++i)
      host.data<std::int32_t>()[i] = static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(i), below));
    return host.to(ctx->device);
  }
  Tensor empty(Shape shape, DType type) { return Tensor::zeros(shape, type, ctx->device); }
  Param param(Shape shape, double scale) {
    Param p;
    p.value = random(shape, DType::f32, scale);
    p.compute = p.value.to(DType::bf16);
    p.grad = empty(shape, DType::f32);
    return p;
  }
};

// Runs `body` in a loop of 20 between two events in the stream, so that the time between launches is excluded.
void time_loop(const Bench& b, benchmark::State& state, double bytes, double operations,
               const std::function<void()>& body) {
  constexpr int repeats = 20;
  for (int i = 0; i < 3; ++i) body();
  some::cuda::Event begin(b.ctx->device), end(b.ctx->device);
  for (auto _ : state) {
    begin.record();
    for (int i = 0; i < repeats; ++i) body();
    end.record();
    state.SetIterationTime(end.milliseconds_since(begin) / 1000.0 / repeats);
  }
  if (bytes > 0)
    state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  if (operations > 0)
    state.counters["TFLOP/s"] = benchmark::Counter(operations * 1e-12, benchmark::Counter::kIsIterationInvariantRate);
}

using Body = std::function<void(benchmark::State&, std::int64_t)>;

void add(const std::string& name, const Body& body, const std::vector<std::int64_t>& sizes = {24576, 6144}) {
  for (const std::int64_t size : sizes) {
    benchmark::RegisterBenchmark((name + "/" + std::to_string(size)).c_str(),
                                 [body, size](benchmark::State& state) {
                                   if (!some::cuda::available()) {
                                     state.SkipWithError(some::cuda::unavailable_reason_text().c_str());
                                     return;
                                   }
                                   body(state, size);
                                 })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(10);
  }
}

void linear(benchmark::State& state, std::int64_t rows, std::int64_t in, std::int64_t out, DType result,
            bool backward) {
  Bench b;
  const Tensor x = b.random({rows, in}, DType::bf16);
  const Param weight = b.param({out, in}, 0.05), bias = b.param({out}, 0.05);
  Tensor y = b.random({rows, out}, result), dx = b.empty({rows, in}, DType::bf16);
  const double operations = 2.0 * static_cast<double>(rows * in * out);
  if (backward) {
    time_loop(b, state, 0, 2 * operations, [&] { linear_backward(*b.ctx, y, x, weight, bias, &dx, Into::add); });
  } else {
    time_loop(b, state, 0, operations, [&] { linear_forward(*b.ctx, x, weight, bias, y); });
  }
}

struct Choices {
  Tensor query, keys, temperature;
  Routing routing;
  Choices(Bench& b, std::int64_t rows) {
    const Tensor raw = b.random({rows, d}, DType::f32);
    query = b.empty({rows, d}, DType::f32);
    Tensor norms = b.empty({rows, 2}, DType::f32);
    query_forward(*b.ctx, raw, nullptr, 0.0, query, norms);
    keys = b.random({experts, d}, DType::f32, 0.05);
    temperature = b.empty({1}, DType::f32);
    fill(*b.ctx, 1.0, temperature);
    routing = {b.empty({rows, top_k}, DType::i32), b.empty({rows, top_k}, DType::f32),
               b.empty({rows, top_k}, DType::f32)};
    route_forward(*b.ctx, query, keys, nullptr, temperature, false, routing);
  }
};

// The experts of a published run with uniform assignments, frozen as in training: what the backward pass needs is kept.
// Without w2: output_proj = "features".
void mixture(benchmark::State& state, std::int64_t rows, std::int64_t width, std::int64_t hidden, std::int64_t number,
             bool features, bool backward) {
  Bench b;
  const Tensor x = b.random({rows, width}, DType::bf16);
  ExpertWeights weights;
  weights.w1 = b.random({number, hidden, width}, DType::bf16, 0.05);
  if (!features) weights.w2 = b.random({number, width, hidden}, DType::bf16, 0.05);
  const DispatchPlan plan =
      make_dispatch(*b.ctx, b.numbers({rows, top_k}, static_cast<std::uint32_t>(number)), static_cast<int>(number));
  Tensor gates = b.empty({rows, top_k}, DType::f32);
  fill(*b.ctx, 1.0 / top_k, gates);
  ExpertTape tape;
  tape.pre = b.random({rows * top_k, hidden}, DType::bf16);
  if (experts_keep_outputs(*b.ctx, weights)) tape.outputs = b.random({rows * top_k, width}, DType::bf16);
  const std::int64_t out = features ? hidden : width;
  Tensor y = b.random({rows, out}, DType::bf16), dx = b.empty({rows, width}, DType::bf16);
  Tensor dgates = b.empty({rows, top_k}, DType::f32);
  const double products = features ? 1 : 2;
  const double operations = 2.0 * products * static_cast<double>(rows * top_k * width * hidden);
  if (backward) {
    time_loop(b, state, 0, operations, [&] {
      experts_backward(*b.ctx, {y, x, weights, plan, gates, tape, dx, Into::overwrite, dgates});
    });
  } else {
    time_loop(b, state, 0, operations, [&] { experts_forward(*b.ctx, x, weights, plan, gates, tape, y); });
  }
}

void attention(benchmark::State& state, std::int64_t rows, bool backward) {
  constexpr int stories = 32, heads = 8;
  Bench b;
  Tensor offsets = Tensor::empty({stories + 1}, DType::i32);
  for (int i = 0; i <= stories; ++i) offsets.data<std::int32_t>()[i] = static_cast<std::int32_t>(rows / stories * i);
  const Sequences sequences{offsets.to(b.ctx->device), stories, rows / stories, rows};
  const Tensor qkv = b.random({rows, 3 * d}, DType::bf16), dout = b.random({rows, d}, DType::bf16);
  Tensor out = b.random({rows, d}, DType::bf16), lse = b.random({heads, rows}, DType::f32);
  Tensor dqkv = b.empty({rows, 3 * d}, DType::bf16);
  attention_forward(*b.ctx, qkv, sequences, heads, true, out, lse);
  // Two GEMMs forward and five backward, half of each under the causal mask.
  const double product = static_cast<double>(rows * (rows / stories) * d);
  if (backward) {
    time_loop(b, state, 0, 5 * product,
              [&] { attention_backward(*b.ctx, dout, qkv, out, lse, sequences, heads, true, dqkv); });
  } else {
    time_loop(b, state, 0, 2 * product, [&] { attention_forward(*b.ctx, qkv, sequences, heads, true, out, lse); });
  }
}

void register_all() {
  // The GPU's own GEMM rate, with which the GEMMs below are compared.
  add("linear_8192_8192", [](auto& state, std::int64_t rows) { linear(state, rows, 8192, 8192, DType::bf16, false); },
      {8192});
  struct Mixture {
    const char* name;
    std::int64_t width, hidden, number;
    bool features;
  };
  for (const Mixture& one : {Mixture{"a4", 512, 1024, 64, false}, Mixture{"a1", 384, 1024, 64, false},
                             Mixture{"b2", 512, 1024, 256, false}, Mixture{"features", 512, 1024, 64, true}}) {
    for (const bool backward : {false, true}) {
      add(std::string(backward ? "experts_backward_" : "experts_forward_") + one.name,
          [one, backward](auto& state, std::int64_t rows) {
            mixture(state, rows, one.width, one.hidden, one.number, one.features, backward);
          });
    }
  }
  for (const bool backward : {false, true}) {
    add(backward ? "attention_backward" : "attention_forward",
        [backward](auto& state, std::int64_t rows) { attention(state, rows, backward); });
  }
  // Time of a launch of an empty kernel, a lower bound per kernel for operations of several small kernels.
  add("smallest_kernel",
      [](auto& state, std::int64_t count) {
        Bench b;
        Tensor x = b.empty({count}, DType::f32);
        time_loop(b, state, 0, 0, [&] { fill(*b.ctx, 1.0, x); });
      },
      {1});
  add("linear_512_1536", [](auto& state, std::int64_t rows) { linear(state, rows, d, 3 * d, DType::bf16, false); });
  add("linear_512_512", [](auto& state, std::int64_t rows) { linear(state, rows, d, d, DType::bf16, false); });
  add("linear_1024_512_to_fp32",
      [](auto& state, std::int64_t rows) { linear(state, rows, 2 * d, d, DType::f32, false); });
  add("linear_backward_512_1536",
      [](auto& state, std::int64_t rows) { linear(state, rows, d, 3 * d, DType::bf16, true); });
  add("linear_backward_512_512", [](auto& state, std::int64_t rows) { linear(state, rows, d, d, DType::bf16, true); });
  add("linear_backward_1024_512_fp32",
      [](auto& state, std::int64_t rows) { linear(state, rows, 2 * d, d, DType::f32, true); });
  add("linear_gelu_512_1024", [](auto& state, std::int64_t rows) {
    Bench b;
    const Tensor x = b.random({rows, d}, DType::bf16);
    const Param weight = b.param({2 * d, d}, 0.05), bias = b.param({2 * d}, 0.05);
    Tensor pre = b.empty({rows, 2 * d}, DType::bf16), y = b.empty({rows, 2 * d}, DType::bf16);
    time_loop(b, state, 0, 2.0 * static_cast<double>(rows * d * 2 * d),
              [&] { linear_gelu_forward(*b.ctx, x, weight, bias, pre, y); });
  });
  add("linear_gelu_backward_512_1024", [](auto& state, std::int64_t rows) {
    Bench b;
    const Tensor x = b.random({rows, d}, DType::bf16), pre = b.random({rows, 2 * d}, DType::bf16);
    const Param weight = b.param({2 * d, d}, 0.05), bias = b.param({2 * d}, 0.05);
    Tensor dy = b.random({rows, 2 * d}, DType::bf16), dx = b.empty({rows, d}, DType::bf16);
    time_loop(b, state, 0, 4.0 * static_cast<double>(rows * d * 2 * d),
              [&] { linear_gelu_backward(*b.ctx, pre, dy, x, weight, bias, &dx, Into::overwrite); });
  });
  add("add_norm", [](auto& state, std::int64_t rows) {
    Bench b;
    const Tensor x = b.random({rows, d}, DType::bf16), addend = b.random({rows, d}, DType::bf16);
    const Param weight = b.param({d}, 1.0), bias = b.param({d}, 1.0);
    Tensor sum = b.empty({rows, d}, DType::bf16), y = b.empty({rows, d}, DType::bf16),
           mean = b.empty({rows}, DType::f32), rstd = b.empty({rows}, DType::f32);
    time_loop(b, state, 8.0 * static_cast<double>(rows * d), 0,
              [&] { add_norm_forward(*b.ctx, x, &addend, weight, bias, sum, y, mean, rstd); });
  });
  add("norm_backward", [](auto& state, std::int64_t rows) {
    Bench b;
    const Tensor dy = b.random({rows, d}, DType::bf16), sum = b.random({rows, d}, DType::bf16);
    const Tensor mean = b.random({rows}, DType::f32), rstd = b.random({rows}, DType::f32);
    const Param weight = b.param({d}, 1.0), bias = b.param({d}, 1.0);
    Tensor dsum = b.empty({rows, d}, DType::bf16);
    time_loop(b, state, 6.0 * static_cast<double>(rows * d), 0,
              [&] { norm_backward(*b.ctx, dy, sum, mean, rstd, weight, bias, nullptr, dsum); });
  });
  add("query_forward", [](auto& state, std::int64_t rows) {
    Bench b;
    const Tensor raw = b.random({rows, d}, DType::f32);
    Tensor query = b.empty({rows, d}, DType::f32), norms = b.empty({rows, 2}, DType::f32);
    time_loop(b, state, 8.0 * static_cast<double>(rows * d), 0,
              [&] { query_forward(*b.ctx, raw, nullptr, 0.0, query, norms); });
  });
  add("route_forward", [](auto& state, std::int64_t rows) {
    Bench b;
    Choices c(b, rows);
    time_loop(b, state, 0, 2.0 * static_cast<double>(rows * d * experts),
              [&] { route_forward(*b.ctx, c.query, c.keys, nullptr, c.temperature, false, c.routing); });
  });
  add("route_backward", [](auto& state, std::int64_t rows) {
    Bench b;
    Choices c(b, rows);
    const Tensor dgates = b.random({rows, top_k}, DType::f32);
    Tensor dquery = b.empty({rows, d}, DType::f32);
    time_loop(b, state, 4.0 * static_cast<double>(rows * d), 0,
              [&] { route_backward(*b.ctx, dgates, c.routing, c.keys, c.temperature, dquery, nullptr); });
  });
  add("key_sums", [](auto& state, std::int64_t rows) {
    Bench b;
    Choices c(b, rows);
    KeySums sums = make_key_sums(*b.ctx, experts, top_k, d, needs_of(KeySettings()));
    time_loop(b, state, 4.0 * static_cast<double>(rows * top_k * d), 0, [&] {
      clear_key_sums(*b.ctx, sums);
      add_key_sums(*b.ctx, {c.query, c.routing, plan_update(KeySettings(), {}), 0, &sums}, nullptr);
    });
  });
  add("key_sums_10_layers", [](auto& state, std::int64_t rows) {
    Bench b;
    Choices c(b, rows);
    std::vector<KeySums> sums;
    for (int l = 0; l < 10; ++l) sums.push_back(make_key_sums(*b.ctx, experts, top_k, d, needs_of(KeySettings())));
    std::vector<LayerChoices> layers;
    for (KeySums& own : sums) layers.push_back({c.query, c.routing, plan_update(KeySettings(), {}), 0, &own});
    time_loop(b, state, 40.0 * static_cast<double>(rows * top_k * d), 0, [&] {
      clear_key_sums(*b.ctx, sums);
      add_key_sums(*b.ctx, layers, nullptr);
    });
  });
  add("key_update_10_layers", [](auto& state, std::int64_t rows) {
    Bench b;
    Choices c(b, rows);
    KeySettings settings;
    settings.decay_warmup = 0;
    KeySums sums = make_key_sums(*b.ctx, experts, top_k, d, needs_of(KeySettings()));
    add_key_sums(*b.ctx, {c.query, c.routing, plan_update(KeySettings(), {}), 0, &sums}, nullptr);
    std::vector<KeyState> keys;
    for (int l = 0; l < 10; ++l) keys.push_back(make_key_state(*b.ctx, experts, d, 1, l, settings));
    std::vector<LayerUpdate> layers;
    for (KeyState& own : keys) layers.push_back({&own, &sums, plan_update(settings, {})});
    time_loop(b, state, 0, 0, [&] { update_keys(*b.ctx, layers); });
  });
  add("key_update", [](auto& state, std::int64_t rows) {
    Bench b;
    Choices c(b, rows);
    KeySettings settings;
    settings.decay_warmup = 0;
    KeyState keys = make_key_state(*b.ctx, experts, d, 1, 0, settings);
    KeySums sums = make_key_sums(*b.ctx, experts, top_k, d, needs_of(KeySettings()));
    add_key_sums(*b.ctx, {c.query, c.routing, plan_update(KeySettings(), {}), 0, &sums}, nullptr);
    const KeyPlan plan = plan_update(settings, {});
    time_loop(b, state, 0, 0, [&] { update_keys(*b.ctx, keys, sums, plan); });
  });
  add("embed", [](auto& state, std::int64_t rows) {
    Bench b;
    const Tensor tokens = b.numbers({rows}, vocabulary), positions = b.numbers({rows}, 768);
    const Param table = b.param({vocabulary, d}, 1.0);
    Tensor out = b.empty({rows, d}, DType::bf16);
    time_loop(b, state, 6.0 * static_cast<double>(rows * d), 0,
              [&] { embed_forward(*b.ctx, tokens, positions, table, true, out); });
  });
  // Three quarters of the tokens are padding, as in a padded batch.
  add("embed_backward", [](auto& state, std::int64_t rows) {
    Bench b;
    Tensor tokens = b.numbers({rows}, vocabulary).to(Device::cpu);
    for (std::int64_t t = rows / 4; t < rows; ++t) tokens.data<std::int32_t>()[t] = 1;
    tokens = tokens.to(b.ctx->device);
    const Param table = b.param({vocabulary, d}, 1.0);
    const Tensor dout = b.random({rows, d}, DType::bf16);
    time_loop(b, state, 2.0 * static_cast<double>(rows * d), 0, [&] {
      const ArenaScope scope(*b.ctx->arena);
      embed_backward(*b.ctx, tokens, order_tokens(*b.ctx, tokens, table), dout, table);
    });
  });
  add("head_loss",
      [](auto& state, std::int64_t rows) {
        Bench b;
        const Tensor h = b.random({rows, d}, DType::bf16), targets = b.numbers({rows}, vocabulary);
        const Param weight = b.param({vocabulary, d}, 0.05), bias = b.param({vocabulary}, 0.05);
        Tensor nll = b.empty({rows}, DType::f32), dh = b.empty({rows, d}, DType::bf16);
        time_loop(b, state, 0, 6.0 * static_cast<double>(rows * d * vocabulary),
                  [&] { head_loss(*b.ctx, h, weight, bias, targets, 1e-4, nll, &dh); });
      },
      {24576, 6144, 4096, 2048});
  add("norm_and_adamw",
      [](auto& state, std::int64_t count) {
        Bench b;
        Tensor value = b.random({count}, DType::f32), compute = b.empty({count}, DType::bf16),
               first = b.empty({count}, DType::f32), second = b.empty({count}, DType::f32);
        const Tensor grad = b.random({count}, DType::f32, 1e-3);
        Tensor norm = b.empty({1}, DType::f32);
        time_loop(b, state, 34.0 * static_cast<double>(count), 0, [&] {
          gradient_norm(*b.ctx, grad, norm);
          adamw_step(*b.ctx, value, compute, grad, first, second, norm, AdamSettings{});
        });
      },
      {29420000});
  for (const char* method : {"default", "sparse", "orthogonal"}) {
    add(std::string("library_layer_") + method,
        [method](auto& state, std::int64_t count) {
          Bench b;
          LibrarySpec spec;
          spec.method = method;
          spec.experts = static_cast<int>(count);
          for (auto _ : state) {
            some::cuda::Event begin(b.ctx->device), end(b.ctx->device);
            begin.record();
            make_layer_library(*b.ctx, spec, 0);
            end.record();
            state.SetIterationTime(end.milliseconds_since(begin) / 1000.0);
          }
        },
        {64, 512});
  }
}

}  // namespace
}  // namespace some

int main(int argc, char** argv) {
  some::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
