#include "train/initialize_from.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "recipe/schema.h"
#include "runs/run.h"
#include "runs/train_state.h"
#include "text/tokenizer.h"

namespace some {
namespace {

std::string model_hash(const CheckpointName& checkpoint) {
  const MappedFile file = map_file(checkpoint.folder + "/model.safetensors");
  return hex(checksum_of(file.data, file.size));
}

// False for settings of experts in a model without experts, which have no effect.
bool has_effect(const RecipeKey& key, const Recipe& recipe) {
  return key.table != "some" || recipe.model.ffn == Ffn::some;
}

bool is_builtin_tokenizer(const std::string& name) { return name == "bytelevel" || name == "whitespace"; }

// Returns how the recipe's tokenizer conflicts with the other run's; empty if it does not. The other run's tokenizer is
// used, so a recipe that builds one must set the same kind and vocabulary as the other recipe, and a tokenizer file
// must be the same one.
std::string tokenizer_conflict(const Recipe& recipe, const Source& source) {
  const DataConfig &mine = recipe.data, &theirs = source.recipe.data;
  if (mine.tokenizer == theirs.tokenizer) {
    if (mine.vocab == theirs.vocab || !is_builtin_tokenizer(mine.tokenizer)) return "";
    return fmt::format("data.vocab = {} ({})", mine.vocab, theirs.vocab);
  }
  if (!is_builtin_tokenizer(mine.tokenizer)) {
    const Tokenizer own = Tokenizer::load(RunPaths{source.named.run}.tokenizer());
    if (Tokenizer::load(mine.tokenizer).hash() == own.hash()) return "";
  }
  return fmt::format("data.tokenizer = \"{}\" (\"{}\")", mine.tokenizer, theirs.tokenizer);
}

}  // namespace

Source find_source(const FromOptions& options) {
  std::string run = options.run;
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  const Recipe recipe = read_run_recipe(run);
  const CheckpointName checkpoint = find_checkpoint(run, options.checkpoint);
  return {recipe_at(recipe, checkpoint), checkpoint, {run, checkpoint.step, model_hash(checkpoint), options.optimizer}};
}

Recipe source_recipe(const FromOptions& options, const std::vector<std::string>& overrides) {
  const Recipe written = read_run_recipe(options.run, overrides);
  Recipe recipe = recipe_at(written, find_checkpoint(options.run, options.checkpoint));
  recipe.from.reset();
  recipe.published.reset();
  return recipe;
}

Source find_source(const InitializedFrom& named) {
  const Source found = find_source({named.run, std::to_string(named.step), named.optimizer});
  if (found.named.hash != named.hash)
    bad_input(Code::from_mismatch,
              "{}: the checkpoint of step {} is not the one this run was started from (hash {} then, {} now); restore "
              "it, or start a new run with --from and another --out",
              named.run, named.step, named.hash, found.named.hash);
  return found;
}

std::vector<std::string> check_source(const Recipe& recipe, const Source& source) {
  std::string wrong;
  std::vector<std::string> different;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string here = key.write(key.get(recipe)), there = key.write(key.get(source.recipe));
    if (here == there || key.full_name() == "title" || !has_effect(key, source.recipe)) continue;
    const std::string difference = fmt::format("{} = {} ({})", key.full_name(), here, there);
    if (key.role == SettingRole::model)
      wrong += (wrong.empty() ? "" : ", ") + difference;
    else if (key.role != SettingRole::tokens)
      different.push_back(difference);
  }
  if (const std::string fault = tokenizer_conflict(recipe, source); !fault.empty())
    wrong += (wrong.empty() ? "" : ", ") + fault;
  if (!wrong.empty())
    bad_input(Code::from_mismatch,
              "{} {}: its weights do not fit; settings of shapes, library and tokens must equal those of that run (in "
              "brackets): {}",
              "--from", source.named.run, wrong);
  return different;
}

std::int64_t load_source(const Source& source, Model& model) {
  const KeySettings rules = model.config().keys;
  model.set_key_settings(source.recipe.model.keys);
  const nlohmann::json state = load_checkpoint(
      source.checkpoint, identity_of(source.recipe, Tokenizer::load(RunPaths{source.named.run}.tokenizer())), model,
      source.named.optimizer);
  model.set_key_settings(rules);
  for (Tensor& counts : model.epoch_counts()) counts.zero();
  if (!source.named.optimizer) return 0;
  const TrainState then = train_state_from(state, source.checkpoint.folder);
  return then.moments_before + then.step;
}

}  // namespace some
