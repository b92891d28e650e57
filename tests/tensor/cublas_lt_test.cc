// Checks that the functions of src/tensor/cublas_lt_cuda.cu forward to the library. Calls only functions that need no
// GPU.
#ifdef SOME_WITH_CUDA
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace some {
namespace {

TEST(CublasLt, IsLoadedWhenItIsUsed) {
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS), "success");
  EXPECT_STRNE(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE), "success");
}

TEST(CublasLt, ArgumentsArriveInTheirPlaces) {
  cublasLtMatmulDescOpaque_t operation{};
  ASSERT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const auto set = [&](std::size_t size) {
    return cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, size);
  };
  EXPECT_EQ(set(sizeof transposed), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(set(1), CUBLAS_STATUS_SUCCESS) << "the size is not that of the attribute";

  cublasLtMatrixLayoutOpaque_t layout{};
  EXPECT_EQ(cublasLtMatrixLayoutInit(&layout, CUDA_R_32F, 3, 5, 3), CUBLAS_STATUS_SUCCESS);

  cublasLtMatmulPreferenceOpaque_t preference{};
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  const std::size_t bytes = std::size_t{32} << 20;
  EXPECT_EQ(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
      CUBLAS_STATUS_SUCCESS);
}

TEST(CublasLt, ProductsWithoutAHandleAreRefused) {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t layout{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  ASSERT_EQ(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatrixLayoutInit(&layout, CUDA_R_32F, 4, 4, 4), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  EXPECT_NE(cublasLtMatmulAlgoGetHeuristic(nullptr, &operation, &layout, &layout, &layout, &layout, &preference, 1,
                                           &result, &found),
            CUBLAS_STATUS_SUCCESS);
  float numbers[16] = {};
  const float one = 1.0f, zero = 0.0f;
  EXPECT_NE(cublasLtMatmul(nullptr, &operation, &one, numbers, &layout, numbers, &layout, &zero, numbers, &layout,
                           numbers, &layout, &result.algo, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace some
#endif
