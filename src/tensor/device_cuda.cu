// Memory, streams and copies of the GPU. CUDA is initialized on first use only, so that the program starts on a machine
// without a GPU or a driver.
#include <algorithm>
#include <vector>

#include "tensor/cuda_state.h"
#include "tensor/cuda_streams.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace some {

void cuda_failed(cudaError_t status, const char* what, const char* file, int line) {
  failed(Code::gpu_failed, "CUDA failed: {} ({}), in {} at {}:{}", cudaGetErrorString(status), cudaGetErrorName(status),
         what, file, line);
}

void cublas_failed(cublasStatus_t status, const char* what, const char* file, int line) {
  failed(Code::gpu_failed, "cuBLASLt failed: {}, in {} at {}:{}", cublasLtGetStatusString(status), what, file, line);
}

namespace cuda {
namespace {

struct Gpu {
  std::string unusable_reason;
  cudaDeviceProp properties{};
};
struct Machine {
  std::string unavailable_reason;
  std::vector<Gpu> gpus;
};

Machine look_for_gpus() {
  Machine machine;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();  // clears the error, which is handled here: later calls must not report it
    if (status == cudaSuccess || status == cudaErrorNoDevice) {
      machine.unavailable_reason = "no NVIDIA GPU was found";
    } else if (status == cudaErrorInsufficientDriver) {
      machine.unavailable_reason =
          fmt::format("no NVIDIA driver for CUDA {}.{} was found", CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    } else {
      machine.unavailable_reason = fmt::format("no NVIDIA GPU can be used: {}", cudaGetErrorString(status));
    }
    return machine;
  }
  for (int index = 0; index < count; ++index) {
    Gpu& gpu = machine.gpus.emplace_back();
    const cudaError_t read = cudaGetDeviceProperties(&gpu.properties, index);
    if (read != cudaSuccess) {
      cudaGetLastError();
      gpu.unusable_reason = fmt::format("the GPU does not respond: {}", cudaGetErrorString(read));
    } else if (gpu.properties.major < 8) {
      gpu.unusable_reason = fmt::format("{} has compute capability {}.{}; 8.0 or newer is required",
                                        gpu.properties.name, gpu.properties.major, gpu.properties.minor);
    }
  }
  return machine;
}

// Returns the GPUs of the machine. They do not change while the program runs, so they are queried only once.
const Machine& machine() {
  static const Machine found = look_for_gpus();
  return found;
}

// Returns the index of the first usable GPU, or 0 if there is none.
std::size_t best_gpu() {
  const std::vector<Gpu>& gpus = machine().gpus;
  const auto found = std::find_if(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.unusable_reason.empty(); });
  return found == gpus.end() ? 0 : static_cast<std::size_t>(found - gpus.begin());
}

// Stores 1 if the code that runs on this GPU was compiled with Hopper instructions. A program built only for older GPUs
// is JIT-compiled at startup and does not contain them, whatever the GPU.
__global__ void hopper_code_kernel(int* answer) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  *answer = 1;
#else
  *answer = 0;
#endif
}

// Every element is a single addition, so no order needs to be fixed, and the rounding equals that of the host.
template <typename T>
__global__ void add_numbers_kernel(const T* source, T* target, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    target[i] += source[i];
}

bool has_hopper_code(const CudaState& state) {
  int found = 0;
  auto* const answer = static_cast<int*>(state.workspace);
  hopper_code_kernel<<<1, 1, 0, state.stream>>>(answer);
  SOME_CUDA_LAUNCHED();
  SOME_CUDA_CHECK(cudaMemcpyAsync(&found, answer, sizeof found, cudaMemcpyDeviceToHost, state.stream));
  SOME_CUDA_CHECK(cudaStreamSynchronize(state.stream));
  return found == 1;
}

// Makes later work on `second` wait for the work that is on `first` now, across devices.
void wait_across(CudaState& first, CudaState& second) {
  cudaEvent_t event = nullptr;
  {
    const CudaDeviceGuard on(first);
    SOME_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    SOME_CUDA_CHECK(cudaEventRecord(event, first.stream));
  }
  const CudaDeviceGuard on(second);
  const cudaError_t status = cudaStreamWaitEvent(second.stream, event, 0);
  cudaEventDestroy(event);  // the driver frees it after it has been reached
  SOME_CUDA_CHECK(status);
}

}  // namespace

bool available() { return !machine().gpus.empty() && machine().gpus[best_gpu()].unusable_reason.empty(); }

std::string unavailable_reason_text() {
  return machine().gpus.empty() ? machine().unavailable_reason : machine().gpus[best_gpu()].unusable_reason;
}

int first_usable_gpu() {
  if (!available()) fail_unavailable();
  return static_cast<int>(best_gpu());
}

std::string unusable_reason(int index) {
  const auto count = static_cast<int>(machine().gpus.size());
  if (count == 0) return machine().unavailable_reason;
  if (index < 0 || index >= count)
    return count == 1 ? "this machine has one GPU, cuda:0"
                      : fmt::format("this machine has {} GPUs, cuda:0 to cuda:{}", count, count - 1);
  return machine().gpus[static_cast<std::size_t>(index)].unusable_reason;
}

std::shared_ptr<CudaState> open(int index) {
  if (const std::string why = unusable_reason(index); !why.empty()) failed(Code::device_unusable, "{}", why);
  const cudaDeviceProp& properties = machine().gpus[static_cast<std::size_t>(index)].properties;
  auto state = std::make_shared<CudaState>();
  state->index = index;
  const CudaDeviceGuard on(*state);
  // The side stream has the lowest priority: it uses only resources that the main stream leaves idle.
  int least = 0, greatest = 0;
  SOME_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  SOME_CUDA_CHECK(cudaStreamCreateWithPriority(&state->stream, cudaStreamNonBlocking, greatest));
  state->side = std::make_unique<CudaState>();
  CudaState& side = *state->side;
  SOME_CUDA_CHECK(cudaStreamCreateWithPriority(&side.stream, cudaStreamNonBlocking, least));
  SOME_CUDA_CHECK(cudaEventCreateWithFlags(&state->turn, cudaEventDisableTiming));
  SOME_CUBLAS_CHECK(cublasLtCreate(&state->blas));
  state->workspace = allocate(*state, state->workspace_bytes);
  side.workspace = allocate(*state, state->workspace_bytes);
  state->multiprocessors = properties.multiProcessorCount;
  state->max_shared = static_cast<int>(properties.sharedMemPerBlockOptin);
  state->major = properties.major;
  state->minor = properties.minor;
  if (state->major == 9 && !has_hopper_code(*state)) {
    state->major = 8;
    state->minor = 0;
  }
  side.index = index;
  side.turn = state->turn;
  side.blas = state->blas;
  side.multiprocessors = state->multiprocessors;
  side.max_shared = state->max_shared;
  side.major = state->major;
  side.minor = state->minor;
  return state;
}

std::string device_name(const Device& device) {
  return machine().gpus[static_cast<std::size_t>(device.cuda().index)].properties.name;
}

std::string identity(const Device& device) {
  const cudaUUID_t& id = machine().gpus[static_cast<std::size_t>(device.cuda().index)].properties.uuid;
  std::string text;
  for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

void* stream_of(const Device& device) { return device.cuda().stream; }

std::size_t memory_peak(const Device& device) { return device.cuda().bytes_peak; }

int index_of(const CudaState& state) { return state.index; }

CudaState& side_of(CudaState& state) { return *state.side; }

std::unique_ptr<CudaState> stream_like(CudaState& state) {
  const CudaDeviceGuard on(state);
  int least = 0, greatest = 0;
  SOME_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  auto other = std::make_unique<CudaState>();
  SOME_CUDA_CHECK(cudaStreamCreateWithPriority(&other->stream, cudaStreamNonBlocking, greatest));
  other->index = state.index;
  other->turn = state.turn;
  other->blas = state.blas;
  other->multiprocessors = state.multiprocessors;
  other->max_shared = state.max_shared;
  other->major = state.major;
  other->minor = state.minor;
  return other;
}

void wait_for(CudaState& first, CudaState& second) {
  const CudaDeviceGuard on(first);
  SOME_CUDA_CHECK(cudaEventRecord(first.turn, first.stream));
  SOME_CUDA_CHECK(cudaStreamWaitEvent(second.stream, first.turn, 0));
}

bool capturing(const CudaState& state) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  SOME_CUDA_CHECK(cudaStreamIsCapturing(state.stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

CudaDeviceGuard::CudaDeviceGuard(const CudaState& state) {
  int now = 0;
  SOME_CUDA_CHECK(cudaGetDevice(&now));
  if (now == state.index) return;
  SOME_CUDA_CHECK(cudaSetDevice(state.index));
  before_ = now;
}

CudaDeviceGuard::~CudaDeviceGuard() {
  if (before_ >= 0 && cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();  // a destructor cannot report it
}

void* allocate(CudaState& state, std::size_t bytes) {
  const CudaDeviceGuard on(state);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<std::size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, all_bytes = 0;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    failed(Code::out_of_memory, "out of GPU memory: {} MiB requested, {} of {} MiB free; use a smaller batch or model",
           bytes >> 20, free_bytes >> 20, all_bytes >> 20);
  }
  SOME_CUDA_CHECK(status);
  const std::size_t held = state.bytes_held += bytes;
  for (std::size_t peak = state.bytes_peak; peak < held && !state.bytes_peak.compare_exchange_weak(peak, held);) {
  }
  return data;
}

void release(CudaState& state, void* data, std::size_t bytes) {
  if (data == nullptr) return;
  state.bytes_held -= bytes;
  // Called by destructors, also during unwinding and at process exit: a failure cannot be reported here.
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void zero(CudaState& state, void* data, std::size_t bytes) {
  const CudaDeviceGuard on(state);
  SOME_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, state.stream));
}

void copy(CudaState* to, void* target, CudaState* from, const void* source, std::size_t bytes) {
  if (to != nullptr && from != nullptr) {
    // On one device the stream order is sufficient; between two devices, neither may continue before the copy is done.
    if (to != from) wait_across(*from, *to);
    {
      const CudaDeviceGuard on(*to);
      SOME_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, to->stream));
    }
    if (to != from) wait_across(*to, *from);
    return;
  }
  CudaState& state = to != nullptr ? *to : *from;
  const CudaDeviceGuard on(state);
  const cudaMemcpyKind kind = to != nullptr ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  SOME_CUDA_CHECK(cudaMemcpyAsync(target, source, bytes, kind, state.stream));
  SOME_CUDA_CHECK(cudaStreamSynchronize(state.stream));
}

void synchronize(CudaState& state) { SOME_CUDA_CHECK(cudaStreamSynchronize(state.stream)); }

void upload_async(const Device& device, const void* pinned, void* target, std::size_t bytes) {
  upload_async(device.cuda(), pinned, target, bytes);
}

void upload_async(const CudaState& stream, const void* pinned, void* target, std::size_t bytes) {
  const CudaDeviceGuard on(stream);
  if (bytes > 0) SOME_CUDA_CHECK(cudaMemcpyAsync(target, pinned, bytes, cudaMemcpyHostToDevice, stream.stream));
}

void* allocate_pinned(const Device& device, std::size_t bytes) {
  const CudaDeviceGuard on(device.cuda());
  void* data = nullptr;
  SOME_CUDA_CHECK(cudaMallocHost(&data, std::max<std::size_t>(bytes, 1)));
  return data;
}

void release_pinned(void* data) {
  if (data != nullptr && cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
}

void add_numbers(const Device& device, DType type, const void* source, void* target, std::int64_t count) {
  if (count == 0) return;
  const CudaState& state = device.cuda();
  const CudaDeviceGuard on(state);
  const auto launch = [&](auto zero) {
    using T = decltype(zero);
    constexpr int threads = 256;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((count + threads - 1) / threads, 1 << 16));
    add_numbers_kernel<<<blocks, threads, 0, state.stream>>>(static_cast<const T*>(source), static_cast<T*>(target),
                                                             count);
    SOME_CUDA_LAUNCHED();
  };
  switch (type) {
    case DType::f32: return launch(0.0f);
    case DType::f64: return launch(0.0);
    case DType::i32: return launch(std::int32_t{0});
    case DType::i64: return launch(std::int64_t{0});
    case DType::bf16: break;
  }
  failed(Code::type_unsupported, "cannot add numbers of type {}", name_of(type));
}

Event::Event(const Device& device) : device_(device) {
  const CudaDeviceGuard on(device_.cuda());
  cudaEvent_t event = nullptr;
  SOME_CUDA_CHECK(cudaEventCreate(&event));
  event_ = event;
}

Event::~Event() { cudaEventDestroy(static_cast<cudaEvent_t>(event_)); }

void Event::record() { record(device_.cuda()); }

void Event::record(const CudaState& stream) {
  const CudaDeviceGuard on(stream);
  SOME_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream.stream));
}

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

}  // namespace cuda

// The main state waits for both streams and destroys what they share.
CudaState::~CudaState() {
  if (side != nullptr && stream != nullptr) cudaStreamSynchronize(stream);
  if (side != nullptr) {
    if (side->stream != nullptr) cudaStreamSynchronize(side->stream);
    cuda::release(*this, sums_workspace, sums_workspace_bytes);
    if (blas != nullptr) cublasLtDestroy(blas);
    for (void* const one : {workspace, side->workspace}) cuda::release(*this, one, workspace_bytes);
    if (turn != nullptr && cudaEventDestroy(turn) != cudaSuccess) cudaGetLastError();
    side.reset();
  }
  if (stream != nullptr && cudaStreamDestroy(stream) != cudaSuccess) cudaGetLastError();
}

}  // namespace some
