// Stands in for the CUDA half of the key store in a build without a CUDA compiler.
#include "base/device.h"
#include "base/error.h"
#include "keys/key_store.h"

namespace some::keys::cuda {
namespace {
[[noreturn]] void refuse() { failed("{}", why_unavailable()); }
}  // namespace

void clear_key_sums(Context&, std::span<KeySums>) { refuse(); }
void add_key_sums(Context&, std::span<const LayerChoices>, const Tensor*) { refuse(); }
void merge_samples(Context&, const KeySums&, KeySums&) { refuse(); }
void update_keys(Context&, std::span<const LayerUpdate>) { refuse(); }

}  // namespace some::keys::cuda
