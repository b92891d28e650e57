// Stands in for the CUDA half of the base module in a build without a CUDA compiler.
#include "core/error.h"
#include "tensor/device.h"
#include "tensor/graph.h"

namespace some::cuda {

bool available() { return false; }
std::string unavailable_reason_text() {
  return "this build has no CUDA: configure it where nvcc is found, with -DSOME_CUDA=ON";
}
std::string unusable_reason(int) { return unavailable_reason_text(); }

namespace {
[[noreturn]] void refuse() { failed("{}", unavailable_reason_text()); }
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
void fork_side_stream(CudaState&) { refuse(); }
void enter_side_stream(CudaState&) { refuse(); }
void begin_side_stream(CudaState&) { refuse(); }
void end_side_stream(CudaState&) { refuse(); }
void join_side_stream(CudaState&) { refuse(); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::record(const Device&, const std::function<void()>&) { refuse(); }
void Graph::launch() { refuse(); }

}  // namespace some::cuda
