#include "recipe/scale.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "recipe/schema.h"

namespace some {
namespace {

// Returns value * factor, rounded to a multiple of `unit`, at least `floor` and at most the value itself.
std::int64_t shrunk(std::int64_t value, double factor, std::int64_t floor, std::int64_t unit = 1) {
  const std::int64_t rounded = std::llround(static_cast<double>(value) * factor / static_cast<double>(unit)) * unit;
  return std::min(value, std::max({rounded, floor, unit}));
}

// Returns the layer of the full model at the same relative depth.
std::size_t same_height(int layer, int layers, int full_layers) {
  return static_cast<std::size_t>((layer + 0.5) * full_layers / layers);
}

void scale_layers(ModelConfig& model, int layers) {
  const int full = model.layers;
  KeySettings& keys = model.keys;
  std::vector<double> scale;
  std::vector<int> frozen;
  for (int layer = 0; layer < layers; ++layer) {
    const std::size_t origin = same_height(layer, layers, full);
    if (!keys.beta_layer_scale.empty()) scale.push_back(keys.beta_layer_scale.at(origin));
    const auto& list = keys.frozen_layers;
    if (std::find(list.begin(), list.end(), static_cast<int>(origin)) != list.end()) frozen.push_back(layer);
  }
  keys.beta_layer_scale = scale;
  keys.frozen_layers = frozen;
  model.layers = layers;
}

void scale_width(ModelConfig& model, double factor) {
  constexpr int narrowest_model = 32, narrowest_head = 16;
  const double target = std::max<double>(std::min(narrowest_model, model.d_model), model.d_model * factor);
  while (model.heads % 2 == 0 && target / model.heads < narrowest_head) model.heads /= 2;
  model.d_model = static_cast<int>(shrunk(model.d_model, target / model.d_model, 0, 2 * model.heads));
  model.d_ffn = static_cast<int>(shrunk(model.d_ffn, factor, narrowest_model, model.d_ffn % 2 == 0 ? 2 : 1));
  constexpr int narrowest_query = 16;
  if (model.query_dim > 0) model.query_dim = static_cast<int>(shrunk(model.query_dim, factor, narrowest_query));
  model.lora_rank = std::min({model.lora_rank, model.d_model, model.d_ffn});
}

// Rounds to three digits, so that the resolved recipe stays readable.
double rounded(double value) { return std::stod(fmt::format("{:.3g}", value)); }

}  // namespace

Recipe scale_recipe(const Recipe& recipe, double factor) {
  if (!(factor > 0 && factor <= 1))
    bad_input(Code::option_invalid, "{} {}: must be a number > 0 and <= 1", "--scale", factor);
  if (factor == 1) return recipe;
  const double narrower = std::pow(factor, 0.6), lower = std::pow(factor, 0.25), shorter = std::pow(factor, 0.35);
  Recipe out = recipe;
  ModelConfig& model = out.model;
  DataConfig& data = out.data;
  TrainConfig& train = out.train;

  constexpr std::int64_t min_stories = 200, min_valid = 50, min_batch = 4, min_vocab = 1024, min_length = 256;
  const std::int64_t full_documents = data.train_documents > 0 ? data.train_documents : builtin_train_documents;
  train.batch = static_cast<int>(shrunk(train.batch, narrower, min_batch));
  data.train_documents =
      shrunk(full_documents, factor, std::max(min_stories, std::int64_t{4} * train.batch * train.accumulate));
  if (data.valid_documents > 0) data.valid_documents = shrunk(data.valid_documents, factor, min_valid);
  data.vocab = static_cast<int>(shrunk(data.vocab, std::pow(factor, 0.4), min_vocab, std::min(data.vocab, 64)));
  model.vocab = data.vocab;

  scale_width(model, narrower);
  scale_layers(model, static_cast<int>(shrunk(model.layers, lower, 2)));
  model.experts = static_cast<int>(shrunk(model.experts, lower, 2 * model.top_k));
  model.seq_len = static_cast<int>(shrunk(model.seq_len, shorter, min_length, std::min(model.seq_len, 8)));

  // Numbers of steps keep their relative position in the shorter run.
  const double steps = (static_cast<double>(data.train_documents) / train.batch) /
                       (static_cast<double>(full_documents) / recipe.train.batch);
  for (const RecipeKey& key : recipe_keys()) {
    if (!key.in_steps) continue;
    const std::int64_t count = std::get<std::int64_t>(key.get(out));
    if (count > 0)
      key.set(out, std::max<std::int64_t>(1, std::llround(static_cast<double>(count) * std::min(1.0, steps))));
  }
  train.lr = rounded(train.lr * std::sqrt(static_cast<double>(recipe.model.d_model) / model.d_model));
  if (model.keys.theta > 0 && model.keys.usage != Usage::flux) {
    const auto fair_use = [](const Recipe& r) {
      return static_cast<double>(r.train.batch) * r.model.seq_len * r.model.top_k / r.model.experts;
    };
    model.keys.theta = rounded(model.keys.theta * fair_use(out) / fair_use(recipe));
  }
  check_config(model);
  // Settings of a stage get the values they have in its scaled recipe.
  if (!recipe.stages.empty()) {
    const std::vector<Recipe> stages = stage_recipes(recipe);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const Recipe small = scale_recipe(stages[i], factor);
      for (auto& [name, value] : out.stages[i].settings) value = find_recipe_key(name)->get(small);
    }
  }
  return out;
}

std::string scaled_title(const Recipe& scaled, const std::string& name, double factor) {
  return fmt::format("{} scaled by {}: {}", name, factor, model_sizes(scaled.model));
}

std::string scaled_name(const std::string& name, double factor) {
  return factor == 1 ? name : fmt::format("{}@{}", name, factor);
}

}  // namespace some
