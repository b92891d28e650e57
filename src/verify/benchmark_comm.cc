#include "verify/benchmark_comm.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "runs/run.h"
#include "tensor/device.h"

namespace some {
namespace {

// Returns the seconds taken by `work` on all ranks: they start together, and the slowest rank counts.
template <typename Work>
double seconds_of_all(const Context& ctx, const Work& work) {
  device_synchronize(ctx.device);
  ctx.group.barrier();
  const auto begin = std::chrono::steady_clock::now();
  work();
  device_synchronize(ctx.device);
  const auto passed = std::chrono::steady_clock::now() - begin;
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
  return static_cast<double>(ctx.group.all_reduce_max(nanoseconds)) / 1e9;
}

template <typename Work>
double min_seconds(const Context& ctx, int repeats, const Work& work) {
  work();  // warm-up: allocates memory
  double best = INFINITY;
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of_all(ctx, work));
  return best;
}

// Least squares of relative errors: small sums determine the latency per message, large ones the bandwidth.
void fit_to_sums(CommBenchmark& bench) {
  double aa = 0, ab = 0, bb = 0, at = 0, bt = 0;
  for (const CommBenchmark::Measure& one : bench.sums) {
    const double a = (bench.ranks == 1 ? 1 : all_reduce_messages(bench.ranks)) / one.seconds;
    const double b = all_reduce_bytes_sent(bench.ranks, static_cast<double>(one.bytes)) / one.seconds;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    at += a;
    bt += b;
  }
  const double determinant = aa * bb - ab * ab;
  bench.message_seconds = (at * bb - bt * ab) / determinant;
  bench.bytes_per_second = determinant / (bt * aa - at * ab);
}

}  // namespace

std::string transport_name(const Group& group, const Device& device) {
  return group.has_gpu_link() ? "gpu to gpu" : device.is_cuda() ? "host, staged" : "host";
}

double all_reduce_bytes_sent(int ranks, double bytes) { return ranks == 1 ? bytes : all_reduce_bytes(ranks, bytes); }

CommBenchmark bench_comm(const Group& group, const DeviceChoice& device, std::int64_t max_bytes, int repeats) {
  TrainConfig train;
  train.device = device;
  const std::shared_ptr<Context> ctx = recipe_context(train, make_host(0, {}, group));
  CommBenchmark out;
  out.ranks = group.size();
  out.device = ctx->device.is_cuda() ? some::cuda::device_name(ctx->device) : "cpu";
  out.way = transport_name(group, ctx->device);
  for (std::int64_t bytes = 1 << 10; bytes <= max_bytes; bytes *= 4) {
    const Tensor tensor = Tensor::zeros({bytes / 4}, DType::f32, ctx->device);
    out.sums.push_back(
        {bytes, min_seconds(*ctx, repeats, [&] { group.all_reduce_sum(*ctx->threads, std::array{tensor}); })});
    const std::int64_t rows = bytes / 4 / group.size();
    const Tensor from = Tensor::zeros({rows * group.size()}, DType::f32, ctx->device), to = from.clone();
    const std::vector<std::int64_t> each(static_cast<std::size_t>(group.size()), rows);
    out.exchanges.push_back({static_cast<std::int64_t>(from.bytes()),
                             min_seconds(*ctx, repeats, [&] { group.all_to_all(from, each, to, each); })});
  }
  fit_to_sums(out);
  return out;
}

}  // namespace some
