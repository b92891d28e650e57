// Methods that select the experts of a token: one entry per method in the table of routing.cc. Scores and gates are
// always computed from the selected experts' keys.
#pragma once

#include "model/config.h"
#include "runtime/context.h"

namespace some {

struct RoutingRule {
  RoutingKind kind;
  const char* name;
  // Fills in the selection ([T, k]) for tokens [T]; null: the experts with the nearest keys.
  void (*choose)(Context& ctx, const ModelConfig& config, int layer, const Tensor& tokens, Tensor& indices);
};

const RoutingRule& routing_rule(RoutingKind kind);

}  // namespace some
