// State shared by all CUDA operations of a context: streams, cuBLASLt and its workspaces. CUDA builds only.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "core/error.h"
#include "tensor/device.h"

namespace some {

[[noreturn]] void cuda_failed(cudaError_t status, const char* what, const char* file, int line);
[[noreturn]] void cublas_failed(cublasStatus_t status, const char* what, const char* file, int line);

#define SOME_CUDA_CHECK(call)                                                                      \
  do {                                                                                             \
    const cudaError_t some_status_ = (call);                                                       \
    if (some_status_ != cudaSuccess) ::some::cuda_failed(some_status_, #call, __FILE__, __LINE__); \
  } while (false)
#define SOME_CUBLAS_CHECK(call)                                                                                \
  do {                                                                                                         \
    const cublasStatus_t some_status_ = (call);                                                                \
    if (some_status_ != CUBLAS_STATUS_SUCCESS) ::some::cublas_failed(some_status_, #call, __FILE__, __LINE__); \
  } while (false)
// Follows every kernel launch, so that a launch failure is reported with its own file and line.
#define SOME_CUDA_LAUNCHED() SOME_CUDA_CHECK(cudaGetLastError())

// Key of the cache of GEMM algorithms. The algorithm is the first suggestion of cuBLASLt, never the result of a timing,
// so the same shapes give the same algorithm and therefore the same bits in every run.
struct MatmulKey {
  std::int64_t m = 0, n = 0, k = 0;
  std::int32_t first_type = 0, second_type = 0, result_type = 0;
  bool first_transposed = false, second_transposed = false, bias = false, add = false;
  std::uint32_t first_alignment = 0, second_alignment = 0, result_alignment = 0;
  auto operator<=>(const MatmulKey&) const = default;
};

// A stream of a GPU with what its work needs. Tensors keep it alive (tensor/device.h), so it is destroyed after the
// last of them. `side` is the second stream of the same device.
struct CudaState {
  int index = 0;  // GPU number
  cudaStream_t stream = nullptr;
  std::unique_ptr<CudaState> side;  // null in that state itself
  cudaEvent_t turn = nullptr;       // recorded when one stream starts to wait for the other; both streams have the same
  cublasLtHandle_t blas = nullptr;  // also the same
  void* workspace = nullptr;        // GEMMs running concurrently on both streams must not share it
  std::size_t workspace_bytes = std::size_t{32} << 20;
  int multiprocessors = 0;
  int max_shared = 0;  // maximum bytes of shared memory per block
  // Compute capability. Reported as 8.0 on a Hopper GPU if the program was built without Hopper instructions.
  int major = 0, minor = 0;
  std::map<MatmulKey, cublasLtMatmulAlgo_t> algorithms;
  std::atomic<std::size_t> bytes_held{0}, bytes_peak{0};  // of GPU memory
  // Partial sums that a schedule defers, one schedule at a time; allocated when first needed.
  void* sums_workspace = nullptr;
  std::size_t sums_workspace_bytes = 0;

  CudaState() = default;
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;
  ~CudaState();
};

}  // namespace some
