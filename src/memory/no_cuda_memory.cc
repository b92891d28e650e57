// Stands in for the CUDA half of the memory in a build without a CUDA compiler.
#include "core/error.h"
#include "memory/mixture.h"
#include "tensor/device.h"

namespace some::cuda {
namespace {
[[noreturn]] void refuse() { failed("{}", unavailable_reason_text()); }
}  // namespace

void make_queries(Context&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void search(Context&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Matches&) { refuse(); }
void mix(Context&, const MemorySettings&, const Matches&, const Tensor&, Tensor&, Tensor&) { refuse(); }
void search_and_mix_concurrently(Context&, Mixing&, const Store&, const MemorySettings&, const Tensor&, const Tensor&,
                                 Matches&, Tensor&, Tensor&) {
  refuse();
}
void finish_mixing(Context&, const Mixing&) { refuse(); }
void split_windows(Context&, const Store&, const Tensor&, std::span<const Rows>, std::vector<Matches>&) { refuse(); }
void learn(Context&, const MemorySettings&, const Tensor&, const Tensor&, const Tensor&, const Matches&, Store&,
           Tensor&) {
  refuse();
}
void assign_slots(Context&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void insert_assigned(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, Store&) { refuse(); }
void finish_refinement(Context&, Store&) { refuse(); }
void slot_weights(Context&, const Store&, const MemorySettings&, const Tensor&, const Tensor&, Tensor&) { refuse(); }

}  // namespace some::cuda
