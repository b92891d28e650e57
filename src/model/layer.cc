#include "model/layer.h"

namespace some {

Layer::Layer(const ModelConfig& config, int number)
    : index(number),
      attention(config, number),
      ffn(make_feed_forward(config, number)),
      no_keys_(std::make_unique<KeyState>()),
      no_experts_(std::make_unique<ExpertBank>(config)),
      config_(&config),
      keys(ffn && ffn->router() != nullptr ? ffn->router()->keys : *no_keys_),
      experts(ffn && ffn->experts() != nullptr ? *ffn->experts() : *no_experts_) {}

void Layer::declare(Declaration& declare) {
  attention.declare(declare);
  norm1.declare(declare, "norm1");
  // A pre-norm layer without a feed-forward block has no second norm.
  if (ffn || config_->norm == Norm::post) norm2.declare(declare, "norm2");
  if (ffn) ffn->declare(declare);
}

}  // namespace some
