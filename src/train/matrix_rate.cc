#include "train/matrix_rate.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernels/cpu/gemm.h"
#include "ops/linear.h"
#include "tensor/device.h"

namespace some {
namespace {

Tensor random_tensor(Context& ctx, Shape shape, DType type, const char* name) {
  Tensor host = Tensor::empty(shape, DType::f32);
  const RandomStream stream = random_stream(1, name);
  parallel_chunks(*ctx.threads, host.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) host.data<float>()[i] = stream.symmetric(static_cast<std::uint64_t>(i));
  });
  Tensor typed = type == DType::f32 ? host : host.to(type);
  return ctx.device.is_cpu() ? typed : typed.to(ctx.device);
}

}  // namespace

double measure_gemm_rate(Context& ctx) {
  const bool gpu = ctx.device.is_cuda();
  const std::int64_t m = gpu ? 8192 : 4096, n = gpu ? 8192 : 512, k = gpu ? 8192 : 1024;
  const Tensor x = random_tensor(ctx, {m, k}, ctx.compute, "bench.x");
  Param weight;
  weight.value = weight.compute = random_tensor(ctx, {n, k}, ctx.compute, "bench.w");
  Tensor y = Tensor::zeros({m, n}, ctx.compute, ctx.device);
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    const int repeats = gpu ? 10 : 1;
    device_synchronize(ctx.device);
    const auto start = std::chrono::steady_clock::now();
    for (int r = 0; r < repeats; ++r) linear_forward(ctx, x, weight, Param(), y);
    device_synchronize(ctx.device);
    if (i >= 2)
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats);
  }
  std::sort(seconds.begin(), seconds.end());
  double rate =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds[seconds.size() / 2];
  // The library's own threading may be faster than ours: the larger rate is the machine's.
  if (!gpu && ctx.compute == DType::f32) rate = std::max(rate, cpu::peak_gemm_rate(*ctx.threads, m, n, k, 0.5));
  return rate;
}

}  // namespace some
