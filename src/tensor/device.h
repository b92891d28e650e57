// Devices: their memory, and copies between them. The CUDA half is in device_cuda.cu. In a build without CUDA its
// functions fail with one clear error (end of device.cc), so callers have no conditionals.
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

// What a recipe means by "cpu", "cuda" (the first GPU) or "cuda:1".
struct DeviceName {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
};
std::optional<DeviceName> device_named(const std::string& name);  // empty for any other name
// Also understands "auto": the first GPU where there is one. bad_input for an unknown name; throws when there is no
// such GPU.
DeviceName choose_device(const std::string& name);

struct CudaState;  // a GPU in use: its stream, handles and memory counts (tensor/cuda_state.h, CUDA builds only)

// Where tensors live: the CPU, or a GPU together with the stream that everything done to the tensor is put on, one
// after another. A stream belongs to the context that opened it: two contexts on one GPU are two devices, which do not
// wait for each other. Copies of a Device are the same one, and keep it open.
class Device {
 public:
  Device() = default;
  explicit Device(std::shared_ptr<CudaState> cuda) : cuda_(std::move(cuda)) {}
  static const Device cpu;

  bool is_cpu() const { return cuda_ == nullptr; }
  bool is_cuda() const { return cuda_ != nullptr; }
  CudaState& cuda() const { return *cuda_; }  // of a GPU only
  bool operator==(const Device&) const = default;

 private:
  std::shared_ptr<CudaState> cuda_;
};

std::string name_of(const Device& device);  // "cpu" or "cuda:0"

void* device_allocate(const Device& device, std::size_t bytes);  // 256-byte aligned; throws when there is no memory
void device_release(const Device& device, void* data, std::size_t bytes);  // as many as were asked for
void device_zero(const Device& device, void* data, std::size_t bytes);
// On the GPU's stream; waits for completion unless both ends are on a GPU.
void device_copy(const Device& to, void* target, const Device& from, const void* source, std::size_t bytes);
void device_synchronize(const Device& device);  // waits for everything on its stream; nothing to do on the CPU

namespace cuda {

bool available();                       // this build has CUDA and there is a GPU that can be used
std::string unavailable_reason_text();  // where there is none: one line for the user
[[noreturn]] void fail_unavailable();   // with unavailable_reason_text()
int first_usable();                     // its number; throws where there is none
// One line for the user on why GPU number `index` cannot be used; empty where it can.
std::string unusable_reason(int index);

std::shared_ptr<CudaState> open(int index);  // a new stream on that GPU; throws where it cannot be used
std::string device_name(const Device& device);
std::string identity(const Device& device);     // of the GPU: no other one anywhere has the same
void* stream_of(const Device& device);          // a cudaStream_t
std::size_t memory_peak(const Device& device);  // the most bytes of GPU memory that were held through it at once

// Makes its GPU the one that the calling thread's launches go to, for as long as this lives.
class OnGpu {
 public:
  explicit OnGpu(const CudaState& state);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  int before_ = -1;  // what it was; -1: the same
};

// Without waiting: the pinned memory must stay as it is until an Event recorded afterwards has passed.
void upload_async(const Device& device, const void* pinned, void* target, std::size_t bytes);
void* allocate_pinned(const Device& device, std::size_t bytes);
void release_pinned(void* data);

// A mark in a device's stream: to wait for what was put there before it, and to time what lies between two marks.
class Event {
 public:
  explicit Event(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  const Device& device() const { return device_; }
  void record();
  bool passed() const;
  void wait() const;
  double milliseconds_since(const Event& earlier) const;  // waits for this one

 private:
  Device device_;
  void* event_ = nullptr;
};

// Numbers of any type but bf16, one by one: target += source. On the device's stream.
void add_numbers(const Device& device, DType type, const void* source, void* target, std::int64_t count);

// The CUDA side of the functions above.
void* allocate(CudaState& state, std::size_t bytes);
void release(CudaState& state, void* data, std::size_t bytes);
void zero(CudaState& state, void* data, std::size_t bytes);
void copy(CudaState* to, void* target, CudaState* from, const void* source, std::size_t bytes);  // null: the host
void synchronize(CudaState& state);
int index_of(const CudaState& state);
// Of runtime/side_stream.h: makes the state's second stream the one that work is put on, and the first one again. begin
// is both halves, which runtime/prefetcher.h needs apart: the second stream waits for what is on the first now, and
// takes its place.
void fork_side_stream(CudaState& state);
void enter_side_stream(CudaState& state);
void begin_side_stream(CudaState& state);
void end_side_stream(CudaState& state);
void join_side_stream(CudaState& state);

}  // namespace cuda
}  // namespace some
