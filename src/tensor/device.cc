#include "tensor/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/error.h"

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

std::optional<DeviceName> device_named(const std::string& name) {
  constexpr std::string_view prefix = "cuda:";
  if (name == "cpu") return DeviceName{};
  if (name == "cuda") return DeviceName{DeviceKind::cuda, 0};
  if (!name.starts_with(prefix)) return std::nullopt;
  DeviceName out{DeviceKind::cuda, 0};
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + prefix.size(), end, out.index);
  if (read.ec != std::errc() || read.ptr != end || out.index < 0) return std::nullopt;
  return out;
}

std::string name_of(const Device& device) {
  return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", cuda::index_of(device.cuda()));
}

void* device_allocate(const Device& device, std::size_t bytes) {
  return device.is_cpu() ? cpu_allocate(bytes) : cuda::allocate(device.cuda(), bytes);
}

void device_release(const Device& device, void* data, std::size_t bytes) {
  if (data == nullptr) return;
  if (device.is_cpu()) {
    std::free(data);
  } else {
    cuda::release(device.cuda(), data, bytes);
  }
}

void device_zero(const Device& device, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  if (device.is_cpu()) {
    std::memset(data, 0, bytes);
  } else {
    cuda::zero(device.cuda(), data, bytes);
  }
}

void device_copy(const Device& to, void* target, const Device& from, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  if (to.is_cpu() && from.is_cpu()) {
    std::memmove(target, source, bytes);
  } else {
    cuda::copy(to.is_cuda() ? &to.cuda() : nullptr, target, from.is_cuda() ? &from.cuda() : nullptr, source, bytes);
  }
}

void device_synchronize(const Device& device) {
  if (device.is_cuda()) cuda::synchronize(device.cuda());
}

}  // namespace some
