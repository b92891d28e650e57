// Dense GEMM through cuBLASLt. cuBLASLt expects column-major matrices, for which a row-major matrix is its transpose.
// So it computes result^T = second^T * first^T.
#include <algorithm>
#include <array>

#include "kernels/cuda/strided_matmul.h"
#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {
namespace {

cudaDataType_t blas_type(DType type) {
  switch (type) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    default: failed(Code::type_unsupported, "the GPU's matrix product does not take {}", name_of(type));
  }
}

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

// Rounds the token count, which changes from batch to batch. All counts that round to the same number share one
// algorithm, so that cuBLASLt's heuristic runs a few times rather than in every step.
std::int64_t rounded(std::int64_t extent) {
  const std::int64_t grain = extent > 4096 ? 1024 : extent > 512 ? 256 : 64;
  return (extent + grain - 1) / grain * grain;
}

struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, result;
};

// Here `key.first...` describes cuBLASLt's left matrix.
Problem make_problem(const MatmulKey& key, const void* bias, const RowStrides& strides = {}) {
  Problem problem{};
  SOME_CUBLAS_CHECK(cublasLtMatmulDescInit(&problem.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t left_op = key.first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t right_op = key.second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  SOME_CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(&problem.operation, CUBLASLT_MATMUL_DESC_TRANSA, &left_op, sizeof left_op));
  SOME_CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(&problem.operation, CUBLASLT_MATMUL_DESC_TRANSB, &right_op, sizeof right_op));
  if (key.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const auto bias_type = static_cast<cudaDataType_t>(key.result_type);
    SOME_CUBLAS_CHECK(
        cublasLtMatmulDescSetAttribute(&problem.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    SOME_CUBLAS_CHECK(
        cublasLtMatmulDescSetAttribute(&problem.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    SOME_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&problem.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                     &bias_type, sizeof bias_type));
  }
  const std::int64_t left_rows = key.first_transposed ? key.k : key.m,
                     left_columns = key.first_transposed ? key.m : key.k;
  const std::int64_t right_rows = key.second_transposed ? key.n : key.k,
                     right_columns = key.second_transposed ? key.k : key.n;
  SOME_CUBLAS_CHECK(cublasLtMatrixLayoutInit(&problem.left, static_cast<cudaDataType_t>(key.first_type), left_rows,
                                             left_columns, strides.second > 0 ? strides.second : left_rows));
  SOME_CUBLAS_CHECK(cublasLtMatrixLayoutInit(&problem.right, static_cast<cudaDataType_t>(key.second_type), right_rows,
                                             right_columns, strides.first > 0 ? strides.first : right_rows));
  SOME_CUBLAS_CHECK(cublasLtMatrixLayoutInit(&problem.result, static_cast<cudaDataType_t>(key.result_type), key.m,
                                             key.n, strides.result > 0 ? strides.result : key.m));
  return problem;
}

template <typename T>
T setting_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};  // stays zero if the algorithm does not have this setting
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, nullptr);
  return value;
}

// Tiles preferred for GEMMs with a few hundred to two thousand columns and a short sum: the dense GEMMs of a block.
// Their time is mostly memory traffic and epilogue. On an H200, the fastest algorithm that the library offers for the
// eight GEMMs of A4 takes 6 to 13% less time than the 256 x 128 tiles it lists first; for six of them it uses 128 x 128
// tiles in clusters of two. If it does not offer these, 112 x 128 took 21.7 instead of 24.4 us (512 -> 1536 columns,
// 6,900 rows) and 128 x 160 took 14.3 instead of 15.7 (512 -> 1024). This is a fixed rule and not a measurement at run
// time, because the same program must give the same bits in every run.
constexpr cublasLtMatmulTile_t small_tiles[] = {CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_112x128,
                                                CUBLASLT_MATMUL_TILE_128x160};
bool better_with_small_tiles(const MatmulKey& key) {
  const bool weight_gradient = !key.first_transposed && key.second_transposed;
  return key.first_type == CUDA_R_16BF && !weight_gradient && key.m >= 256 && key.m <= 2048 && key.k <= 2048 &&
         key.n > 4096;
}

bool has_tiles(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulTile_t tile) {
  return setting_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID) == static_cast<std::uint32_t>(tile) &&
         setting_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) == 1 &&
         setting_of<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) == CUBLASLT_CLUSTER_SHAPE_2x1x1;
}

cublasLtMatmulAlgo_t ask_for_algorithm(CudaState& state, const MatmulKey& key, const void* bias) {
  Problem problem = make_problem(key, bias);
  cublasLtMatmulPreferenceOpaque_t preference{};
  SOME_CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    SOME_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, state.workspace_bytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.first_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.second_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.result_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.result_alignment);
  std::array<cublasLtMatmulHeuristicResult_t, 8> offered{};
  const int asked = better_with_small_tiles(key) ? static_cast<int>(offered.size()) : 1;
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(state.blas, &problem.operation, &problem.left, &problem.right, &problem.result,
                                     &problem.result, &preference, asked, offered.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0)
    failed(Code::gpu_failed, "cuBLASLt knows no product of [{} x {}] by [{} x {}]: {}", key.n, key.k, key.k, key.m,
           cublasLtGetStatusString(status));
  for (const cublasLtMatmulTile_t tile : small_tiles) {
    for (int i = 0; i < found && asked > 1; ++i) {
      const cublasLtMatmulHeuristicResult_t& one = offered[static_cast<std::size_t>(i)];
      if (one.state == CUBLAS_STATUS_SUCCESS && has_tiles(one.algo, tile)) return one.algo;
    }
  }
  return offered[0].algo;
}

const cublasLtMatmulAlgo_t& algorithm_for(CudaState& state, const MatmulKey& key, const void* bias) {
  const auto found = state.algorithms.find(key);
  if (found != state.algorithms.end()) return found->second;
  return state.algorithms.emplace(key, ask_for_algorithm(state, key, bias)).first->second;
}

}  // namespace

void matmul(Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView first, MatrixView second,
            void* result, DType result_type, bool add, const void* bias) {
  matmul_strided(ctx, m, n, k, first, second, result, result_type, add, bias, {});
}

void matmul_strided(Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView first, MatrixView second,
                    void* result, DType result_type, bool add, const void* bias, const RowStrides& strides) {
  if (m == 0 || n == 0) return;
  CudaState& state = *ctx.cuda;
  MatmulKey key;
  key.m = n;
  key.n = m;
  key.k = k;
  key.first_type = blas_type(second.type);
  key.second_type = blas_type(first.type);
  key.result_type = blas_type(result_type);
  key.first_transposed = second.transposed;
  key.second_transposed = first.transposed;
  key.bias = bias != nullptr;
  key.add = add;
  key.first_alignment = alignment_of(second.data);
  key.second_alignment = alignment_of(first.data);
  key.result_alignment = bias != nullptr ? std::min(alignment_of(result), alignment_of(bias)) : alignment_of(result);

  // The token count is the extent n or, in a weight gradient, k. An extent is rounded only if it is not the column
  // stride of any matrix, because an algorithm's alignment requirements depend on those strides.
  MatmulKey asked = key;
  if (!key.second_transposed) asked.n = rounded(key.n);
  if (!key.first_transposed && key.second_transposed) asked.k = rounded(key.k);
  // Rows that are further apart than they are long are better aligned: asks as if they were as long.
  if (strides.result > key.m && !key.first_transposed) asked.m = strides.result;
  if (strides.first > key.k && !key.second_transposed) asked.k = strides.first;
  Problem problem = make_problem(key, bias, strides);
  const float one = 1.0f, beta = add ? 1.0f : 0.0f;
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return cublasLtMatmul(state.blas, &problem.operation, &one, second.data, &problem.left, first.data, &problem.right,
                          &beta, result, &problem.result, result, &problem.result, &algorithm, state.workspace,
                          state.workspace_bytes, state.stream);
  };
  cublasStatus_t status = run(algorithm_for(state, asked, bias));
  // An algorithm may rely on properties of the rounded shape that the actual shape lacks; then choose one for the
  // actual shape.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    status = run(algorithm_for(state, key, bias));
  SOME_CUBLAS_CHECK(status);
}

}  // namespace some::cuda
