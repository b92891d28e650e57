// The [model] and [some] tables of a recipe: each key stands here or with the rule it belongs to, once.
#include "core/setting.h"
#include "experts/library.h"
#include "experts/library_file.h"
#include "model/config.h"
#include "model/expert_part.h"

namespace some {
namespace {

void add_model(SettingList<ModelConfig>& list) {
  list.table = "model";
  list.role = SettingRole::model;
  list.integer("d_model", &ModelConfig::d_model, 1, 65536, "Width of the model; even, and a multiple of heads.");
  list.integer("layers", &ModelConfig::layers, 1, 4096, "Transformer blocks.");
  list.integer("heads", &ModelConfig::heads, 1, 65536, "Attention heads.");
  list.role = SettingRole::training_stage;
  list.integer("seq_len", &ModelConfig::seq_len, 2, 1048576,
               "Longest sequence, in tokens; data.long says what becomes of longer documents.");
  list.role = SettingRole::model;
  list.choice("norm", &ModelConfig::norm, {"post", "pre"},
              "Layer norm after the residual sum (post, as published) or on the way into each block (pre).");
  list.choice("position", &ModelConfig::position, {"sinusoidal", "rope"},
              "Positions added to the embedding (sinusoidal), or queries and keys of attention turned (rope).");
  list.choice("ffn", &ModelConfig::ffn, {"some", "dense", "none"},
              "Feed-forward block: frozen experts (some), an ordinary trained one (dense), or left out (none).");
  list.number("dense_mult", &ModelConfig::dense_mult, 0, 1024,
              "Hidden width of the dense block, as a multiple of d_model.")
      .above_low = true;
  list.role = SettingRole::run;  // only where a run begins
  list.choice("dense_init", &ModelConfig::dense_init, {"default", "zero"},
              "First values of the dense block's second matrix: drawn like the first (default), or 0.");
  list.role = SettingRole::model;
  list.integer(
      "look_back", &ModelConfig::conv, 0, 64,
      "Tokens before its own whose states a feed-forward block adds to what it reads, with trained factors from 0.");
  list.boolean("causal", &ModelConfig::causal,
               "Tokens see only what is before them. false replays the first prototype; such a model cannot generate.");
}

void add_some(SettingList<ModelConfig>& list) {
  list.table = "some";
  list.role = SettingRole::model;
  list.integer("experts", &ModelConfig::experts, 1, 1048576, "Experts in each layer.");
  list.integer("d_ffn", &ModelConfig::d_ffn, 1, 1048576, "Hidden width of an expert.");
  list.role = SettingRole::training_stage;
  list.integer("top_k", &ModelConfig::top_k, 1, 4096, "Experts that process a token; at most `experts`.");
  list.role = SettingRole::model;
  std::vector<std::string> methods = library_methods();
  methods.push_back("file:PATH");
  list.choice("init", &ModelConfig::init, methods,
              "How the expert library is drawn; file:PATH: brought from other models' blocks by 'some library import'.")
      .accepts = [](const std::string& name) {
    const std::vector<std::string> drawn = library_methods();
    return is_library_file(name) || std::find(drawn.begin(), drawn.end(), name) != drawn.end();
  };
  list.integer("library_seed", &ModelConfig::library_seed, 0, unlimited,
               "Seed of the expert library; the same number gives the same experts in every run.");
  for (const auto& part : expert_parts()) part->settings(list);
  list.choice("router", &ModelConfig::router, {"linear", "mlp"},
              "The query network: one linear layer, or two with GELU between.");
  list.number("router_mult", &ModelConfig::router_mult, 0, 64,
              "Hidden width of the mlp router, as a multiple of d_model.")
      .above_low = true;
  list.role = SettingRole::run;
  list.choice("router_init", &ModelConfig::router_init, {"uniform", "normal"},
              "Initial router weights: uniform within 1/sqrt(inputs), or normal with deviation 0.02 and no bias.");
  list.role = SettingRole::model;
  list.integer("query_dim", &ModelConfig::query_dim, 0, 65536, "Numbers in a query and in a key; 0: d_model.");
  list.role = SettingRole::training_stage;
  list.choice("routing", &ModelConfig::routing, routing_kinds(),
              "Experts chosen by the nearest keys, or by a fixed hash of the token (a control).");
  list.number("ground", &ModelConfig::ground, 0, unlimited,
              "Share of the query of the layer below that is added to a layer's query (study D3).");
  list.role = SettingRole::model;
  list.boolean("readin", &ModelConfig::input_proj,
               "A trained map before the experts, which the router does not see; the identity at first.");
  list.choice("readout", &ModelConfig::output_proj, {"none", "linear", "features", "modulated"},
              "A trained map after the experts' sum (linear), in place of their second matrices (features), or after a "
              "trained hidden layer that the experts modulate (modulated).");
  list.role = SettingRole::run;  // only where a run begins
  list.choice("readout_init", &ModelConfig::output_proj_init, {"default", "zero"},
              "First values of the readout: the identity (linear) or drawn (features), or 0: the layer begins silent.");
  list.role = SettingRole::model;
  list.choice("modulation", &ModelConfig::modulation, {"factor", "inside"},
              "With readout = \"modulated\": experts multiply the hidden layer behind its GELU, or add to it inside.");
  list.number("modulation_scale", &ModelConfig::modulation_scale, 0, unlimited, "Factor on what the experts say there.")
      .above_low = true;
  list.role = SettingRole::run;  // only where a run begins
  list.number("gain_init", &ModelConfig::gain_init, -unlimited, unlimited,
              "First value of the trained gains there, one for each expert and hidden unit.");
  list.role = SettingRole::model;
  list.integer("listen", &ModelConfig::token_shift, 0, 64,
               "Expert e hears the state 1 + e mod listen tokens before there; 0: all hear the token's own.");
  list.boolean("use_library", &ModelConfig::use_library,
               "Whether experts have matrices there; without them the gains are all there is (a control).");
  list.choice("temperature", &ModelConfig::temperature, {"fixed", "learned"},
              "Temperature of the gates: given below, or one learnt number a layer.");
  list.role = SettingRole::training_stage;
  list.number("train_temp", &ModelConfig::train_temp, 0, unlimited, "Temperature of the gates in training.").above_low =
      true;
  list.number("train_temp_end", &ModelConfig::train_temp_end, -1, unlimited,
              "In epoch e of n (from 0) the training temperature is train_temp + (train_temp_end - train_temp)*e/n; "
              "negative: it stays.");
  list.number("eval_temp", &ModelConfig::eval_temp, 0, unlimited,
              "Temperature of the gates in evaluation and generation.")
      .above_low = true;

  list.include(
      key_settings(), [](auto& config) -> auto& { return config.keys; });
  list.number("topk_warmup", &ModelConfig::topk_warmup, 0, 1,
              "Share of the steps, from the first, in which only one expert is chosen.");
  list.number("balance_loss", &ModelConfig::balance_loss, 0, unlimited,
              "Coefficient of a load-balancing loss; 0: none.");
  Setting<ModelConfig>& band =
      list.add("entropy_band", SettingKind::numbers,
               "[low, high] in nats: a penalty keeps the mean gate entropy inside; [] for none.");
  band.low = 0;
  band.lengths = {0, 2};
  band.get = [](const ModelConfig& config) {
    if (config.entropy_high < 0) return SettingValue(std::vector<double>{});
    return SettingValue(std::vector<double>{config.entropy_low, config.entropy_high});
  };
  band.set = [](ModelConfig& config, const SettingValue& value) {
    const auto& ends = std::get<std::vector<double>>(value);
    config.entropy_low = ends.empty() ? -1 : ends[0];
    config.entropy_high = ends.empty() ? -1 : ends[1];
  };
  list.number("entropy_coefficient", &ModelConfig::entropy_coefficient, 0, unlimited, "Coefficient of that penalty.");
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
