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
bool available();                  // true when this build has CUDA and a GPU answers
std::string why_unavailable();     // one line for the user
std::string device_name();
int multiprocessors();
void* allocate(std::size_t bytes);
void release(void* data);
void zero(void* data, std::size_t bytes);  // on the default stream of the program
void copy(bool to_device, bool from_device, void* target, const void* source, std::size_t bytes);  // waits for completion
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data);
void synchronize();
std::size_t memory_used();         // bytes of GPU memory this program holds now
std::size_t memory_peak();         // and at most so far
}  // namespace cuda

}  // namespace some
