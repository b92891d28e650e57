// One layer of the transformer: the blocks that Model walks through.
#pragma once

#include <memory>

#include "keys/key_store.h"
#include "model/attention.h"
#include "model/ffn/expert_bank.h"
#include "model/ffn/feed_forward.h"
#include "model/ffn/router.h"
#include "model/layer_norm.h"

namespace some {

class Layer {
 public:
  Layer(const ModelConfig& config, int index);
  void declare(Declaration& declare);

  int index;
  Attention attention;
  LayerNorm norm1, norm2;            // normalizes the residual sums selected by Model::after_attention
  std::unique_ptr<FeedForward> ffn;  // null with model.ffn = "none"

 private:
  std::unique_ptr<KeyState> no_keys_;
  std::unique_ptr<ExpertBank> no_experts_;
  const ModelConfig* config_;

 public:
  // Router and tape of the feed-forward block, for analysis and checkpoints. Null without experts.
  KeyState& keys;
  ExpertBank& experts;
};

}  // namespace some
