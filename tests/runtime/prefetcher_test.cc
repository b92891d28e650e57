#include "runtime/prefetcher.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/device.h"

namespace some {
namespace {

TEST(Prefetcher, IsOfNoUseOnTheCpu) { EXPECT_FALSE(Prefetcher::possible(*make_context("cpu", "fp32"))); }

// Prefetched copies run while others read the previous results: correct only if each waits for its inputs and neither
// overwrites what the other reads.
TEST(Prefetcher, TakesTurnsWithWhatTakesItIn) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  auto ctx = make_context("cuda", "fp32");
  constexpr std::int64_t count = std::int64_t{1} << 20;
  constexpr int steps = 21;
  std::vector<Tensor> hosts, sources;
  for (int step = 0; step < steps; ++step) {
    Tensor& host = hosts.emplace_back(Tensor::empty({count}, DType::f32));
    for (std::int64_t i = 0; i < count; ++i) host.data<float>()[i] = static_cast<float>(i % 1009 + step);
    sources.push_back(host.to(ctx->device));
  }
  const auto make = [&](Context& on, int step) {
    Tensor first = on.scratch({count}), second = on.scratch({count});
    on.copy(sources[static_cast<std::size_t>(step)], first);
    on.copy(first, second);
    return second;
  };
  for (const int last : {steps, 6, 7}) {  // the latter two end with a prefetched step, in either of the arenas
    Prefetcher prefetcher(*ctx);
    ctx->arena->reset();
    Tensor now = make(*ctx, 0);
    for (int step = 0; step < last; ++step) {
      EXPECT_EQ(prefetcher.current().arena == ctx->arena, step % 2 == 0);
      prefetcher.fork();
      Tensor taken = prefetcher.current().scratch({count});
      prefetcher.current().copy(now, taken);
      Tensor next;
      if (step + 1 < steps) next = make(prefetcher.ahead(), step + 1);
      const Tensor back = taken.to(Device::cpu);
      const float* const expected = hosts[static_cast<std::size_t>(step)].data<float>();
      ASSERT_EQ(std::vector<float>(back.data<float>(), back.data<float>() + count),
                std::vector<float>(expected, expected + count))
          << "in step " << step << " of " << last;
      if (step + 1 == last) break;
      prefetcher.join();
      now = next;
    }
  }
}

}  // namespace
}  // namespace some
