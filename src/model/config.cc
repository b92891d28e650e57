#include "model/config.h"

#include <algorithm>

#include "core/error.h"
#include "experts/hadamard.h"
#include "experts/library.h"
#include "experts/library_file.h"
#include "model/attention.h"
#include "model/causal_conv.h"
#include "model/ffn/expert_bank.h"
#include "model/ffn/feed_forward.h"
#include "model/ffn/router.h"

namespace some {

namespace {

void check_feed_forward(const ModelConfig& config, const std::string& table) {
  for (const FeedForwardKind& kind : feed_forward_kinds()) {
    if (kind.table == table) kind.check(config);
  }
}

}  // namespace

// Every message begins with the recipe key at fault, so that the recipe reader can prepend file and line.
void check_config(const ModelConfig& config) {
  const auto at_least_one = [](const char* key, std::int64_t value) {
    if (value < 1) bad_input(Code::setting_out_of_range, "{} = {}: must be an integer >= 1", key, value);
  };
  at_least_one("model.d_model", config.d_model);
  at_least_one("model.layers", config.layers);
  at_least_one("model.heads", config.heads);
  at_least_one("model.seq_len", config.seq_len);
  at_least_one("data.vocab", config.vocab);
  Attention::check(config);
  if (config.position == Position::sinusoidal && config.d_model % 2 != 0) {
    bad_input(Code::setting_out_of_range, "{} = {}: must be even, since sinusoidal positions come in pairs",
              "model.d_model", config.d_model);
  }
  check_feed_forward(config, "model");
  // Rejects models whose size in bytes exceeds 64 bits. Computed in floating point, which does not overflow.
  const double d = config.d_model;
  const double outside = 2.0 * config.vocab * d + config.layers * (4 * d * d + 2 * config.dense_hidden() * d);
  constexpr double max_numbers = 1e16;
  if (outside > max_numbers)
    bad_input(Code::setting_out_of_range, "{} = {}: the model would have {:.1e} parameters", "model.d_model",
              config.d_model, outside);
  CausalConv::check(config);
  if (config.ffn != Ffn::some) return;
  const double library = config.has_transforms() ? 0 : 2.0 * config.layers * config.experts * d * config.d_ffn;
  if (library > max_numbers)
    bad_input(
        Code::setting_out_of_range,
        "{} = {}: the library would have {:.1e} weights with model.layers = {}, model.d_model = {} and some.d_ffn = {}",
        "some.experts", config.experts, library, config.layers, config.d_model, config.d_ffn);

  at_least_one("some.experts", config.experts);
  at_least_one("some.d_ffn", config.d_ffn);
  at_least_one("some.top_k", config.top_k);
  if (config.top_k > config.experts) {
    bad_input(Code::setting_out_of_range, "{} = {}: must not exceed some.experts = {}", "some.top_k", config.top_k,
              config.experts);
  }
  const std::vector<std::string> methods = seeded_libraries();
  if (std::find(methods.begin(), methods.end(), config.init) == methods.end() && !is_library_file(config.init))
    bad_input(Code::setting_out_of_range, "{} = \"{}\": must be one of {}, or file:PATH", "some.init", config.init,
              fmt::join(methods, ", "));
  Router::check(config);
  Router::check_partitions(config);
  check_feed_forward(config, "some");
  ExpertBank::check(config);
  Router::check_gates(config);
}

std::string model_sizes(const ModelConfig& model) {
  const std::string backbone = fmt::format("{} layers of {}", model.layers, model.d_model);
  switch (model.ffn) {
    case Ffn::some:
      return fmt::format("{}, {} experts of {}, top-k {}", backbone, model.experts, model.d_ffn, model.top_k);
    case Ffn::dense: return fmt::format("{}, dense blocks of {}", backbone, model.dense_hidden());
    case Ffn::none: return backbone + ", no feed-forward block";
  }
  return backbone;
}

}  // namespace some
