#include "runtime/schedule.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/device.h"

namespace some {
namespace {

TEST(Arena, SharedMemoryIsReleasedByTheScopesOfOneOnly) {
  Arena arena(Device::cpu);
  Arena keeping(arena, Arena::Scopes::keep);
  const Tensor before = arena.allocate({64}, DType::f32);
  const void *kept = nullptr, *released = nullptr;
  {
    const ArenaScope outer(arena);
    {
      const ArenaScope scope(keeping);
      kept = keeping.allocate({64}, DType::f32).raw();
    }
    released = arena.allocate({64}, DType::f32).raw();
    EXPECT_NE(released, kept);
  }
  EXPECT_EQ(keeping.allocate({64}, DType::f32).raw(), kept);
  EXPECT_EQ(arena.allocate({64}, DType::f32).raw(), released);
  EXPECT_EQ(keeping.peak_bytes(), arena.peak_bytes());
}

TEST(Schedule, HasOneContextOnTheCpu) {
  auto ctx = make_context("cpu", "fp32");
  Schedule schedule(*ctx);
  EXPECT_EQ(&schedule.main(), ctx.get());
  EXPECT_EQ(&schedule.deferring(), ctx.get());
  EXPECT_EQ(&schedule.fork(), ctx.get());
  schedule.join();
}

TEST(Context, CopiesWhatHasTheSameShapeAndType) {
  auto ctx = make_context("cpu", "fp32");
  const Tensor from = Tensor::zeros({2}, DType::f32);
  from.data<float>()[1] = 3;
  Tensor to = Tensor::zeros({2}, DType::f32), wider = Tensor::zeros({3}, DType::f32);
  ctx->copy(from, to);
  EXPECT_EQ(to.data<float>()[1], 3);
  EXPECT_THROW(ctx->copy(from, wider), Error);
}

// Copies that alternate between the two streams, each of what the previous one wrote: only right if each waits for the
// other.
TEST(Schedule, ForkedWorkStartsAfterEarlierWorkAndIsJoined) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  auto ctx = make_context("cuda", "fp32");
  Schedule schedule(*ctx);
  constexpr std::int64_t count = std::int64_t{1} << 22;
  Tensor host = Tensor::empty({count}, DType::f32);
  for (int round = 0; round < 20; ++round) {
    ctx->arena->reset();
    for (std::int64_t i = 0; i < count; ++i) host.data<float>()[i] = static_cast<float>(i % 1009 + round);
    Tensor first = ctx->scratch({count}), second = ctx->scratch({count}), third = ctx->scratch({count});
    third.zero();
    first.copy_from(host);
    Context& side = schedule.fork();
    EXPECT_NE(side.cuda, ctx->cuda);
    {
      const ArenaScope scope(*side.arena);
      Tensor between = side.scratch({count});
      side.copy(first, between);
      side.copy(between, second);
    }
    ctx->scratch({count}).zero();  // would be `between` if the scope had released it
    schedule.join();
    third.copy_from(second);
    const Tensor back = third.to(Device::cpu);
    ASSERT_EQ(std::vector<float>(back.data<float>(), back.data<float>() + count),
              std::vector<float>(host.data<float>(), host.data<float>() + count))
        << "in round " << round;
  }
}

}  // namespace
}  // namespace some
