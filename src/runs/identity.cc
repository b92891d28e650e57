#include "runs/identity.h"

#include "core/files/files.h"
#include "memory/memory.h"
#include "recipe/schema.h"

namespace some {
namespace {

// "stage.2.train.lr" -> "train.lr"
std::string without_stage(const std::string& name) {
  if (!name.starts_with("stage.")) return name;
  const std::size_t dot = name.find('.', 6);
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

bool identifies(const std::string& name) {
  const std::string key = without_stage(name);
  if (key == "data.train" || key == "data.valid" || key == "data.tokenizer") return false;  // their contents are hashed
  const RecipeKey* known = find_recipe_key(key);
  return known == nullptr || (known->role != SettingRole::length && known->role != SettingRole::habit &&
                              known->role != SettingRole::machine);
}

}  // namespace

RunIdentity identity_of(const Recipe& recipe, const Tokenizer& tokenizer) {
  return {recipe.run_id, hex(tokenizer.hash())};
}

std::string new_run_id(const Recipe& recipe, const Tokenizer& tokenizer, std::uint64_t text_hash) {
  std::uint64_t hash = hash_bytes(&text_hash, sizeof text_hash, tokenizer.hash());
  Recipe own = recipe;
  own.from.reset();  // its paths may differ; only the weights matter
  if (recipe.from) hash = hash_bytes(recipe.from->hash.data(), recipe.from->hash.size(), hash);
  for (const auto& [name, value] : recipe_settings(own)) {
    if (!identifies(name)) continue;
    const std::string line = name + "=" + value + "\n";
    hash = hash_bytes(line.data(), line.size(), hash);
  }
  return hex(hash);
}

std::string new_run_id(const std::string& origin, Model& model, const Tokenizer& tokenizer) {
  const std::string weights = fingerprint(model, tokenizer);
  return hex(hash_bytes(weights.data(), weights.size(), hash_bytes(origin.data(), origin.size())));
}

}  // namespace some
