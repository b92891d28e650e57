// Devices: memory and copies. The CUDA functions are in device_cuda.cu. In a build without CUDA they fail with one
// clear error (end of device.cc), so callers need no conditionals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace some {

enum class DType : std::uint8_t;  // tensor/tensor.h
enum class DeviceKind : std::uint8_t { cpu, cuda };

// Parsed device name: "cpu", "cuda" (the first GPU) or "cuda:1".
struct DeviceName {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
};
std::optional<DeviceName> parse_device_name(const std::string& name);  // empty for any other name
// Resolves a device name, including "auto": the first usable GPU, or the CPU if there is none. bad_input for an unknown
// name; fails if the GPU does not exist or cannot be used.
DeviceName choose_device(const std::string& name);

struct CudaState;  // a GPU in use: its stream, handles and memory counts (tensor/cuda_state.h, CUDA builds only)

// The place of a tensor: the CPU, or a GPU together with the stream on which all work on the tensor is serialized. A
// stream belongs to the context that opened it: two contexts on one GPU are two devices, which do not wait for each
// other. Copies of a Device share the stream and keep it open.
class Device {
 public:
  Device() = default;
  explicit Device(std::shared_ptr<CudaState> cuda) : cuda_(std::move(cuda)) {}
  static const Device cpu;

  bool is_cpu() const { return cuda_ == nullptr; }
  bool is_cuda() const { return cuda_ != nullptr; }
  CudaState& cuda() const { return *cuda_; }  // GPU devices only
  bool operator==(const Device&) const = default;

 private:
  std::shared_ptr<CudaState> cuda_;
};

std::string name_of(const Device& device);  // "cpu" or "cuda:0"

void* device_allocate(const Device& device, std::size_t bytes);  // 256-byte aligned; fails if no memory is left
void device_release(const Device& device, void* data, std::size_t bytes);  // `bytes` as passed to device_allocate
void device_zero(const Device& device, void* data, std::size_t bytes);
// Copies on the GPU's stream, and waits for completion unless both ends are on a GPU.
void device_copy(const Device& to, void* target, const Device& from, const void* source, std::size_t bytes);
void device_synchronize(const Device& device);  // waits for all work on its stream; no effect on the CPU

namespace cuda {

bool available();                       // true if this build has CUDA and a GPU can be used
std::string unavailable_reason_text();  // why not: one line for the user
[[noreturn]] void fail_unavailable();   // fails with unavailable_reason_text()
int first_usable_gpu();                 // number of the first usable GPU; fails if there is none
// Returns why GPU number `index` cannot be used, as one line for the user; empty if it can.
std::string unusable_reason(int index);

std::shared_ptr<CudaState> open(int index);  // a new stream on that GPU; fails if it cannot be used
std::string device_name(const Device& device);
std::string identity(const Device& device);     // UUID of the GPU, which is globally unique
void* stream_of(const Device& device);          // a cudaStream_t
std::size_t memory_peak(const Device& device);  // maximum bytes of GPU memory held at once through this device

// Sets the current CUDA device of the calling thread for the lifetime of this object.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(const CudaState& state);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  int before_ = -1;  // the previous device; -1: unchanged
};

// Copies asynchronously: the pinned memory must not change until an Event recorded afterwards has passed.
void upload_async(const Device& device, const void* pinned, void* target, std::size_t bytes);
void upload_async(const CudaState& stream, const void* pinned, void* target, std::size_t bytes);
void* allocate_pinned(const Device& device, std::size_t bytes);
void release_pinned(void* data);

// A CUDA event: marks a point in a device's stream, to wait for the work before it or to time the work between two
// events.
class Event {
 public:
  explicit Event(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  const Device& device() const { return device_; }
  void record();
  void record(const CudaState& stream);  // on another stream of the device
  bool passed() const;
  void wait() const;
  double milliseconds_since(const Event& earlier) const;  // waits for this event

 private:
  Device device_;
  void* event_ = nullptr;
};

// Adds element by element on the device's stream: target += source. Any element type except bf16.
void add_numbers(const Device& device, DType type, const void* source, void* target, std::int64_t count);

// The CUDA implementations of the functions above.
void* allocate(CudaState& state, std::size_t bytes);
void release(CudaState& state, void* data, std::size_t bytes);
void zero(CudaState& state, void* data, std::size_t bytes);
void copy(CudaState* to, void* target, CudaState* from, const void* source, std::size_t bytes);  // null: the host
void synchronize(CudaState& state);
int index_of(const CudaState& state);
// Streams, for runtime/schedule.h and runtime/prefetcher.h.
CudaState& side_of(CudaState& state);                // the second stream of the same device
void wait_for(CudaState& first, CudaState& second);  // later work on `second` waits for the work now on `first`
bool capturing(const CudaState& state);              // a CUDA graph is being recorded on the stream

}  // namespace cuda
}  // namespace some
