// The [model] and [some] tables of a recipe: each key is declared once, here, in its block or with its key rule.
#include "core/setting.h"
#include "model/causal_conv.h"
#include "model/config.h"
#include "model/ffn/expert_bank.h"
#include "model/ffn/feed_forward.h"
#include "model/ffn/router.h"

namespace some {
namespace {

// Adds the settings of the blocks in this table.
void add_feed_forward(SettingList<ModelConfig>& list) {
  for (const FeedForwardKind& kind : feed_forward_kinds()) {
    if (kind.table == list.table) kind.settings(list);
  }
}

void add_model(SettingList<ModelConfig>& list) {
  list.table = "model";
  list.role = SettingRole::model;
  list.integer("d_model", &ModelConfig::d_model, 1, 65536,
               "Model width (embedding size); even, and a multiple of heads.");
  list.integer("layers", &ModelConfig::layers, 1, 4096, "Number of transformer blocks.");
  list.integer("heads", &ModelConfig::heads, 1, 65536, "Attention heads per block.");
  list.role = SettingRole::training_stage;
  list.integer("seq_len", &ModelConfig::seq_len, 2, 1048576,
               "Context length in tokens; data.long sets how longer documents are read.");
  list.role = SettingRole::model;
  list.choice("norm", &ModelConfig::norm, {"post", "pre"},
              "Layer norm after the residual sum (post, as published) or on the input of each block (pre).");
  list.choice(
      "position", &ModelConfig::position, {"sinusoidal", "rope"},
      "Position encoding: added to the embedding (sinusoidal), or rotary on queries and keys of attention (rope).");
  list.choice("ffn", &ModelConfig::ffn, {"some", "dense", "none"},
              "Feed-forward block: frozen experts (some), a trained dense block (dense), or no block (none).");
  add_feed_forward(list);
  CausalConv::settings(list);
  list.role = SettingRole::training_stage;
  list.number("dropout", &ModelConfig::dropout, 0, 1,
              "Dropout rate in training, of the embedding and of the output of each attention and feed-forward block; "
              "attention weights are not dropped.")
      .below_high = true;
  list.role = SettingRole::model;
  list.boolean("causal", &ModelConfig::causal,
               "Causal attention. false replays the first prototype; such a model cannot generate text.");
}

void add_some(SettingList<ModelConfig>& list) {
  list.table = "some";
  list.role = SettingRole::model;
  ExpertBank::settings(list);
  Router::settings(list);
  add_feed_forward(list);
  Router::gate_settings(list);
}

}  // namespace

const std::vector<Setting<ModelConfig>>& model_settings() {
  static const std::vector<Setting<ModelConfig>> settings = [] {
    SettingList<ModelConfig> list;
    add_model(list);
    add_some(list);
    return std::move(list.list);
  }();
  return settings;
}

}  // namespace some
