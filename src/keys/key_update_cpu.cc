// The key update of spec 4 on the CPU. Rows are kept in double precision from the first movement to the last and
// rounded once. Each expert's row is computed by one thread in a fixed order, so the result does not depend on the
// number of threads.
#include <algorithm>
#include <cstdint>

#include "core/threads.h"
#include "keys/rules/pull_cpu.h"
#include "keys/update.h"

namespace some::cpu {
namespace {

constexpr std::int64_t kPieceWork = 1 << 15;

// Splits the experts into chunks of about equal work; chunk borders depend only on shapes. Small stores are not worth
// waking threads for.
template <typename Body>
void for_each_expert(Context& ctx, std::int64_t experts, std::int64_t work_each, Body&& body) {
  parallel_chunks(*ctx.threads, experts, std::max<std::int64_t>(1, kPieceWork / work_each),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t e = begin; e < end; ++e) body(e);
                  });
}

template <typename T>
void run(Context& ctx, const LayerUpdate& update) {
  const ArenaScope scope(*ctx.arena);
  const UpdatedLayer<T> layer = open_update<T>(ctx, update);
  const std::int64_t experts = layer.experts, size = layer.size;
  const OneLane lane;
  const double factor = UsageRule::factor(layer, lane);
  const auto key = [&](std::int64_t e, double* rows) {
    return Key<UpdatedLayer<T>, OneLane>{layer, lane, factor, e, rows + e * size};
  };
  layer.counts[2] = 0;
  layer.counts[3] = layer.positions[0];
  for (std::int64_t e = 0; e < experts; ++e) Rules::count(key(e, layer.moved));
  for_each_expert(ctx, experts, layer.top_k * size, [&](std::int64_t e) {
    std::copy_n(layer.keys + e * size, size, layer.moved + e * size);
    Rules::move(key(e, layer.moved));
  });
  if (Rules::surveys(layer.plan)) Rules::survey(layer, lane);
  if (layer.pulled != layer.moved) {
    for_each_expert(ctx, experts, experts * size,
                    [&](std::int64_t e) { pull_peers(layer, factor, e, layer.moved, layer.pulled); });
  }
  for_each_expert(ctx, experts, size, [&](std::int64_t e) {
    const auto own = key(e, layer.pulled);
    Rules::finish(own);
    std::copy_n(own.row, size, layer.keys + e * size);
    Rules::refine(own);
  });
  if (!Rules::acts_after(layer.plan)) return;
  for (std::int64_t e = 0; e < experts; ++e) Rules::after(key(e, layer.pulled));
}

}  // namespace

void update_keys(Context& ctx, std::span<const LayerUpdate> layers) {
  for (const LayerUpdate& layer : layers) {
    ++layer.state->steps;  // spec 4.1
    if (layer.sums->positions.data<std::int64_t>()[0] == 0) {
      std::fill_n(layer.state->counts.data<std::int64_t>() + 2, 2, std::int64_t{0});
    } else if (layer.state->keys.dtype() == DType::f64) {
      run<double>(ctx, layer);
    } else {
      run<float>(ctx, layer);
    }
  }
}

}  // namespace some::cpu
