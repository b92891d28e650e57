// Memory of a device and copies between devices. The CUDA half lives in device_cuda.cu; a build without CUDA links
// no_cuda.cc, whose every function fails with one clear error, so callers have no conditionals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/tensor.h"

namespace some {

void* device_allocate(Device device, std::size_t bytes);  // 256-byte aligned; throws when there is no memory
void device_release(Device device, void* data);
void device_zero(Device device, void* data, std::size_t bytes);
void device_copy(Device to, void* target, Device from, const void* source, std::size_t bytes);

namespace cuda {
bool available();               // true when this build has CUDA and a GPU answers
std::string why_unavailable();  // one line for the user
std::string device_name();
int multiprocessors();
void* allocate(std::size_t bytes);
void release(void* data);
void zero(void* data, std::size_t bytes);  // on the default stream of the program
// On the same stream; waits for completion unless both ends are on the device.
void copy(bool to_device, bool from_device, void* target, const void* source, std::size_t bytes);
// Without waiting: the pinned memory must stay as it is until an Event recorded afterwards has passed.
void upload_async(const void* pinned, void* target, std::size_t bytes);
void download_async(const void* source, void* pinned, std::size_t bytes);
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data);
void synchronize();
std::size_t memory_used();  // bytes of GPU memory this program holds now
std::size_t memory_peak();  // and at most so far

// A mark in the program's stream: to wait for what was put there before it, and to time what lies between two marks.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record();
  bool passed() const;
  void wait() const;
  double milliseconds_since(const Event& earlier) const;  // waits for this one

 private:
  void* event_ = nullptr;
};
}  // namespace cuda

}  // namespace some
