// Stands in for the CUDA half of the base module in a build without a CUDA compiler.
#include "base/device.h"
#include "base/error.h"
#include "base/graph.h"

namespace some::cuda {

bool available() { return false; }
std::string why_unavailable() {
  return "this build has no CUDA: configure it where nvcc is found, with -DSOME_CUDA=ON";
}
std::string why_unusable(int) { return why_unavailable(); }

namespace {
[[noreturn]] void refuse() { failed("{}", why_unavailable()); }
}  // namespace

int first_usable() { refuse(); }
std::shared_ptr<CudaState> open(int) { refuse(); }
std::string device_name(const Device&) { refuse(); }
std::string identity(const Device&) { refuse(); }
void* stream_of(const Device&) { refuse(); }
void add_numbers(const Device&, DType, const void*, void*, std::int64_t) { refuse(); }
std::size_t memory_peak(const Device&) { refuse(); }
OnGpu::OnGpu(const CudaState&) { refuse(); }
OnGpu::~OnGpu() = default;
void upload_async(const Device&, const void*, void*, std::size_t) { refuse(); }
void* allocate_pinned(const Device&, std::size_t) { refuse(); }
void release_pinned(void*) { refuse(); }
Event::Event(const Device&) { refuse(); }
Event::~Event() = default;
void Event::record() { refuse(); }
bool Event::passed() const { refuse(); }
void Event::wait() const { refuse(); }
double Event::milliseconds_since(const Event&) const { refuse(); }
void* allocate(CudaState&, std::size_t) { refuse(); }
void release(CudaState&, void*, std::size_t) { refuse(); }
void zero(CudaState&, void*, std::size_t) { refuse(); }
void copy(CudaState*, void*, CudaState*, const void*, std::size_t) { refuse(); }
void synchronize(CudaState&) { refuse(); }
int index_of(const CudaState&) { refuse(); }
void part_beside(CudaState&) { refuse(); }
void enter_beside(CudaState&) { refuse(); }
void begin_beside(CudaState&) { refuse(); }
void end_beside(CudaState&) { refuse(); }
void join_beside(CudaState&) { refuse(); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::record(const Device&, const std::function<void()>&) { refuse(); }
void Graph::launch() { refuse(); }

}  // namespace some::cuda
