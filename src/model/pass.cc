#include "model/pass.h"

#include <algorithm>

#include "ops/conv.h"
#include "runtime/staging.h"

namespace some {

DeviceBatch upload(Context& ctx, const Batch& batch) {
  DeviceBatch out;
  const std::vector<Tensor> parts =
      ctx.staging->upload(ctx, {&batch.tokens, &batch.targets, &batch.positions, &batch.offsets});
  out.tokens = parts[0];
  out.targets = parts[1];
  out.positions = parts[2];
  out.sequences.offsets = parts[3];
  out.sequences.count = batch.rows();
  out.sequences.longest = batch.longest;
  out.sequences.tokens = batch.size();
  out.predicted = batch.predicted;
  if (!batch.tokens.empty()) {
    const auto [smallest, largest] = std::minmax_element(batch.tokens.begin(), batch.tokens.end());
    out.smallest_id = *smallest;
    out.largest_id = std::max(*largest, *std::max_element(batch.targets.begin(), batch.targets.end()));
  }
  return out;
}

Tensor Pass::states(Context& ctx, int layer, const Tensor& x) const {
  if (kept_states.empty()) return x;
  Tensor kept = kept_states[static_cast<std::size_t>(layer)];
  scatter_rows(ctx, x, places, kept);
  return kept;
}

}  // namespace some
