#include "base/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace some {
namespace {

constexpr std::size_t small_alignment = 256;
constexpr std::size_t huge_page = std::size_t{2} << 20;

void* cpu_allocate(std::size_t bytes) {
  // Large blocks start on a huge page and ask for more of them: fewer page faults and address lookups.
  const std::size_t alignment = bytes >= 2 * huge_page ? huge_page : small_alignment;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (data == nullptr) failed("no memory left: {} bytes were asked for", bytes);
  if (alignment == huge_page) madvise(data, rounded, MADV_HUGEPAGE);  // a wish: a refusal changes nothing
  return data;
}

}  // namespace

void* device_allocate(Device device, std::size_t bytes) {
  return device == Device::cpu ? cpu_allocate(bytes) : cuda::allocate(std::max<std::size_t>(bytes, 1));
}

void device_release(Device device, void* data) {
  if (data == nullptr) return;
  if (device == Device::cpu) {
    std::free(data);
  } else {
    cuda::release(data);
  }
}

void device_zero(Device device, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  if (device == Device::cpu) {
    std::memset(data, 0, bytes);
  } else {
    cuda::zero(data, bytes);
  }
}

void device_copy(Device to, void* target, Device from, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  if (to == Device::cpu && from == Device::cpu) {
    std::memmove(target, source, bytes);
  } else {
    cuda::copy(to == Device::cuda, from == Device::cuda, target, source, bytes);
  }
}

}  // namespace some
