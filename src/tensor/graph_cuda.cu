#include <utility>

#include "tensor/cuda_state.h"
#include "tensor/graph.h"

namespace some::cuda {

Graph::~Graph() {
  if (executable_ != nullptr && cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)) != cudaSuccess)
    cudaGetLastError();  // a destructor cannot report the error
}

Graph::Graph(Graph&& other) noexcept
    : device_(std::move(other.device_)), executable_(std::exchange(other.executable_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(executable_, other.executable_);
  return *this;
}

void Graph::record(const Device& device, const std::function<void()>& work) {
  const CudaDeviceGuard on(device.cuda());
  const cudaStream_t stream = device.cuda().stream;
  cudaGraph_t recording = nullptr;
  SOME_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    // Only makes the stream usable again; the exception being thrown is the error to report.
    cudaStreamEndCapture(stream, &recording);
    if (recording != nullptr) cudaGraphDestroy(recording);
    cudaGetLastError();
    throw;
  }
  SOME_CUDA_CHECK(cudaStreamEndCapture(stream, &recording));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, recording, 0);
  cudaGraphDestroy(recording);
  SOME_CUDA_CHECK(status);
  Graph made;
  made.device_ = device;
  made.executable_ = executable;
  *this = std::move(made);
}

void Graph::launch() {
  if (executable_ == nullptr) failed(Code::internal, "a graph that was not recorded cannot be launched");
  const CudaDeviceGuard on(device_.cuda());
  SOME_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), device_.cuda().stream));
}

}  // namespace some::cuda
