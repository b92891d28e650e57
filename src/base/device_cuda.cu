// The GPU's memory, its one stream, and copies. Nothing here runs before it is asked for, so that the program starts on
// a machine without a GPU or a driver.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/context.h"
#include "base/cuda_state.h"
#include "base/device.h"

namespace some {

void cuda_failed(cudaError_t status, const char* what, const char* file, int line) {
  failed("CUDA failed: {} ({}), in {} at {}:{}", cudaGetErrorString(status), cudaGetErrorName(status), what, file,
         line);
}

void cublas_failed(cublasStatus_t status, const char* what, const char* file, int line) {
  failed("cuBLASLt failed: {}, in {} at {}:{}", cublasLtGetStatusString(status), what, file, line);
}

CudaState::~CudaState() {
  if (stream != nullptr) cudaStreamSynchronize(stream);
  if (blas != nullptr) cublasLtDestroy(blas);
  if (workspace != nullptr) cuda::release(workspace);
}

namespace cuda {
namespace {

struct Probe {
  bool usable = false;
  std::string why;
  cudaDeviceProp properties{};
};

Probe look_for_gpu() {
  Probe probe;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();  // an answered question, not a fault of the calls that follow
    if (status == cudaSuccess || status == cudaErrorNoDevice) {
      probe.why = "no NVIDIA GPU was found";
    } else if (status == cudaErrorInsufficientDriver) {
      probe.why =
          fmt::format("no NVIDIA driver for CUDA {}.{} was found", CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    } else {
      probe.why = fmt::format("no NVIDIA GPU can be used: {}", cudaGetErrorString(status));
    }
    return probe;
  }
  const cudaError_t read = cudaGetDeviceProperties(&probe.properties, 0);
  if (read != cudaSuccess) {
    cudaGetLastError();
    probe.why = fmt::format("the GPU does not answer: {}", cudaGetErrorString(read));
  } else if (probe.properties.major < 8) {
    probe.why = fmt::format("{} has compute capability {}.{}; 8.0 or newer is needed", probe.properties.name,
                            probe.properties.major, probe.properties.minor);
  } else {
    probe.usable = true;
  }
  return probe;
}

const Probe& gpu() {
  static const Probe probe = look_for_gpu();
  return probe;
}

// Whether the code that this GPU runs was compiled with Hopper's own instructions: a program that was built for older
// GPUs alone is translated when it starts and has none, on whatever GPU.
__global__ void hopper_code_kernel(int* answer) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  *answer = 1;
#else
  *answer = 0;
#endif
}

bool has_hopper_code() {
  static const bool has = [] {
    int* answer = nullptr;
    int found = 0;
    SOME_CUDA_CHECK(cudaMalloc(&answer, sizeof *answer));
    hopper_code_kernel<<<1, 1, 0, program_stream()>>>(answer);
    SOME_CUDA_LAUNCHED();
    SOME_CUDA_CHECK(cudaMemcpyAsync(&found, answer, sizeof found, cudaMemcpyDeviceToHost, program_stream()));
    SOME_CUDA_CHECK(cudaStreamSynchronize(program_stream()));
    SOME_CUDA_CHECK(cudaFree(answer));
    return found == 1;
  }();
  return has;
}

const Probe& usable_gpu() {
  if (!gpu().usable) failed("{}", gpu().why);
  return gpu();
}

// Sizes of what is allocated now, for memory_used and memory_peak. Never destroyed: tensors may outlive any static
// object.
struct Ledger {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t> sizes;
  std::size_t used = 0, peak = 0;
};

Ledger& ledger() {
  static Ledger* const instance = new Ledger;
  return *instance;
}

}  // namespace

bool available() { return gpu().usable; }
std::string why_unavailable() { return gpu().why; }
std::string device_name() { return usable_gpu().properties.name; }
int multiprocessors() { return usable_gpu().properties.multiProcessorCount; }

cudaStream_t program_stream() {
  static const cudaStream_t stream = [] {
    usable_gpu();
    cudaStream_t made = nullptr;
    SOME_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

void* allocate(std::size_t bytes) {
  usable_gpu();
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, all_bytes = 0;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    failed("no GPU memory left: {} MiB were asked for, {} of {} MiB are free; use a smaller batch or model",
           bytes >> 20, free_bytes >> 20, all_bytes >> 20);
  }
  SOME_CUDA_CHECK(status);
  Ledger& book = ledger();
  const std::lock_guard lock(book.mutex);
  book.sizes[data] = bytes;
  book.used += bytes;
  book.peak = std::max(book.peak, book.used);
  return data;
}

void release(void* data) {
  if (data == nullptr) return;
  {
    Ledger& book = ledger();
    const std::lock_guard lock(book.mutex);
    if (const auto found = book.sizes.find(data); found != book.sizes.end()) {
      book.used -= found->second;
      book.sizes.erase(found);
    }
  }
  // Called by destructors, also while an error unwinds or the process ends: a failure here has no one to tell.
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void zero(void* data, std::size_t bytes) { SOME_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, program_stream())); }

void copy(bool to_device, bool from_device, void* target, const void* source, std::size_t bytes) {
  const cudaMemcpyKind kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                        : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  SOME_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, kind, program_stream()));
  // Between two places on the device the stream's own order is enough.
  if (kind != cudaMemcpyDeviceToDevice) SOME_CUDA_CHECK(cudaStreamSynchronize(program_stream()));
}

void upload_async(const void* pinned, void* target, std::size_t bytes) {
  if (bytes > 0) SOME_CUDA_CHECK(cudaMemcpyAsync(target, pinned, bytes, cudaMemcpyHostToDevice, program_stream()));
}

void download_async(const void* source, void* pinned, std::size_t bytes) {
  if (bytes > 0) SOME_CUDA_CHECK(cudaMemcpyAsync(pinned, source, bytes, cudaMemcpyDeviceToHost, program_stream()));
}

void* allocate_pinned(std::size_t bytes) {
  usable_gpu();
  void* data = nullptr;
  SOME_CUDA_CHECK(cudaMallocHost(&data, std::max<std::size_t>(bytes, 1)));
  return data;
}

void release_pinned(void* data) {
  if (data != nullptr && cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
}

void synchronize() { SOME_CUDA_CHECK(cudaStreamSynchronize(program_stream())); }

std::size_t memory_used() {
  const std::lock_guard lock(ledger().mutex);
  return ledger().used;
}

std::size_t memory_peak() {
  const std::lock_guard lock(ledger().mutex);
  return ledger().peak;
}

Event::Event() {
  usable_gpu();
  cudaEvent_t event = nullptr;
  SOME_CUDA_CHECK(cudaEventCreate(&event));
  event_ = event;
}

Event::~Event() { cudaEventDestroy(static_cast<cudaEvent_t>(event_)); }

void Event::record() { SOME_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event_), program_stream())); }

void Event::wait() const { SOME_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(event_))); }

bool Event::passed() const {
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (status == cudaErrorNotReady) return false;
  SOME_CUDA_CHECK(status);
  return true;
}

double Event::milliseconds_since(const Event& earlier) const {
  wait();
  float milliseconds = 0.0f;
  SOME_CUDA_CHECK(
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.event_), static_cast<cudaEvent_t>(event_)));
  return milliseconds;
}

std::shared_ptr<CudaState> make_state() {
  auto state = std::make_shared<CudaState>();
  state->stream = program_stream();
  SOME_CUBLAS_CHECK(cublasLtCreate(&state->blas));
  state->workspace = allocate(state->workspace_bytes);
  state->multiprocessors = gpu().properties.multiProcessorCount;
  state->major = gpu().properties.major;
  state->minor = gpu().properties.minor;
  if (state->major == 9 && !has_hopper_code()) {
    state->major = 8;
    state->minor = 0;
  }
  return state;
}

}  // namespace cuda
}  // namespace some
