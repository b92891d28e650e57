// Stands in for the CUDA half of the base module in a build without a CUDA compiler.
#include "base/context.h"
#include "base/device.h"
#include "base/error.h"
#include "base/graph.h"

namespace some::cuda {

bool available() { return false; }
std::string why_unavailable() {
  return "this build has no CUDA: configure it where nvcc is found, with -DSOME_CUDA=ON";
}

namespace {
[[noreturn]] void refuse() { failed("{}", why_unavailable()); }
}  // namespace

std::string device_name() { refuse(); }
int multiprocessors() { refuse(); }
void* allocate(std::size_t) { refuse(); }
void release(void*) { refuse(); }
void zero(void*, std::size_t) { refuse(); }
void copy(bool, bool, void*, const void*, std::size_t) { refuse(); }
void upload_async(const void*, void*, std::size_t) { refuse(); }
void download_async(const void*, void*, std::size_t) { refuse(); }
void* allocate_pinned(std::size_t) { refuse(); }
void release_pinned(void*) { refuse(); }
void synchronize() { refuse(); }
std::size_t memory_used() { refuse(); }
std::size_t memory_peak() { refuse(); }
std::shared_ptr<CudaState> make_state() { refuse(); }
Event::Event() { refuse(); }
Event::~Event() = default;
void Event::record() { refuse(); }
bool Event::passed() const { refuse(); }
void Event::wait() const { refuse(); }
double Event::milliseconds_since(const Event&) const { refuse(); }
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::record(const std::function<void()>&) { refuse(); }
void Graph::launch() { refuse(); }

}  // namespace some::cuda
