// cuBLASLt without a GPU: records products without computing them. An algorithm is named after the problem it was
// requested for, so a trace shows the shape and alignment on which a product's algorithm depends.
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "trace.h"

namespace {

using namespace fake_cuda;
using Guard = std::lock_guard<std::recursive_mutex>;

struct Operation {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias_type = CUDA_R_32F;
  const void* bias = nullptr;
};
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C and D
};
struct Algorithm {
  std::uint64_t problem, offer;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <typename T>
T read(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Sets one field of an opaque description.
template <typename T, typename F>
cublasStatus_t set(void* description, F T::*field, const void* value, std::size_t bytes) {
  if (bytes != sizeof(F)) return CUBLAS_STATUS_INVALID_VALUE;
  T all = read<T>(description);
  std::memcpy(&(all.*field), value, bytes);
  std::memcpy(description, &all, sizeof all);
  return CUBLAS_STATUS_SUCCESS;
}

const char* name_of(cudaDataType_t type) {
  return type == CUDA_R_16BF ? "bf16" : type == CUDA_R_32F ? "f32" : type == CUDA_R_16F ? "f16" : "other";
}

std::string describe(const Operation& operation, const Layout& a, const Layout& b, const Layout& d) {
  std::string text = std::to_string(d.rows) + "x" + std::to_string(d.columns) + "x" +
                     std::to_string(operation.a == CUBLAS_OP_N ? a.columns : a.rows) + " " + name_of(a.type) +
                     (operation.a == CUBLAS_OP_N ? " N " : " T ") + name_of(b.type) +
                     (operation.b == CUBLAS_OP_N ? " N " : " T ") + name_of(d.type);
  if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS) text += " bias";
  return text;
}

// Interned texts: an algorithm stores the index.
std::vector<std::string>& problems() {
  static auto* const made = new std::vector<std::string>;
  return *made;
}

std::uint64_t number_of(const std::string& problem) {
  std::vector<std::string>& all = problems();
  const auto found = std::find(all.begin(), all.end(), problem);
  if (found != all.end()) return static_cast<std::uint64_t>(found - all.begin());
  all.push_back(problem);
  return all.size() - 1;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "failure";
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, std::size_t, cublasComputeType_t,
                                               cudaDataType_t) {
  const Operation fresh;
  std::memcpy(description, &fresh, sizeof fresh);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(description, &Operation::a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(description, &Operation::b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(description, &Operation::epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(description, &Operation::bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(description, &Operation::bias_type, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t description, std::size_t, cudaDataType type,
                                                 std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
  const Layout layout{type, rows, columns, stride};
  std::memcpy(description, &layout, sizeof layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t description, std::size_t) {
  const Preference fresh;
  std::memcpy(description, &fresh, sizeof fresh);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t description,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  Preference preference = read<Preference>(description);
  void* field = nullptr;
  std::size_t size = sizeof preference.alignment[0];
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      field = &preference.workspace, size = sizeof preference.workspace;
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: field = &preference.alignment[0]; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: field = &preference.alignment[1]; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: field = &preference.alignment[2]; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: field = &preference.alignment[3]; break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field, value, size);
  std::memcpy(description, &preference, sizeof preference);
  return CUBLAS_STATUS_SUCCESS;
}

// Algorithms with different tiles: number 0 as the library would choose, number 1 small tiles in clusters of two.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t description_of_preference, int asked,
                                              cublasLtMatmulHeuristicResult_t* offered, int* found) {
  const Guard guard(mutex());
  const Preference preference = read<Preference>(description_of_preference);
  std::string problem =
      describe(read<Operation>(description), read<Layout>(a), read<Layout>(b), read<Layout>(d)) + " aligned";
  for (const std::uint32_t alignment : preference.alignment) problem += " " + std::to_string(alignment);
  *found = std::min(asked, 2);
  for (int i = 0; i < *found; ++i) {
    offered[i] = {};
    const Algorithm algorithm{number_of(problem), static_cast<std::uint64_t>(i)};
    std::memcpy(&offered[i].algo, &algorithm, sizeof algorithm);
    offered[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    std::size_t bytes, std::size_t*) {
  const bool small = read<Algorithm>(algorithm).offer == 1;
  const auto give = [&](auto number) {
    if (bytes != sizeof number) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, &number, sizeof number);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return give(static_cast<std::uint32_t>(small ? CUBLASLT_MATMUL_TILE_128x128 : CUBLASLT_MATMUL_TILE_256x128));
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM: return give(std::int32_t{1});
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return give(static_cast<std::uint16_t>(small ? CUBLASLT_CLUSTER_SHAPE_2x1x1 : CUBLASLT_CLUSTER_SHAPE_1x1x1));
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void*, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t, cudaStream_t stream) {
  const Guard guard(mutex());
  const Operation operation = read<Operation>(description);
  const Algorithm chosen = read<Algorithm>(algorithm);
  Stream& one = stream_of(stream);
  std::string buffers = buffer_name(a) + " " + buffer_name(b) + " " + buffer_name(d) + " " + buffer_name(workspace);
  if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS) buffers += " " + buffer_name(operation.bias);
  enqueue(one, "matmul", describe(operation, read<Layout>(a_layout), read<Layout>(b_layout), read<Layout>(d_layout)),
          std::string(read<float>(beta) != 0.0f ? "add " : "") + "stream=" + std::to_string(one.number) +
              " algorithm=" + std::to_string(chosen.offer) + " of [" + problems().at(chosen.problem) + "]",
          buffers);
  return CUBLAS_STATUS_SUCCESS;
}
