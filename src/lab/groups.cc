#include "lab/groups.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "analysis/pages/run_header.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "data/source.h"
#include "recipe/scale.h"
#include "recipe/toml.h"

namespace some {
namespace fs = std::filesystem;
namespace {

void read_recipe_files(const SeriesIndex& index, RunGroup& group) {
  const std::string path = index.recipe_path(group.recipe);
  if (!exists_path(path)) return;
  group.file = load_recipe(path, {});
  const TomlNode root = parse_toml(read_file(path), path);
  const TomlNode* base = root.find("base");
  if (base == nullptr || base->kind != TomlNode::Kind::text) return;
  group.base_name = fs::path(base->text).stem().string();
  group.base = load_recipe((fs::path(path).parent_path() / base->text).string(), {});
}

}  // namespace

std::string RunGroup::id() const {
  std::string id = "run-";
  for (const char c : name) id += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return id;
}

bool RunGroup::reads_builtin() const {
  return file && is_builtin(first().recipe.data.train) && !is_builtin(file->data.train);
}

RecipeDifference RunGroup::departure() const {
  if (scaled()) return RecipeDifference::scaled;
  if (!file) return RecipeDifference::none;
  const Recipe& run = first().recipe;
  const auto size = [](const Recipe& r) {
    return std::make_tuple(r.model.d_model, r.model.layers, r.model.seq_len, r.model.experts, r.model.d_ffn,
                           r.data.train_documents, r.train.batch * r.train.accumulate, r.train.epochs,
                           r.train.max_steps);
  };
  if (size(run) != size(*file)) return RecipeDifference::other_size;
  // The same file may have another path on another machine.
  const auto name = [](const Recipe& r) { return fs::path(r.data.train).filename(); };
  return name(run) == name(*file) ? RecipeDifference::none : RecipeDifference::other_text;
}

std::string RunGroup::title() const {
  const Recipe& run = first().recipe;
  switch (departure()) {
    case RecipeDifference::scaled: return scaled_title(run, recipe, scale);
    case RecipeDifference::other_size: return fmt::format("{}: {}", recipe, model_sizes(run.model));
    default: return run.title;
  }
}

std::string Spread::text(int digits) const {
  if (count == 0) return "–";
  if (count == 1) return fmt::format("{:.{}f}", mean, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", mean, digits, deviation, digits);
}

Spread spread_of(const RunGroup& group, const Measure& measure) {
  std::vector<double> values;
  for (const RunHistory& run : group.runs) {
    if (const auto value = measure(run)) values.push_back(*value);
  }
  Spread spread;
  spread.count = static_cast<int>(values.size());
  for (const double value : values) spread.mean += value / spread.count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (spread.count > 1) spread.deviation = std::sqrt(squares / (spread.count - 1));
  return spread;
}

std::optional<double> final_loss(const RunHistory& run) {
  return run.last() == nullptr ? std::nullopt : std::optional(run.last()->loss);
}
std::optional<double> final_bits(const RunHistory& run) {
  return run.last() == nullptr ? std::nullopt : std::optional(run.last()->bits_per_byte);
}
std::optional<double> final_headline(const RunHistory& run) {
  return run.last() == nullptr ? std::nullopt : std::optional(run.last()->headline);
}

std::vector<RunGroup> group_runs(const SeriesIndex& index, const std::vector<RunListEntry>& runs, const Log& log) {
  std::vector<RunGroup> groups;
  for (const RunListEntry& run : runs) {
    const std::string name = scaled_name(run.identity.recipe, run.identity.scale);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const RunGroup& one) { return one.name == name; });
    if (group == groups.end()) {
      groups.push_back({name, run.identity.recipe, run.identity.scale, {}, {}, {}, ""});
      group = groups.end() - 1;
      read_recipe_files(index, *group);
    }
    group->runs.push_back(read_history(run, log));
  }
  for (RunGroup& group : groups) {
    std::stable_sort(group.runs.begin(), group.runs.end(),
                     [](const auto& a, const auto& b) { return a.found.identity.seed < b.found.identity.seed; });
  }
  const std::vector<std::string> order = index.all_recipes();
  const auto place = [&](const RunGroup& group) {
    return std::find(order.begin(), order.end(), group.recipe) - order.begin();
  };
  std::stable_sort(groups.begin(), groups.end(), [&](const RunGroup& a, const RunGroup& b) {
    return std::make_tuple(place(a), a.recipe, -a.scale) < std::make_tuple(place(b), b.recipe, -b.scale);
  });
  return groups;
}

}  // namespace some
