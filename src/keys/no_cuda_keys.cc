// Stands in for the CUDA half of the key store in a build without a CUDA compiler.
#include "base/device.h"
#include "base/error.h"
#include "keys/key_store.h"

namespace some::cuda {
namespace {
[[noreturn]] void refuse() { failed("{}", why_unavailable()); }
}  // namespace

void clear_key_sums(Context&, KeySums&) { refuse(); }
void add_key_sums(Context&, const Tensor&, const Routing&, const Tensor*, const SumOptions&, KeySums&) { refuse(); }
void update_keys(Context&, KeyState&, const KeySums&, const KeySettings&, const UpdateOptions&) { refuse(); }

}  // namespace some::cuda
