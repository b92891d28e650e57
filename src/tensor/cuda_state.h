// What every CUDA operation of a context works with: a stream, cuBLASLt and its workspace. CUDA builds only.
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
// Goes after every kernel launch, so that one that could not start is reported where it was made.
#define SOME_CUDA_LAUNCHED() SOME_CUDA_CHECK(cudaGetLastError())

// What a choice of matrix-product algorithm depends on. The choice is cuBLASLt's own first suggestion, never a timing:
// the same shapes give the same algorithm and so the same bits in every run.
struct MatmulKey {
  std::int64_t m = 0, n = 0, k = 0;
  std::int32_t first_type = 0, second_type = 0, result_type = 0;
  bool first_transposed = false, second_transposed = false, bias = false, add = false;
  std::uint32_t first_alignment = 0, second_alignment = 0, result_alignment = 0;
  auto operator<=>(const MatmulKey&) const = default;
};

// A GPU as one context uses it. Tensors keep it alive (tensor/device.h), so it ends after the last of them.
struct CudaState {
  int index = 0;  // of the GPU
  cudaStream_t stream = nullptr;
  cudaStream_t second = nullptr;  // of runtime/side_stream.h; while something is put there, the two have changed places
  cudaEvent_t turn = nullptr;     // where one of them begins to wait for the other
  bool changed_places = false;    // they have
  bool apart = false;             // something was put on the second that the first has not waited for
  cublasLtHandle_t blas = nullptr;
  void* workspace = nullptr;
  void* second_workspace = nullptr;  // products on both streams at the same time must not share one
  std::size_t workspace_bytes = std::size_t{32} << 20;
  int multiprocessors = 0;
  int max_shared = 0;  // bytes of shared memory that a block can have
  // Compute capability; 8.0 on a Hopper GPU whose own instructions the program was built without.
  int major = 0, minor = 0;
  std::map<MatmulKey, cublasLtMatmulAlgo_t> algorithms;
  std::shared_ptr<void> deferred_sums;       // of kernels/reduce/column_sums.cu, which alone knows what it is
  std::shared_ptr<void> deferred_gradients;  // of ops/cuda/deferred_gradients.cu in the same way
  std::atomic<std::size_t> bytes_held{0}, bytes_peak{0};  // of GPU memory

  CudaState() = default;
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;
  ~CudaState();
};

}  // namespace some
