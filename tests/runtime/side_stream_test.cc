#include "runtime/side_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/device.h"

namespace some {
namespace {

TEST(SideStream, ScopesGiveNothingBackWhileItRuns) {
  auto ctx = make_context("cpu", "fp32");
  const Tensor before = ctx->scratch({64});
  ctx->arena->keep(true);
  const void* kept = nullptr;
  {
    const ArenaScope scope(*ctx->arena);
    kept = ctx->scratch({64}).raw();
  }
  ctx->arena->keep(false);
  EXPECT_NE(ctx->scratch({64}).raw(), kept);
  const void* given_back = nullptr;
  {
    const ArenaScope scope(*ctx->arena);
    given_back = ctx->scratch({64}).raw();
  }
  EXPECT_EQ(ctx->scratch({64}).raw(), given_back);
}

TEST(SideStream, IsNothingOnTheCpu) {
  auto ctx = make_context("cpu", "fp32");
  const Tensor before = ctx->scratch({64});
  const void* given_back = nullptr;
  {
    const SideStream beside(*ctx);
    const ArenaScope scope(*ctx->arena);
    given_back = ctx->scratch({64}).raw();
  }
  join_side_stream(*ctx);
  EXPECT_EQ(ctx->scratch({64}).raw(), given_back);
}

// Copies alternate between two streams, each copying the previous result: correct only if each waits for the other.
TEST(SideStream, BeginsAfterWhatWasBeforeAndIsJoined) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  auto ctx = make_context("cuda", "fp32");
  constexpr std::int64_t count = std::int64_t{1} << 22;
  Tensor host = Tensor::empty({count}, DType::f32);
  for (int round = 0; round < 20; ++round) {
    ctx->arena->reset();
    for (std::int64_t i = 0; i < count; ++i) host.data<float>()[i] = static_cast<float>(i % 1009 + round);
    Tensor first = ctx->scratch({count}), second = ctx->scratch({count}), third = ctx->scratch({count});
    third.zero();
    first.copy_from(host);
    {
      const SideStream beside(*ctx);
      Tensor between = ctx->scratch({count});
      between.copy_from(first);
      second.copy_from(between);
    }
    ctx->scratch({count}).zero();  // would be `between` if its memory had been released
    join_side_stream(*ctx);
    third.copy_from(second);
    const Tensor back = third.to(Device::cpu);
    ASSERT_EQ(std::vector<float>(back.data<float>(), back.data<float>() + count),
              std::vector<float>(host.data<float>(), host.data<float>() + count))
        << "in round " << round;
  }
}

}  // namespace
}  // namespace some
