#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "runtime/context.h"
#include "runtime/machine.h"
#include "tensor/device.h"

namespace some {
namespace {

std::uintptr_t address(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw()); }

TEST(Arena, AllocatesAlignedAndApart) {
  Arena arena(Device::cpu);
  const Tensor a = arena.allocate({3}, DType::f32);
  const Tensor b = arena.allocate({0}, DType::f32);
  const Tensor c = arena.allocate({100, 100}, DType::f64);
  EXPECT_EQ(address(a) % 256, 0u);
  EXPECT_EQ(address(c) % 256, 0u);
  EXPECT_TRUE(b);
  EXPECT_NE(address(b), address(c));
  EXPECT_GE(address(c), address(a) + a.bytes());
  EXPECT_EQ(arena.peak_bytes(), 256u + 256u + 80128u);
}

TEST(Arena, ScopeGivesBack) {
  Arena arena(Device::cpu);
  const Tensor kept = arena.allocate({10}, DType::i32);
  std::memset(kept.raw(), 7, kept.bytes());
  std::uintptr_t inside = 0;
  {
    ArenaScope scope(arena);
    inside = address(arena.allocate({1000}, DType::f32));
    {
      ArenaScope nested(arena);
      EXPECT_GT(address(arena.allocate({1000}, DType::f32)), inside);
    }
  }
  EXPECT_EQ(address(arena.allocate({1000}, DType::f32)), inside);
  EXPECT_EQ(kept.data<std::int32_t>()[9], 0x07070707);
  EXPECT_EQ(arena.peak_bytes(), 256u + 2 * 4096u);
}

TEST(Arena, BlocksMergeSoThatTheSteadyStateHasOne) {
  Arena arena(Device::cpu);
  const std::int64_t megabyte = 1 << 18;  // elements of f32
  std::vector<Tensor> tensors;
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(arena.allocate({3 * megabyte}, DType::f32));
    std::memset(tensors.back().raw(), i, 64);
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(static_cast<char*>(tensors[static_cast<std::size_t>(i)].raw())[63], i);
  EXPECT_EQ(arena.peak_bytes(), std::size_t{30} << 20);
  arena.reset();
  const std::uintptr_t first = address(arena.allocate({3 * megabyte}, DType::f32));
  for (int i = 1; i < 10; ++i)
    EXPECT_EQ(address(arena.allocate({3 * megabyte}, DType::f32)), first + static_cast<std::uintptr_t>(i) * (3u << 20));
  arena.reset();
  EXPECT_EQ(address(arena.allocate({1}, DType::f32)), first);  // the same block is reused
}

TEST(Arena, OutermostScopeMergesToo) {
  Arena arena(Device::cpu);
  for (int step = 0; step < 3; ++step) {
    ArenaScope scope(arena);
    const std::uintptr_t first = address(arena.allocate({1 << 20}, DType::f32));
    for (int i = 1; i < 5; ++i) {
      const std::uintptr_t next = address(arena.allocate({1 << 20}, DType::f32));
      if (step > 0) {
        EXPECT_EQ(next, first + static_cast<std::uintptr_t>(i) * (4u << 20));
      }
    }
  }
  EXPECT_EQ(arena.peak_bytes(), std::size_t{20} << 20);
}

TEST(Arena, ScopeAcrossBlocksKeepsEarlierContents) {
  Arena arena(Device::cpu);
  const Tensor kept = arena.allocate({1 << 18}, DType::i32);
  kept.data<std::int32_t>()[(1 << 18) - 1] = 42;
  for (int round = 0; round < 3; ++round) {
    ArenaScope scope(arena);
    for (int i = 0; i < 6; ++i) {
      const Tensor other = arena.allocate({1 << 19}, DType::i32);
      std::memset(other.raw(), 1, other.bytes());
    }
  }
  EXPECT_EQ(kept.data<std::int32_t>()[(1 << 18) - 1], 42);
}

TEST(Device, NamesAreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_device_name("cpu")->kind, DeviceKind::cpu);
  EXPECT_EQ(parse_device_name("cuda")->kind, DeviceKind::cuda);
  EXPECT_EQ(parse_device_name("cuda")->index, 0);
  EXPECT_EQ(parse_device_name("cuda:0")->kind, DeviceKind::cuda);
  EXPECT_EQ(parse_device_name("cuda:13")->index, 13);
  for (const std::string wrong : {"", "auto", "tpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda: 1", "cuda:N",
                                  "cuda:99999999999", "cpu:0", "CUDA"}) {
    EXPECT_FALSE(parse_device_name(wrong)) << wrong;
    if (wrong != "auto") {
      EXPECT_THROW(choose_device(wrong), Error) << wrong;
    }
  }
}

TEST(Machine, WhatIsChosenIsWrittenAsItWasRead) {
  using Kind = DeviceChoice::Kind;
  for (const std::string name : {"auto", "cpu", "cuda", "cuda:0", "cuda:13"})
    EXPECT_EQ(text_of(device_choice(name)), name);
  EXPECT_EQ(device_choice("cuda:13"), (DeviceChoice{Kind::cuda, 13}));
  EXPECT_EQ(device_choice("cuda"), (DeviceChoice{Kind::cuda, std::nullopt}));
  EXPECT_EQ(device_choice("auto"), DeviceChoice{});
  EXPECT_THROW(device_choice("tpu"), Error);
  EXPECT_FALSE(parse_device_choice("CUDA"));
  const std::vector<std::string> names = precision_choices();
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(precision_choice(names[i]), static_cast<PrecisionChoice>(i));
  EXPECT_THROW(precision_choice("int8"), Error);
  EXPECT_FALSE(parse_optional_precision(""));
  EXPECT_EQ(parse_optional_precision("bf16"), PrecisionChoice::bf16);
  EXPECT_EQ(resolve_precision(PrecisionChoice::automatic, DeviceKind::cuda), Precision::bf16);
  EXPECT_EQ(resolve_precision(PrecisionChoice::automatic, DeviceKind::cpu), Precision::fp32);
  EXPECT_EQ(resolve_precision(PrecisionChoice::f64, DeviceKind::cpu), Precision::f64);
}

TEST(Context, RefusesWhatADeviceCannotDo) {
  EXPECT_EQ(choose_device("cpu").kind, DeviceKind::cpu);
  EXPECT_EQ(choose_device(on_cpu).kind, DeviceKind::cpu);
  EXPECT_EQ(choose_device("auto").kind, cuda::available() ? DeviceKind::cuda : DeviceKind::cpu);
  if (!cuda::available()) {
    EXPECT_THROW(choose_device("cuda"), Error);
  }
  EXPECT_THROW(choose_device("cuda:4000"), Error);
  EXPECT_THROW(make_context("cpu", "int8"), Error);
  EXPECT_THROW(make_context("cuda", "f64"), Error);
  const auto context = make_context("cpu", "f64");
  EXPECT_EQ(context->compute, DType::f64);
  EXPECT_EQ(context->master, DType::f64);
  EXPECT_EQ(context->scratch({2, 2}).dtype(), DType::f64);
  EXPECT_EQ(make_context("cpu", "fp32")->master, DType::f32);
}

}  // namespace
}  // namespace some
