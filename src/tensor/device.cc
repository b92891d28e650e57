#include "tensor/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "tensor/graph.h"

namespace some {
namespace {

constexpr std::size_t small_alignment = 256;
constexpr std::size_t huge_page = std::size_t{2} << 20;

void* cpu_allocate(std::size_t bytes) {
  // Large blocks are aligned to huge pages and request them: fewer page faults and TLB misses.
  const std::size_t alignment = bytes >= 2 * huge_page ? huge_page : small_alignment;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (data == nullptr) failed(Code::out_of_memory, "out of memory: {} bytes requested", bytes);
  if (alignment == huge_page) madvise(data, rounded, MADV_HUGEPAGE);  // only a hint: failure is harmless
  return data;
}

}  // namespace

constinit const Device Device::cpu;  // usable by the initialization of other variables

std::optional<DeviceName> parse_device_name(const std::string& name) {
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

void cuda::fail_unavailable() { failed(Code::device_unusable, "{}", unavailable_reason_text()); }

}  // namespace some

// The CUDA functions in a build without CUDA. No Device is a GPU in such a build, so only available(), the two reasons,
// first_usable_gpu() and open() are ever called.
#if !SOME_HAVE_CUDA
namespace some::cuda {

bool available() { return false; }
std::string unavailable_reason_text() {
  return "this build has no CUDA support; configure with nvcc and -DSOME_CUDA=ON";
}
std::string unusable_reason(int) { return unavailable_reason_text(); }

int first_usable_gpu() { fail_unavailable(); }
std::shared_ptr<CudaState> open(int) { fail_unavailable(); }
std::string device_name(const Device&) { fail_unavailable(); }
std::string identity(const Device&) { fail_unavailable(); }
void* stream_of(const Device&) { fail_unavailable(); }
void add_numbers(const Device&, DType, const void*, void*, std::int64_t) { fail_unavailable(); }
std::size_t memory_peak(const Device&) { fail_unavailable(); }
CudaDeviceGuard::CudaDeviceGuard(const CudaState&) { fail_unavailable(); }
CudaDeviceGuard::~CudaDeviceGuard() = default;
void upload_async(const Device&, const void*, void*, std::size_t) { fail_unavailable(); }
void upload_async(const CudaState&, const void*, void*, std::size_t) { fail_unavailable(); }
void* allocate_pinned(const Device&, std::size_t) { fail_unavailable(); }
void release_pinned(void*) { fail_unavailable(); }
Event::Event(const Device&) { fail_unavailable(); }
Event::~Event() = default;
void Event::record() { fail_unavailable(); }
void Event::record(const CudaState&) { fail_unavailable(); }
bool Event::passed() const { fail_unavailable(); }
void Event::wait() const { fail_unavailable(); }
double Event::milliseconds_since(const Event&) const { fail_unavailable(); }
void* allocate(CudaState&, std::size_t) { fail_unavailable(); }
void release(CudaState&, void*, std::size_t) { fail_unavailable(); }
void zero(CudaState&, void*, std::size_t) { fail_unavailable(); }
void copy(CudaState*, void*, CudaState*, const void*, std::size_t) { fail_unavailable(); }
void synchronize(CudaState&) { fail_unavailable(); }
int index_of(const CudaState&) { fail_unavailable(); }
CudaState& side_of(CudaState&) { fail_unavailable(); }
void wait_for(CudaState&, CudaState&) { fail_unavailable(); }
bool capturing(const CudaState&) { fail_unavailable(); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::record(const Device&, const std::function<void()>&) { fail_unavailable(); }
void Graph::launch() { fail_unavailable(); }

}  // namespace some::cuda
#endif
