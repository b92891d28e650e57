// How the experts of a token are chosen: one entry of the table in routing.cc a kind. Scores and gates are always those
// of the chosen experts' keys.
#pragma once

#include "model/config.h"
#include "runtime/context.h"

namespace some {

struct RoutingRule {
  RoutingKind kind;
  const char* name;
  // Fills in the choice ([T, k]) for tokens [T]; null: the experts with the nearest keys.
  void (*choose)(Context& ctx, const ModelConfig& config, int layer, const Tensor& tokens, Tensor& indices);
};

const RoutingRule& routing_rule(RoutingKind kind);

}  // namespace some
