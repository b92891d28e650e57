// A CUDA runtime without a GPU: records a program's calls and runs no kernels. Device memory is host memory filled with
// zeros. Copies and fills are executed, so data uploaded by the host is present, and all results of kernels read as
// zero. Simulates one H200 (or A100) and rejects what that would reject (launches of impossible shapes, copies beyond a
// buffer, calls not allowed during a capture).
//
// Programs are linked to it in place of cudart (cmake/fake_cuda.cmake).
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "inference/cuda/steps.h"
#include "kernel_parameters.h"
#include "names.h"
#include "trace.h"

namespace fake_cuda {
namespace {

constexpr int kSharedPerBlock = 48 << 10;
constexpr int kThreadsPerBlock = 1024, kThreadsPerSm = 2048, kBlocksPerSm = 32;

// The GPU: an H200, or an A100 with SOME_FAKE_GPU=a100.
bool is_hopper() {
  static const bool hopper = [] {
    const char* const name = std::getenv("SOME_FAKE_GPU");
    return name == nullptr || std::strcmp(name, "a100") != 0;
  }();
  return hopper;
}
int multiprocessors() { return is_hopper() ? 132 : 108; }
int shared_opt_in() { return (is_hopper() ? 227 : 163) << 10; }
int shared_per_multiprocessor() { return shared_opt_in() + 1024; }
std::size_t memory_bytes() { return std::size_t{is_hopper() ? 141u : 80u} << 30; }

using Guard = std::lock_guard<std::recursive_mutex>;

struct Kernel {
  KernelName name;
  std::vector<std::size_t> sizes;        // sizes of its parameters, if known
  int dynamic_shared = kSharedPerBlock;  // maximum threads of a launch
};

struct Event {
  int number = 0;
  Graph* capture = nullptr;  // the capture that recorded it last
};

struct Buffer {
  std::size_t bytes = 0;
  std::string name;
};

// All state of the process, in order of creation. Never destroyed: other static objects use it at exit.
struct World {
  std::unordered_map<const void*, Kernel> kernels;             // by address of the host function
  std::map<std::string, std::vector<std::size_t>> parameters;  // sizes, by the kernel's mangled name
  std::map<const char*, Buffer> buffers;
  int device_buffers = 0, pinned_buffers = 0, streams = 0, events = 0, graphs = 0;
  std::size_t bytes_used = 0;
  Stream null_stream;
};

World& world() {
  static World* const made = new World;
  return *made;
}

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};

thread_local std::vector<LaunchShape> pushed;  // set by kernel<<<...>>> until its stub takes it
thread_local cudaError_t last_error = cudaSuccess;
thread_local int captures = 0;  // begun by this thread and not ended

cudaError_t answer(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

cudaError_t refuse(cudaError_t status, const std::string& why) {
  trace("refused", why, cudaGetErrorName(status));
  std::fprintf(stderr, "fake CUDA: %s (%s)\n", why.c_str(), cudaGetErrorName(status));
  return answer(status);
}

// Returns the buffer that a pointer points into, or end().
std::map<const char*, Buffer>::iterator buffer_of(const void* pointer) {
  auto& buffers = world().buffers;
  const auto* const at = static_cast<const char*>(pointer);
  auto found = buffers.upper_bound(at);
  if (found == buffers.begin()) return buffers.end();
  --found;
  return at < found->first + std::max<std::size_t>(found->second.bytes, 1) ? found : buffers.end();
}

bool is_device_memory(const void* pointer) {
  const auto found = buffer_of(pointer);
  return found != world().buffers.end() && found->second.name[0] == 'd';
}

bool has_room(const void* pointer, std::size_t bytes) {
  const auto found = buffer_of(pointer);
  return found != world().buffers.end() &&
         static_cast<const char*>(pointer) + bytes <= found->first + found->second.bytes;
}

// Allocates zero pages, which occupy no memory before they are touched; at least as aligned as cudaMalloc's.
void* make_buffer(std::size_t bytes, const std::string& name) {
  void* const data = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  world().buffers[static_cast<const char*>(data)] = {bytes, name};
  return data;
}

bool free_buffer(void* data, char kind) {
  const auto found = world().buffers.find(static_cast<const char*>(data));
  if (found == world().buffers.end() || found->second.name[0] != kind) return false;
  const std::size_t bytes = found->second.bytes;
  if (kind == 'd') world().bytes_used -= bytes;
  world().buffers.erase(found);
  munmap(data, std::max<std::size_t>(bytes, 1));
  return true;
}

std::string extents(const dim3& size) {
  std::string text = std::to_string(size.x);
  if (size.y != 1 || size.z != 1) text += "," + std::to_string(size.y);
  if (size.z != 1) text += "," + std::to_string(size.z);
  return text;
}

// Kernels whose result determines what the host does next, where zeros would end the work early. By name without scopes
// and template arguments.
std::function<void()> emulation_of(const std::string& name, const dim3& grid, void** arguments) {
  if (name == "hopper_code_kernel") {  // whether the binary has code for Hopper
    int* const found = *static_cast<int**>(arguments[0]);
    return [found] { *found = is_hopper() ? 1 : 0; };
  }
  if (name == "used_kernel") {  // number of used slots per partition of a memory: all, so that it is split
    const auto size = *static_cast<std::int32_t*>(arguments[1]);
    std::int32_t* const used = *static_cast<std::int32_t**>(arguments[2]);
    return [=] { std::fill_n(used, grid.x, size); };
  }
  if (name == "sample_kernel") {  // what a step of generation draws: always the same token
    const auto step = *static_cast<const some::decoding::SampleStep*>(arguments[0]);
    return [step] {
      for (int wanted = 0; wanted < step.wanted; ++wanted) {
        const int row = step.row_of != nullptr ? step.row_of[wanted] : wanted;
        if (step.slots[row] < 0) continue;
        int& ring = step.rings[wanted];
        const bool draws = step.numbers[wanted] >= 0;
        some::decoding::SampleResult& result = step.results[ring * step.ring_stride + wanted];
        result.token = draws ? 40 : step.targets[wanted];
        result.finite = 1;
        result.sum = 1;
        ring = (ring + 1) % step.ring_size;
        if (!draws) continue;
        step.last_drawn[step.slots[row]] = result.token;
        if (!step.advance) continue;
        step.tokens[row] = result.token;
        ++step.positions[row];
        ++step.numbers[wanted];
      }
    };
  }
  return {};
}

// Formats a struct parameter word by word: pointers into buffers by their names, everything else as numbers.
std::string words_of(const void* argument, std::size_t bytes) {
  const auto* const from = static_cast<const char*>(argument);
  std::string text = "{";
  std::size_t zeros = 0;  // prints padding and uninitialized words as one number
  const auto end_zeros = [&] {
    if (zeros > 0) text += zeros == 1 ? "0 " : "0*" + std::to_string(zeros) + " ";
    zeros = 0;
  };
  for (std::size_t i = 0; i + 4 <= bytes;) {
    const void* pointer = nullptr;
    std::int32_t word;
    std::memcpy(&word, from + i, 4);
    if (i + 8 <= bytes && i % 8 == 0) std::memcpy(&pointer, from + i, 8);
    // An odd address is not a pointer but a bool and seven bytes of padding.
    if (pointer != nullptr && word % 2 == 0 && buffer_of(pointer) != world().buffers.end()) {
      end_zeros();
      text += buffer_name(pointer) + " ";
      i += 8;
      continue;
    }
    if (word == 0) {
      ++zeros;
    } else {
      end_zeros();
      text += std::to_string(word) + " ";
    }
    i += 4;
  }
  end_zeros();
  if (text.back() == ' ') text.pop_back();
  return text + "}";
}

cudaError_t launch(Kernel& kernel, const LaunchShape& shape, void** arguments, const std::string& attributes) {
  const Guard guard(mutex());
  const std::string& name = kernel.name.name;
  const dim3 &grid = shape.grid, &block = shape.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return refuse(cudaErrorInvalidConfiguration, name + ": a grid of " + extents(grid));
  if (const auto threads = std::uint64_t{block.x} * block.y * block.z; threads == 0 || threads > kThreadsPerBlock)
    return refuse(cudaErrorInvalidConfiguration, name + ": a block of " + extents(block));
  if (shape.shared > static_cast<std::size_t>(kernel.dynamic_shared))
    return refuse(cudaErrorInvalidValue, name + ": " + std::to_string(shape.shared) + " bytes of shared memory");
  std::string values, pointers;
  for (std::size_t i = 0; i < kernel.name.parameters.size(); ++i) {
    const std::string& type = kernel.name.parameters[i];
    if (type.back() == '*') {
      pointers += (pointers.empty() ? "" : " ") + buffer_name(*static_cast<void**>(arguments[i]));
    } else {
      std::string value = value_of(type, arguments[i]);
      if (value == "_" && i < kernel.sizes.size()) {
        value = "{" + std::to_string(kernel.sizes[i]) + "}";
        pointers += (pointers.empty() ? "" : " ") + words_of(arguments[i], kernel.sizes[i]);
      }
      values += (values.empty() ? "" : " ") + value;
    }
  }
  Stream& stream = stream_of(shape.stream);
  enqueue(stream, "launch", name,
          "grid=" + extents(grid) + " block=" + extents(block) + " shared=" + std::to_string(shape.shared) +
              " stream=" + std::to_string(stream.number) + attributes + " (" + values + ")",
          pointers, emulation_of(name.substr(0, name.find('<')), grid, arguments));
  return cudaSuccess;
}

Kernel* kernel_of(const void* function) {
  const auto found = world().kernels.find(function);
  return found == world().kernels.end() ? nullptr : &found->second;
}

// A TMA descriptor. Checks the same size limits as the driver.
CUresult encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                           const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                           const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const Guard guard(mutex());
  bool allowed = rank >= 1 && rank <= 5 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  std::string shape = "type=" + std::to_string(type) + " swizzle=" + std::to_string(swizzle);
  for (cuuint32_t i = 0; allowed && i < rank; ++i) {
    allowed = sizes[i] > 0 && box[i] > 0 && box[i] <= 256 && steps[i] >= 1 && steps[i] <= 8;
    if (i + 1 < rank) allowed = allowed && strides[i] % 16 == 0;
    shape += (i == 0 ? " " : " x ") + std::to_string(sizes[i]) + "/" + std::to_string(box[i]);
  }
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &data, sizeof data);
  trace(allowed ? "tensor map" : "refused tensor map", std::to_string(rank), shape, buffer_name(data));
  return allowed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct TraceFile {
  std::FILE* file = nullptr;
  TraceFile() {
    if (const char* const path = std::getenv("SOME_CUDA_TRACE"); path != nullptr && *path != '\0') {
      file = std::fopen(path, "w");
      if (file == nullptr) {
        std::perror(path);
        std::abort();
      }
    }
  }
};

}  // namespace

struct Graph {
  int number = 0;
  std::vector<std::function<void()>> work;
  std::set<Stream*> streams;  // work that is part of the capture
};

std::recursive_mutex& mutex() {
  static std::recursive_mutex* const made = new std::recursive_mutex;
  return *made;
}

void trace(const std::string& verb, const std::string& object, const std::string& shape, const std::string& buffers) {
  static TraceFile* const to = new TraceFile;
  if (to->file == nullptr) return;
  std::fprintf(to->file, "%s\t%s\t%s\t%s\n", verb.c_str(), object.c_str(), shape.c_str(), buffers.c_str());
  std::fflush(to->file);
}

std::string buffer_name(const void* pointer) {
  if (pointer == nullptr) return "null";
  const auto found = buffer_of(pointer);
  if (found == world().buffers.end()) return "host";
  return found->second.name + "+" + std::to_string(static_cast<const char*>(pointer) - found->first);
}

Stream& stream_of(cudaStream_t stream) {
  return stream == nullptr ? world().null_stream : *reinterpret_cast<Stream*>(stream);
}

void enqueue(Stream& stream, const std::string& verb, const std::string& object, const std::string& shape,
             const std::string& buffers, std::function<void()> work) {
  trace(verb, object, shape, buffers);
  if (stream.capture != nullptr) {
    stream.capture->work.push_back(std::move(work));
  } else if (work) {
    work();
  }
}

}  // namespace fake_cuda

using namespace fake_cuda;

namespace {
std::string on(const Stream& stream) { return "stream=" + std::to_string(stream.number); }
Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }
cudaError_t not_in_capture(const char* what) {
  return captures > 0 ? refuse(cudaErrorStreamCaptureUnsupported, std::string(what) + " during a capture")
                      : cudaSuccess;
}
}  // namespace

extern "C" {

// Registration of kernels, and the two halves of kernel<<<...>>>(...). Not declared in any public header.

void** __cudaRegisterFatBinary(void* fat_binary) {
  const Guard guard(mutex());
  read_kernel_parameters(fat_binary, world().parameters);
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const Guard guard(mutex());
  Kernel& kernel = world().kernels[function];
  kernel.name = read_kernel_name(name);
  if (const auto found = world().parameters.find(name); found != world().parameters.end()) kernel.sizes = found->second;
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (pushed.empty()) return answer(cudaErrorMissingConfiguration);
  const LaunchShape shape = pushed.back();
  pushed.pop_back();
  *grid = shape.grid;
  *block = shape.block;
  *shared = shape.shared;
  *static_cast<cudaStream_t*>(stream) = shape.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  const Guard guard(mutex());
  Kernel* const found = kernel_of(function);
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return found == nullptr ? answer(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  if (kernel == nullptr) return answer(cudaErrorInvalidDeviceFunction);
  return launch(*reinterpret_cast<Kernel*>(kernel), {grid, block, shared, stream}, arguments, "");
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return answer(cudaErrorInvalidDeviceFunction);
  return launch(*kernel, {grid, block, shared, stream}, arguments, "");
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return answer(cudaErrorInvalidDeviceFunction);
  std::string attributes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      if (attribute.val.programmaticStreamSerializationAllowed != 0) attributes += " early";
    } else if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& size = attribute.val.clusterDim;
      if (size.x * size.y * size.z == 0 || config->gridDim.x % size.x != 0 || config->gridDim.y % size.y != 0 ||
          config->gridDim.z % size.z != 0)
        return refuse(cudaErrorInvalidConfiguration, kernel->name.name + ": a grid that is not one of whole clusters");
      attributes += " cluster=" + extents(dim3(size.x, size.y, size.z));
    } else {
      attributes += " attribute" + std::to_string(attribute.id);
    }
  }
  return launch(*kernel, {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream}, arguments,
                attributes);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const Guard guard(mutex());
  Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return answer(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > shared_opt_in())
      return refuse(cudaErrorInvalidValue,
                    kernel->name.name + ": " + std::to_string(value) + " bytes of shared memory");
    kernel->dynamic_shared = value;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  const Guard guard(mutex());
  const Kernel* const kernel = kernel_of(function);
  if (kernel == nullptr) return answer(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = kThreadsPerBlock;
  attributes->numRegs = 64;
  attributes->ptxVersion = attributes->binaryVersion = 90;  // the architecture of the build
  attributes->maxDynamicSharedSizeBytes = kernel->dynamic_shared;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   std::size_t shared, unsigned) {
  if (kernel_of(function) == nullptr) return answer(cudaErrorInvalidDeviceFunction);
  *blocks = std::min({kBlocksPerSm, kThreadsPerSm / std::max(threads, 1),
                      static_cast<int>(shared_per_multiprocessor() / (shared + 1024))});
  return cudaSuccess;
}

// Errors.

cudaError_t cudaGetLastError() {
  const cudaError_t status = last_error;
  last_error = cudaSuccess;
  return status;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t status) { return cudaGetErrorName(status); }
const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorMissingConfiguration: return "cudaErrorMissingConfiguration";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    default: return "another CUDA error";
  }
}

// Device.

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : answer(cudaErrorInvalidDevice); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return answer(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, is_hopper() ? "fake NVIDIA H200" : "fake NVIDIA A100");
  properties->totalGlobalMem = memory_bytes();
  properties->sharedMemPerBlock = kSharedPerBlock;
  properties->sharedMemPerBlockOptin = shared_opt_in();
  properties->sharedMemPerMultiprocessor = shared_per_multiprocessor();
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = kThreadsPerSm;
  properties->maxBlocksPerMultiProcessor = kBlocksPerSm;
  properties->multiProcessorCount = multiprocessors();
  properties->l2CacheSize = 60 << 20;
  properties->major = is_hopper() ? 9 : 8;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return answer(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = is_hopper() ? 9 : 8; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = multiprocessors(); break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kSharedPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_opt_in(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = shared_per_multiprocessor(); break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = kThreadsPerBlock; break;
    case cudaDevAttrL2CacheSize: *value = 60 << 20; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: return refuse(cudaErrorInvalidValue, "device attribute " + std::to_string(attribute));
  }
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&encode_tensor_map) : nullptr;
  if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// Memory.

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const Guard guard(mutex());
  if (const cudaError_t status = not_in_capture("cudaMalloc"); status != cudaSuccess) return status;
  if (world().bytes_used + bytes > memory_bytes()) return answer(cudaErrorMemoryAllocation);
  const std::string name = "d" + std::to_string(++world().device_buffers);
  *data = make_buffer(bytes, name);
  if (*data == nullptr) return answer(cudaErrorMemoryAllocation);
  world().bytes_used += bytes;
  trace("malloc", "device", "bytes=" + std::to_string(bytes), name);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const Guard guard(mutex());
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t status = not_in_capture("cudaFree"); status != cudaSuccess) return status;
  trace("free", "device", "", buffer_name(data));
  return free_buffer(data, 'd') ? cudaSuccess
                                : refuse(cudaErrorInvalidValue, "cudaFree of what cudaMalloc did not make");
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  const Guard guard(mutex());
  if (const cudaError_t status = not_in_capture("cudaMallocHost"); status != cudaSuccess) return status;
  const std::string name = "h" + std::to_string(++world().pinned_buffers);
  *data = make_buffer(bytes, name);
  if (*data == nullptr) return answer(cudaErrorMemoryAllocation);
  trace("malloc", "pinned", "bytes=" + std::to_string(bytes), name);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  const Guard guard(mutex());
  if (data == nullptr) return cudaSuccess;
  trace("free", "pinned", "", buffer_name(data));
  return free_buffer(data, 'h') ? cudaSuccess
                                : refuse(cudaErrorInvalidValue, "cudaFreeHost of what cudaMallocHost did not make");
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* all_bytes) {
  const Guard guard(mutex());
  *all_bytes = memory_bytes();
  *free_bytes = memory_bytes() - world().bytes_used;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Guard guard(mutex());
  const bool to = is_device_memory(target), from = is_device_memory(source);
  const bool named = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && to && !from) ||
                     (kind == cudaMemcpyDeviceToHost && !to && from) ||
                     (kind == cudaMemcpyDeviceToDevice && to && from);
  if (bytes > 0 && (!named || (to && !has_room(target, bytes)) || (from && !has_room(source, bytes))))
    return refuse(cudaErrorInvalidValue, "a copy of " + std::to_string(bytes) + " bytes from " + buffer_name(source) +
                                             " to " + buffer_name(target));
  Stream& one = stream_of(stream);
  enqueue(one, "copy", std::string(from ? "device" : "host") + " to " + (to ? "device" : "host"),
          "bytes=" + std::to_string(bytes) + " " + on(one), buffer_name(source) + " " + buffer_name(target),
          [=] { std::memmove(target, source, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  const Guard guard(mutex());
  if (bytes > 0 && !(is_device_memory(target) && has_room(target, bytes)))
    return refuse(cudaErrorInvalidValue, "a fill of " + std::to_string(bytes) + " bytes at " + buffer_name(target));
  Stream& one = stream_of(stream);
  enqueue(one, "fill", std::to_string(value), "bytes=" + std::to_string(bytes) + " " + on(one), buffer_name(target),
          [=] { std::memset(target, value, bytes); });
  return cudaSuccess;
}

// Streams and events. All work is complete when a call returns.

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const Guard guard(mutex());
  auto* const made = new Stream;
  made->number = ++world().streams;
  trace("create", "stream", on(*made) + " flags=" + std::to_string(flags) + " priority=" + std::to_string(priority));
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Guard guard(mutex());
  trace("destroy", "stream", on(stream_of(stream)));
  delete &stream_of(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Guard guard(mutex());
  if (stream_of(stream).capture != nullptr)
    return refuse(cudaErrorStreamCaptureUnsupported, "waiting for a stream that is captured");
  trace("synchronize", "stream", on(stream_of(stream)));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Guard guard(mutex());
  auto* const made = new Event;
  made->number = ++world().events;
  trace("create", "event", "event=" + std::to_string(made->number) + " flags=" + std::to_string(flags));
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Guard guard(mutex());
  trace("destroy", "event", "event=" + std::to_string(event_of(event).number));
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Guard guard(mutex());
  Stream& one = stream_of(stream);
  event_of(event).capture = one.capture;
  trace("record", "event", "event=" + std::to_string(event_of(event).number) + " " + on(one));
  return cudaSuccess;
}

// A stream that waits for an event of a capture joins that capture.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Guard guard(mutex());
  Stream& one = stream_of(stream);
  Graph* const graph = event_of(event).capture;
  if (graph != nullptr) {
    if (one.capture != nullptr && one.capture != graph)
      return refuse(cudaErrorStreamCaptureUnsupported, "waiting for an event of another capture");
    one.capture = graph;
    graph->streams.insert(&one);
  }
  trace("wait", "event", "event=" + std::to_string(event_of(event).number) + " " + on(one));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Guard guard(mutex());
  if (event_of(event).capture != nullptr)
    return refuse(cudaErrorStreamCaptureUnsupported, "waiting for an event of a capture");
  trace("synchronize", "event", "event=" + std::to_string(event_of(event).number));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1.0f;
  return cudaSuccess;
}

// Graphs.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Guard guard(mutex());
  Stream& one = stream_of(stream);
  if (stream == nullptr || one.capture != nullptr)
    return refuse(cudaErrorStreamCaptureUnsupported, "a capture of a stream that cannot be captured");
  one.capture = new Graph;
  one.capture->number = ++world().graphs;
  one.capture->streams.insert(&one);
  ++captures;
  trace("capture", "begin", "graph=" + std::to_string(one.capture->number) + " " + on(one));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Guard guard(mutex());
  Stream& one = stream_of(stream);
  *graph = nullptr;
  if (one.capture == nullptr) return refuse(cudaErrorIllegalState, "the end of a capture that was not begun");
  Graph* const made = one.capture;
  for (Stream* const part : made->streams) part->capture = nullptr;
  made->streams.clear();
  --captures;
  trace("capture", "end", "graph=" + std::to_string(made->number) + " nodes=" + std::to_string(made->work.size()));
  *graph = reinterpret_cast<cudaGraph_t>(made);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Guard guard(mutex());
  *status = stream_of(stream).capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const Guard guard(mutex());
  *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Guard guard(mutex());
  trace("destroy", "graph", "graph=" + std::to_string(reinterpret_cast<Graph*>(executable)->number));
  delete reinterpret_cast<Graph*>(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Guard guard(mutex());
  const Graph* const graph = reinterpret_cast<Graph*>(executable);
  Stream& one = stream_of(stream);
  enqueue(one, "graph", "launch", "graph=" + std::to_string(graph->number) + " " + on(one), "", [graph] {
    for (const std::function<void()>& work : graph->work) {
      if (work) work();
    }
  });
  return cudaSuccess;
}

}  // extern "C"
