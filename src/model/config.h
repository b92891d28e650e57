// Configuration of a model: the [model] table of a recipe and the part of [some] that is not the key update.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "keys/settings.h"

namespace some {

enum class Norm { post, pre };
enum class Position { sinusoidal, rope };
enum class Ffn { some, dense, none };
enum class RouterKind { linear, mlp };
enum class RouterInit { uniform, normal };
enum class RoutingKind { keys, hash };
enum class OutputProj { none, linear, features, modulated };
enum class ModulationPlace { multiplicative, additive };
enum class OutputInit { usual, zero };  // of the second matrix of a feed-forward block
enum class Temperature { fixed, learned };
enum class ExpertTraining { frozen, lora, full };

struct ModelConfig {
  std::uint64_t seed = 0;
  int vocab = 8192;
  // Settings of the [model] table.
  int d_model = 512, layers = 10, heads = 8, seq_len = 768;
  Norm norm = Norm::post;
  Position position = Position::sinusoidal;
  Ffn ffn = Ffn::some;
  double dense_mult = 4.0;
  OutputInit dense_init = OutputInit::usual;
  int conv = 0;
  double dropout = 0;  // of the embedding and of both branches of a block, in training
  bool causal = true;
  // Settings of the [some] table.
  int experts = 64, d_ffn = 1024, top_k = 4;
  std::string init = "default";
  int hadamard_transforms = 1;
  std::uint64_t library_seed = 0;
  ExpertTraining training = ExpertTraining::frozen;
  int lora_rank = 8;
  RouterKind router = RouterKind::mlp;
  double router_mult = 2.0;
  int query_dim = 0;  // 0: d_model
  RouterInit router_init = RouterInit::uniform;
  RoutingKind routing = RoutingKind::keys;
  int key_partitions = 0, key_probe = 8;  // 0, 1: every query searches all keys
  double ground = 0.0;
  bool input_proj = false;
  OutputProj output_proj = OutputProj::none;
  OutputInit output_proj_init = OutputInit::usual;
  ModulationPlace modulation = ModulationPlace::multiplicative;
  double modulation_scale = 2.0, gain_init = 0.25;
  int token_shift = 0;
  bool use_library = true;
  Temperature temperature = Temperature::fixed;
  double train_temp = 0.8, eval_temp = 0.5;
  double train_temp_end = -1;  // >= 0: train_temp reaches this in equal steps per epoch, as in v3.5
  double topk_warmup = 0.0;
  double balance_loss = 0.0;
  double entropy_low = -1, entropy_high = -1;  // entropy_band = [low, high]; off when negative
  double entropy_coefficient = 0.01;
  KeySettings keys;

  bool searches_all_keys() const { return key_partitions <= 1 || key_probe >= key_partitions; }
  int router_hidden() const { return static_cast<int>(std::lround(router_mult * d_model)); }
  int query_size() const { return query_dim > 0 ? query_dim : d_model; }  // of queries and keys
  bool modulates() const { return ffn == Ffn::some && output_proj == OutputProj::modulated; }
  bool experts_have_output() const {
    return output_proj == OutputProj::none || output_proj == OutputProj::linear;
  }  // true if the experts have a second matrix w2
  // True if the experts are transforms without stored matrices (experts/hadamard.h).
  bool has_transforms() const {
    return ffn == Ffn::some && use_library && init == "hadamard" && training != ExpertTraining::full;
  }
  // Number of preceding tokens that a feed-forward block reads.
  int past() const { return std::max(ffn == Ffn::none ? 0 : conv, modulates() ? token_shift : 0); }
  int dense_hidden() const { return static_cast<int>(std::lround(dense_mult * d_model)); }
};

struct ParameterCounts {
  std::int64_t total = 0;
  std::int64_t trainable = 0;
};
// Numbers of parameters (spec 2, "Parameter counts"), computed from declare_parameters (model/declaration.h).
ParameterCounts count_parameters(const ModelConfig& config);

std::vector<std::string> routing_kinds();  // routing names in the order of RoutingKind (model/ffn/routing.cc)

// Declares every key of the [model] and [some] tables. Include core/setting.h to use them.
const std::vector<Setting<ModelConfig>>& model_settings();

// Throws bad_input for an impossible combination (heads not dividing d_model, top_k > experts, ...). The message begins
// with the recipe key at fault, so that the recipe reader can prepend file and line.
void check_config(const ModelConfig& config);

std::string model_sizes(const ModelConfig& model);  // "10 layers of 512, 64 experts of 1024, 4 per token"

}  // namespace some
