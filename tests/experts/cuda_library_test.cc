// The frozen library has the same bits on the GPU as on the CPU, for every method and shape.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>

#include "core/error.h"
#include "experts/library.h"
#include "tensor/device.h"

namespace some {
namespace {

struct Size {
  int experts, d_model, d_ffn;
};

class CudaLibrary : public testing::TestWithParam<std::tuple<std::string, Size>> {
 protected:
  void SetUp() override {
    if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
    spec_.seed = 7;
    spec_.method = std::get<0>(GetParam());
    spec_.experts = std::get<1>(GetParam()).experts;
    spec_.d_model = std::get<1>(GetParam()).d_model;
    spec_.d_ffn = std::get<1>(GetParam()).d_ffn;
  }
  LayerLibrary make(const std::string& device, const std::string& precision) {
    const auto ctx = make_context(device, precision);
    return make_layer_library(*ctx, spec_, 3);
  }
  LibrarySpec spec_;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST_P(CudaLibrary, IsTheOneOfTheCpu) {
  const LayerLibrary cpu = make("cpu", "fp32"), gpu = make("cuda", "fp32");
  EXPECT_EQ(cpu.hash, gpu.hash);
  EXPECT_TRUE(same_bits(cpu.weights.w1, gpu.weights.w1.to(Device::cpu)));
  EXPECT_TRUE(same_bits(cpu.weights.w2, gpu.weights.w2.to(Device::cpu)));
}

TEST_P(CudaLibrary, IsRoundedOnceToBfloat16) {
  const LayerLibrary cpu = make("cpu", "fp32"), gpu = make("cuda", "bf16");
  EXPECT_EQ(cpu.hash, gpu.hash);
  EXPECT_TRUE(same_bits(cpu.weights.w1.to(DType::bf16), gpu.weights.w1.to(Device::cpu)));
  EXPECT_TRUE(same_bits(cpu.weights.w2.to(DType::bf16), gpu.weights.w2.to(Device::cpu)));
}

TEST_P(CudaLibrary, MayHaveNoUpMatrices) {
  spec_.has_w2 = false;
  const LayerLibrary cpu = make("cpu", "fp32"), gpu = make("cuda", "fp32");
  EXPECT_EQ(cpu.hash, gpu.hash);
  EXPECT_FALSE(static_cast<bool>(gpu.weights.w2));
}

TEST_P(CudaLibrary, HasThePartsOfTheWhole) {
  for (const Block part : {Block{0, spec_.experts / 2}, Block{spec_.experts / 2, spec_.experts}}) {
    if (part.count() == 0) continue;
    spec_.part = part;
    const LayerLibrary cpu = make("cpu", "fp32"), gpu = make("cuda", "fp32");
    EXPECT_EQ(cpu.hash, gpu.hash);
    EXPECT_TRUE(same_bits(cpu.weights.w1, gpu.weights.w1.to(Device::cpu)));
    EXPECT_TRUE(same_bits(cpu.weights.w2, gpu.weights.w2.to(Device::cpu)));
  }
}

// A single number, at most one panel, more than one block's threads, both orientations, and the published shape.
INSTANTIATE_TEST_SUITE_P(All, CudaLibrary,
                         testing::Combine(testing::Values("default", "sparse", "orthogonal"),
                                          testing::Values(Size{1, 1, 1}, Size{3, 16, 16}, Size{3, 40, 65},
                                                          Size{2, 50, 33}, Size{1, 96, 1300}, Size{1, 2000, 40},
                                                          Size{2, 512, 1024})),
                         [](const auto& info) {
                           const Size size = std::get<1>(info.param);
                           return std::get<0>(info.param) + "_" + std::to_string(size.experts) + "_" +
                                  std::to_string(size.d_model) + "_" + std::to_string(size.d_ffn);
                         });

TEST(CudaLibraryErrors, UnknownMethod) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  const auto ctx = make_context("cuda", "bf16");
  LibrarySpec spec;
  spec.method = "wild";
  EXPECT_THROW(make_layer_library(*ctx, spec, 0), Error);
}

}  // namespace
}  // namespace some
