#include "model/ffn/routing.h"

#include <array>

#include "ops/route.h"

namespace some {
namespace {

// Hash routing, a control: experts follow from a fixed hash of the token id.
void choose_by_hash(Context& ctx, const ModelConfig& config, int layer, const Tensor& tokens, Tensor& indices) {
  hash_routing(ctx, tokens, config.experts, config.library_seed, layer, indices);
}

// In the order of RoutingKind.
constexpr std::array kinds = {
    RoutingRule{RoutingKind::keys, "keys", nullptr},
    RoutingRule{RoutingKind::hash, "hash", choose_by_hash},
};

}  // namespace

const RoutingRule& routing_rule(RoutingKind kind) { return kinds.at(static_cast<std::size_t>(kind)); }

std::vector<std::string> routing_kinds() {
  std::vector<std::string> names;
  for (const RoutingRule& one : kinds) names.push_back(one.name);
  return names;
}

}  // namespace some
