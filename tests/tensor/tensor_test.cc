#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/device.h"

namespace some {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ((Shape{2, 3, 4}.elements()), 24);
  EXPECT_EQ((Shape{}.elements()), 1);
  EXPECT_EQ((Shape{5, 0}.elements()), 0);
  EXPECT_EQ((Shape{2, 3}.text()), "[2, 3]");
  EXPECT_EQ((Shape{2, 3}[-1]), 3);
  EXPECT_THROW((Shape{-1, 2}.elements()), Error);
  EXPECT_THROW((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}.elements()), Error);
}

TEST(Tensor, ViewsShareMemoryAndClonesDoNot) {
  Tensor tensor = Tensor::zeros({4, 3}, DType::f32);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 256, 0u);
  Tensor rows = tensor.rows(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  rows.data<float>()[0] = 5;
  EXPECT_EQ(tensor.data<float>()[3], 5);
  const Tensor copy = tensor.clone();
  tensor.data<float>()[3] = 6;
  EXPECT_EQ(copy.data<float>()[3], 5);
  EXPECT_EQ(tensor.reshape({2, 6}).data<float>()[3], 6);
  EXPECT_EQ(tensor.view(3, {2}).data<float>()[0], 6);
  EXPECT_EQ(tensor.rows(4, 4).elements(), 0);
  EXPECT_THROW(tensor.reshape({5}), Error);
  EXPECT_THROW(tensor.rows(2, 5), Error);
  EXPECT_THROW(tensor.rows(-1, 2), Error);
  EXPECT_THROW(tensor.view(11, {2}), Error);
  EXPECT_THROW(tensor.data<double>(), Error);
}

TEST(Tensor, ViewKeepsMemoryAlive) {
  Tensor rows;
  {
    const Tensor tensor = Tensor::zeros({1000, 3}, DType::f64);
    rows = tensor.rows(500, 501);
  }
  rows.data<double>()[2] = 1;
  EXPECT_EQ(rows.data<double>()[2], 1);
}

TEST(Tensor, EmptyIsNotAbsent) {
  EXPECT_FALSE(Tensor());
  EXPECT_TRUE(Tensor::empty({0, 4}, DType::i32));
  EXPECT_EQ(Tensor::zeros({0}, DType::i32).bytes(), 0u);
  EXPECT_FALSE(Tensor().clone());
}

TEST(Tensor, CopyFromChecksShapeAndType) {
  Tensor a = Tensor::zeros({2}, DType::i64);
  Tensor b = Tensor::zeros({2}, DType::i64);
  b.data<std::int64_t>()[1] = 9;
  a.copy_from(b);
  EXPECT_EQ(a.data<std::int64_t>()[1], 9);
  EXPECT_THROW(a.copy_from(Tensor::zeros({3}, DType::i64)), Error);
  EXPECT_THROW(a.copy_from(Tensor::zeros({2}, DType::f64)), Error);
  a.zero();
  EXPECT_EQ(a.data<std::int64_t>()[1], 0);
}

TEST(Tensor, LargeTensorIsWhole) {
  const Tensor tensor = Tensor::zeros({3, 1 << 20}, DType::f32);
  tensor.data<float>()[3 * (1 << 20) - 1] = 2;
  EXPECT_EQ(tensor.data<float>()[3 * (1 << 20) - 1], 2);
}

TEST(Tensor, ConvertsBetweenTypes) {
  Tensor source = Tensor::empty({3}, DType::f64);
  source.data<double>()[0] = 1.5;
  source.data<double>()[1] = -7;
  source.data<double>()[2] = 3e38;
  const Tensor narrow = source.to(DType::bf16);
  EXPECT_EQ(narrow.dtype(), DType::bf16);
  const Tensor back = narrow.to(DType::f32);
  EXPECT_EQ(back.data<float>()[0], 1.5f);
  EXPECT_EQ(back.data<float>()[1], -7.0f);
  EXPECT_NEAR(back.data<float>()[2] / 3e38, 1, 0.004);
  EXPECT_EQ(source.rows(0, 2).to(DType::i32).data<std::int32_t>()[1], -7);
  EXPECT_EQ(narrow.rows(0, 2).to(DType::i64).data<std::int64_t>()[1], -7);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.0f + 1.0f / 256).bits, 0x3F80);  // tie: rounds to even
  EXPECT_EQ(to_bfloat16(1.0f + 3.0f / 256).bits, 0x3F82);  // tie: rounds up to even
  EXPECT_EQ(to_bfloat16(1.0f + 1.001f / 256).bits, 0x3F81);
  EXPECT_EQ(to_bfloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::signaling_NaN()))));
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    if (!std::isnan(to_float(value))) {
      ASSERT_EQ(to_bfloat16(to_float(value)).bits, bits);
    }
  }
}

TEST(Device, NoCudaSaysSoOrWorks) {
  if (cuda::available()) {
    const Device gpu(cuda::open(cuda::first_usable_gpu())), twin(cuda::open(cuda::first_usable_gpu()));
    const Tensor there = Tensor::zeros({5}, DType::f32, gpu);
    EXPECT_NE(gpu, twin);
    EXPECT_EQ(there.to(twin).to(Device::cpu).data<float>()[4], 0.0f);
    return;
  }
  EXPECT_FALSE(cuda::unavailable_reason_text().empty());
  EXPECT_THROW(cuda::open(0), Error);
}

}  // namespace
}  // namespace some
