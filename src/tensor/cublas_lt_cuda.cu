// Loads cuBLASLt when a program first uses a GPU. Linked at build time, the library of half a gigabyte would add 70 ms
// to every start, thirteen times the rest of the startup, and programs would not start on machines without it.
//
// The functions below have the names declared in cublasLt.h, so callers do not change. Each forwards to the function of
// the same name in the library.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <string>

#include "core/error.h"

namespace some {
namespace {

#define TEXT_OF(number) #number
#define LIBRARY_OF(version) "libcublasLt.so." TEXT_OF(version)
constexpr const char* library_name = LIBRARY_OF(CUBLAS_VER_MAJOR);  // scripts/gpu searches the program for this name

void* open_library() {
  const std::string name = library_name;
  for (const std::string& path : {name, SOME_CUDA_LIBRARIES "/" + name, "/usr/local/cuda/lib64/" + name}) {
    if (void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
  }
  failed(Code::device_unusable,
         "{} cannot be loaded, but matrix products on a GPU require it; install cuBLAS of CUDA {}, or use --device cpu",
         library_name, CUBLAS_VER_MAJOR);
}

template <typename Function>
Function* find(const char* name) {
  static void* const library = open_library();
  if (void* const found = dlsym(library, name)) return reinterpret_cast<Function*>(found);
  failed(Code::device_unusable, "function {1} not found in {0}; install cuBLAS of CUDA {2}.{3}, or use --device cpu",
         library_name, name, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
}

}  // namespace
}  // namespace some

// Hidden, so that calls inside the library never resolve to these functions.
#define FORWARD(result, name, parameters, arguments)                           \
  extern "C" __attribute__((visibility("hidden"))) result name parameters {    \
    static decltype(name)* const function = some::find<decltype(name)>(#name); \
    return function arguments;                                                 \
  }

FORWARD(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
FORWARD(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
FORWARD(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
FORWARD(cublasStatus_t, cublasLtMatrixLayoutInit_internal,
        (cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t rows, uint64_t columns,
         int64_t stride),
        (layout, size, type, rows, columns, stride))
FORWARD(cublasStatus_t, cublasLtMatmulDescInit_internal,
        (cublasLtMatmulDesc_t operation, size_t size, cublasComputeType_t compute, cudaDataType_t scale),
        (operation, size, compute, scale))
FORWARD(cublasStatus_t, cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const void* value, size_t size),
        (operation, attribute, value, size))
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceInit_internal, (cublasLtMatmulPreference_t preference, size_t size),
        (preference, size))
FORWARD(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
         size_t size),
        (preference, attribute, value, size))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int requested,
         cublasLtMatmulHeuristicResult_t results[], int* found),
        (handle, operation, a, b, c, d, preference, requested, results, found))
FORWARD(cublasStatus_t, cublasLtMatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
         size_t size, size_t* written),
        (algorithm, attribute, value, size, written))
FORWARD(cublasStatus_t, cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
         cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
         const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
         const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_size, cudaStream_t stream),
        (handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace,
         workspace_size, stream))
