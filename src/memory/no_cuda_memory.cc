// Stands in for the CUDA half of the memory in a build without a CUDA compiler.
#include "base/device.h"
#include "base/error.h"
#include "memory/mix_beside.h"

namespace some::memory::cuda {
namespace {
[[noreturn]] void refuse() { failed("{}", why_unavailable()); }
}  // namespace

void make_queries(Context&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void search(Context&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Found&) { refuse(); }
void mix(Context&, const MemorySettings&, const Found&, const Tensor&, Tensor&, Tensor&) { refuse(); }
void search_and_mix_beside(Context&, Mixing&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Found&,
                           Tensor&, Tensor&) {
  refuse();
}
void finish_mixing(Context&, const Mixing&) { refuse(); }
void split_once(Context&, const Store&, const Tensor&, std::span<const Rows>, std::vector<Found>&) { refuse(); }
void learn(Context&, const MemorySettings&, const Tensor&, const Tensor&, const Tensor&, const Found&, Store&,
           Tensor&) {
  refuse();
}
void find_homes(Context&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void move_in(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, Store&) { refuse(); }
void settle_down(Context&, Store&) { refuse(); }
void slot_weights(Context&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Tensor&) { refuse(); }

}  // namespace some::memory::cuda
