// Stands in for the CUDA half of the key store in a build without a CUDA compiler.
#include "core/error.h"
#include "keys/key_store.h"
#include "tensor/device.h"

namespace some::cuda {
namespace {
[[noreturn]] void refuse() { failed("{}", unavailable_reason_text()); }
}  // namespace

void clear_key_sums(Context&, std::span<KeySums>) { refuse(); }
void add_key_sums(Context&, std::span<const LayerChoices>, const Tensor*) { refuse(); }
void merge_samples(Context&, const KeySums&, KeySums&) { refuse(); }
void update_keys(Context&, std::span<const LayerUpdate>) { refuse(); }

}  // namespace some::cuda
