// Pointers to the data of a layer during an update, as the rules use them on both devices.
#pragma once

#include "core/error.h"
#include "keys/key_store.h"

namespace some {

template <typename T>
struct UpdatedLayer : Rules::Memories<T> {
  KeyPlan plan;
  std::int64_t experts, size, top_k;
  const std::int64_t* positions;
  const std::int32_t *slot_counts, *together;
  const T *gate_sums, *query_sums, *sample_queries;
  T *keys, *usage, *mass;
  std::int64_t* counts;
  double* moved;   // [E, size]: rows after each key's own movement
  double* pulled;  // [E, size]: rows after peer pull; the same memory as `moved` if there is no pull

  SOME_HD std::int64_t chosen(std::int64_t expert) const {  // c[e], before the factor
    std::int64_t total = 0;
    SOME_UNROLL_4
    for (std::int64_t i = 0; i < top_k; ++i) total += slot_counts[expert * top_k + i];
    return total;
  }
};

// Collects the pointers for an update. Takes scratch memory.
template <typename T>
UpdatedLayer<T> open_update(Context& ctx, const LayerUpdate& update) {
  KeyState& state = *update.state;
  const KeySums& sums = *update.sums;
  const Needs& needs = update.plan.needs;
  if ((needs.query_sums && !sums.query_sums) || (needs.together && !sums.together) ||
      (needs.sample && !sums.sample_priority))
    failed(Code::internal, "these key sums lack a sum that a rule of the key update requires");
  UpdatedLayer<T> layer{};
  layer.plan = update.plan;
  layer.experts = state.keys.dim(0);
  layer.size = state.keys.dim(1);
  layer.top_k = sums.slot_counts.dim(1);
  const auto optional = [](const Tensor& tensor) { return tensor ? tensor.data<T>() : nullptr; };
  layer.positions = sums.positions.data<std::int64_t>();
  layer.slot_counts = sums.slot_counts.data<std::int32_t>();
  layer.together = sums.together ? sums.together.data<std::int32_t>() : nullptr;
  layer.gate_sums = sums.gate_sums.data<T>();
  layer.query_sums = optional(sums.query_sums);
  layer.sample_queries = optional(sums.sample_queries);
  layer.keys = state.keys.data<T>();
  layer.usage = state.usage.data<T>();
  layer.mass = state.mass.data<T>();
  layer.counts = state.counts.data<std::int64_t>();
  Rules::each([&]<typename R>() {
    static_cast<typename R::template Memory<T>&>(layer) =
        R::template memory<T>(ctx, static_cast<const typename R::State&>(state),
                              static_cast<const typename R::Plan&>(update.plan), layer.experts);
  });
  const Shape shape{layer.experts, layer.size};
  const PullRule::Plan& pull = layer.plan;
  layer.moved = ctx.scratch(shape, DType::f64).data<double>();
  layer.pulled = pull.acts() ? ctx.scratch(shape, DType::f64).data<double>() : layer.moved;
  return layer;
}

}  // namespace some
