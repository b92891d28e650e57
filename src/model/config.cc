#include "model/config.h"

#include <algorithm>

#include "core/error.h"
#include "experts/library.h"
#include "experts/library_file.h"
#include "model/expert_part.h"

namespace some {

namespace {

void check_modulation(const ModelConfig& config) {
  const bool modulates = config.output_proj == OutputProj::modulated;
  if (config.conv > 0 && !modulates && !config.input_proj) {
    bad_input(
        "model.look_back = {}: frozen experts see the token alone; give some.readin or some.readout = \"modulated\"",
        config.conv);
  }
  if (config.token_shift < 0 || config.token_shift > 64)
    bad_input("some.listen = {}: wants a whole number from 0 to 64", config.token_shift);
  if (config.token_shift > 0 && (!modulates || config.input_proj || !config.use_library)) {
    bad_input("some.listen = {}: wants some.readout = \"modulated\", with a library and without some.readin",
              config.token_shift);
  }
  if (!config.use_library && !modulates)
    bad_input("some.use_library = false: wants some.readout = \"modulated\"; nothing is left of other forms");
  if (!config.use_library && config.input_proj)
    bad_input("some.readin = true: would do nothing with some.use_library = false");
  if (modulates &&
      (config.training == ExpertTraining::lora || (config.training == ExpertTraining::full && !config.use_library)))
    bad_input("some.training = \"{}\": with some.readout = \"modulated\" wants \"frozen\", or \"full\" with a library",
              config.training == ExpertTraining::lora ? "lora" : "full");
  if (!(config.modulation_scale > 0))
    bad_input("some.modulation_scale = {}: wants a number above 0", config.modulation_scale);
}

}  // namespace

// Every message begins with the recipe key at fault, so that the recipe reader can put file and line before it.
void check_config(const ModelConfig& config) {
  const auto at_least_one = [](const char* key, std::int64_t value) {
    if (value < 1) bad_input("{} = {}: wants a whole number of at least 1", key, value);
  };
  at_least_one("model.d_model", config.d_model);
  at_least_one("model.layers", config.layers);
  at_least_one("model.heads", config.heads);
  at_least_one("model.seq_len", config.seq_len);
  at_least_one("data.vocab", config.vocab);
  if (config.d_model % config.heads != 0) {
    bad_input("model.heads = {}: must divide model.d_model = {}", config.heads, config.d_model);
  }
  const int head_size = config.d_model / config.heads;
  if (config.position == Position::rope && head_size % 2 != 0) {
    bad_input("model.position = \"rope\": turns pairs, so model.d_model / model.heads = {} must be even", head_size);
  }
  if (config.position == Position::sinusoidal && config.d_model % 2 != 0) {
    bad_input("model.d_model = {}: must be even, since sinusoidal positions come in pairs", config.d_model);
  }
  if (config.ffn == Ffn::dense && config.dense_hidden() < 1) {
    bad_input("model.dense_mult = {}: makes a hidden layer of {}; model.dense_mult * model.d_model must be at least 1",
              config.dense_mult, config.dense_hidden());
  }
  // More numbers than 64 bits can count the bytes of are no model. In floating point, where nothing overflows.
  const double d = config.d_model;
  const double outside = 2.0 * config.vocab * d + config.layers * (4 * d * d + 2 * config.dense_hidden() * d);
  constexpr double max_numbers = 1e16;
  if (outside > max_numbers)
    bad_input("model.d_model = {}: makes a model of {:.1e} parameters", config.d_model, outside);
  if (config.conv < 0 || config.conv > 64)
    bad_input("model.look_back = {}: wants a whole number from 0 to 64", config.conv);
  if (config.conv > 0 && config.ffn == Ffn::none)
    bad_input("model.look_back = {}: there is no feed-forward block to look back; wants 0", config.conv);
  if (config.ffn != Ffn::some) return;
  const double library = 2.0 * config.layers * config.experts * d * config.d_ffn;
  if (library > max_numbers)
    bad_input(
        "some.experts = {}: makes a library of {:.1e} numbers with model.layers = {}, model.d_model = {} and "
        "some.d_ffn = {}",
        config.experts, library, config.layers, config.d_model, config.d_ffn);

  at_least_one("some.experts", config.experts);
  at_least_one("some.d_ffn", config.d_ffn);
  at_least_one("some.top_k", config.top_k);
  if (config.top_k > config.experts) {
    bad_input("some.top_k = {}: must not be more than some.experts = {}", config.top_k, config.experts);
  }
  const std::vector<std::string> methods = library_methods();
  if (std::find(methods.begin(), methods.end(), config.init) == methods.end() && !is_library_file(config.init))
    bad_input("some.init = \"{}\": wants one of {}, or file:PATH", config.init, fmt::join(methods, ", "));
  if (config.router == Router::mlp && config.router_hidden() < 1) {
    bad_input("some.router_mult = {}: makes a hidden layer of {}; some.router_mult * model.d_model must be at least 1",
              config.router_mult, config.router_hidden());
  }
  if (config.query_dim < 0) {
    bad_input("some.query_dim = {}: wants a whole number of at least 1, or 0 for model.d_model", config.query_dim);
  }
  check_modulation(config);
  if (config.output_proj_init == OutputInit::zero && config.output_proj == OutputProj::none)
    bad_input("some.readout_init = \"zero\": there is no readout; give some.readout, or leave it out");
  for (const ExpertPart* part : active_parts(config)) part->check(config);
  const auto positive = [](const char* key, double value) {
    if (!(value > 0)) bad_input("{} = {}: wants a number above 0", key, value);
  };
  positive("some.train_temp", config.train_temp);
  positive("some.eval_temp", config.eval_temp);
  if (config.train_temp_end == 0)
    bad_input("some.train_temp_end = 0: wants a number above 0, or a negative one for no change");
  if (config.train_temp_end > 0 && config.temperature == Temperature::learned) {
    bad_input("some.train_temp_end = {}: cannot be given with some.temperature = \"learned\"; leave one out",
              config.train_temp_end);
  }
  if (!(config.topk_warmup >= 0 && config.topk_warmup <= 1)) {
    bad_input("some.topk_warmup = {}: wants a share of the steps from 0 to 1", config.topk_warmup);
  }
  if (config.entropy_high >= 0) {
    if (config.entropy_low > config.entropy_high) {
      bad_input("some.entropy_band = [{}, {}]: wants the lower end first", config.entropy_low, config.entropy_high);
    }
    const double all_reduce_max = std::log(static_cast<double>(config.top_k));
    if (config.entropy_low > all_reduce_max) {
      bad_input(
          "some.entropy_band = [{}, {}]: the gates of some.top_k = {} experts have at most {:.3f} nats, so the lower "
          "end must not be above that",
          config.entropy_low, config.entropy_high, config.top_k, all_reduce_max);
    }
  }
  check_key_settings(config.keys, config.layers);
  if (config.keys.balance_rate > 0 && config.routing == RoutingKind::random) {
    bad_input("some.balance_rate = {}: would do nothing with some.routing = \"random\", which ignores scores; wants 0",
              config.keys.balance_rate);
  }
}

std::string model_sizes(const ModelConfig& model) {
  const std::string backbone = fmt::format("{} layers of {}", model.layers, model.d_model);
  switch (model.ffn) {
    case Ffn::some:
      return fmt::format("{}, {} experts of {}, {} a token", backbone, model.experts, model.d_ffn, model.top_k);
    case Ffn::dense: return fmt::format("{}, dense blocks of {}", backbone, model.dense_hidden());
    case Ffn::none: return backbone + ", no feed-forward block";
  }
  return backbone;
}

}  // namespace some
