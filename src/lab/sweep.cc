#include "lab/sweep.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "recipe/schema.h"
#include "runs/history.h"

namespace some {
namespace {

constexpr std::size_t max_runs = 1000;

// Returns a value as a part of a folder's name.
std::string in_a_name(const std::string& value) {
  std::string out;
  for (const char c : value) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+';
    if (plain)
      out += c;
    else if (c != '"' && c != '[' && c != ']' && (out.empty() || out.back() != '_'))
      out += '_';
  }
  return out;
}

// Returns the names of the axes in the names of runs: the last part of a setting, if it is unambiguous.
std::vector<std::string> short_names(const std::vector<SweepAxis>& axes) {
  const auto last = [](const SweepAxis& axis) { return axis.setting.substr(axis.setting.rfind('.') + 1); };
  std::vector<std::string> out;
  for (const SweepAxis& axis : axes) {
    const auto same =
        std::count_if(axes.begin(), axes.end(), [&](const SweepAxis& one) { return last(one) == last(axis); });
    out.push_back(same == 1 ? last(axis) : axis.setting);
  }
  return out;
}

void check(const SweepOptions& options) {
  if (options.axes.empty())
    bad_input(Code::argument_missing, "no setting has several values; add one, such as train.lr=0.001,0.003,0.01");
  if (options.seeds < 1) bad_input(Code::option_invalid, "{} {}: must be an integer >= 1", "--seeds", options.seeds);
  std::set<std::string> names;
  double runs = options.seeds;
  for (const SweepAxis& axis : options.axes) {
    if (!names.insert(axis.setting).second)
      bad_input(Code::name_taken, "{} occurs twice; list all its values at once", axis.setting);
    if (axis.setting == "seed" && options.seeds > 1)
      bad_input(Code::option_conflict,
                "{}: conflicts with --seeds, which counts up from the recipe's seed; use one of the two", "seed");
    if (std::set<std::string>(axis.values.begin(), axis.values.end()).size() < axis.values.size())
      bad_input(Code::name_taken, "{} has a value twice", axis.setting);
    runs *= static_cast<double>(axis.values.size());
  }
  if (runs > static_cast<double>(max_runs))
    bad_input(Code::option_invalid, "{} runs; the maximum of a sweep is {}", runs, max_runs);
}

PlannedRun plan_one(const SweepOptions& options, const std::string& name, const std::vector<std::string>& values,
                    int seed) {
  PlannedRun run;
  run.identity = {name, 1, seed, false};
  run.name = run_name(run.identity);
  run.folder = (std::filesystem::path(options.folder) / run.name).string();
  std::vector<std::string> changes = options.overrides;
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    changes.push_back(options.axes[i].setting + "=" + values[i]);
    text += (text.empty() ? "" : ", ") + changes.back();
  }
  run.recipe = load_recipe(options.recipe, changes);
  run.recipe.title = fmt::format("{} with {}", run.recipe.name, text);
  run.recipe.seed += static_cast<std::uint64_t>(seed);
  run.recipe.model.seed = run.recipe.seed;
  for (const std::string& change : options.overrides) {
    const RecipeKey* key = find_recipe_key(change.substr(0, change.find('=')));
    if (key != nullptr && key->role == SettingRole::machine) run.resume_changes.push_back(change);
  }
  return run;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

SweepAxis parse_axis(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0)
    bad_input(Code::setting_syntax, "{}: must be KEY=VALUE,VALUE,..., such as train.lr=0.001,0.003", text);
  SweepAxis axis{text.substr(0, sign), {""}};
  int depth = 0;
  bool quoted = false;
  for (const char c : text.substr(sign + 1)) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
    if (c == ',' && depth == 0 && !quoted)
      axis.values.emplace_back();
    else
      axis.values.back() += c;
  }
  for (const std::string& value : axis.values) {
    if (value.empty()) bad_input(Code::setting_syntax, "{}: a value is empty", text);
  }
  return axis;
}

Sweep plan_sweep(const SweepOptions& options) {
  check(options);
  Sweep sweep{options.axes, {}, {}};
  const std::vector<std::string> names = short_names(options.axes);
  std::vector<std::size_t> at(options.axes.size(), 0);
  std::set<std::string> taken;
  for (bool more = true; more;) {
    SweepPoint point;
    std::string name;
    for (std::size_t i = 0; i < at.size(); ++i) {
      point.values.push_back(options.axes[i].values[at[i]]);
      name += (name.empty() ? "" : "_") + names[i] + "=" + in_a_name(point.values.back());
    }
    if (!taken.insert(name).second)
      bad_input(Code::name_taken, "two combinations would be named {}: their values differ only in signs", name);
    for (int seed = 0; seed < options.seeds; ++seed) {
      point.runs.push_back(sweep.plan.size());
      sweep.plan.push_back(plan_one(options, name, point.values, seed));
    }
    sweep.points.push_back(std::move(point));
    // The last axis changes first.
    more = false;
    for (std::size_t i = at.size(); i-- > 0 && !more;) {
      at[i] = (at[i] + 1) % options.axes[i].values.size();
      more = at[i] != 0;
    }
  }
  return sweep;
}

bool SweepReport::within_chance() const {
  return best && next && chance > 0 && results[*next].loss - results[*best].loss <= 2 * chance;
}

SweepReport read_sweep(const Sweep& sweep, const Log& log) {
  SweepReport report;
  std::vector<double> deviations;
  std::size_t most = 1;
  for (const SweepPoint& point : sweep.points) {
    SweepResult result;
    for (const std::size_t place : point.runs) {
      const auto found = find_run(sweep.plan[place].folder, log);
      if (!found || found->state != RunState::finished) continue;
      const RunHistory history = read_history(*found, log);
      if (history.last() == nullptr) continue;
      result.losses.push_back(history.last()->loss);
      result.bits_per_byte.push_back(history.last()->bits_per_byte);
    }
    const auto count = static_cast<double>(result.losses.size());
    for (const double loss : result.losses) result.loss += loss / count;
    for (const double loss : result.losses) result.deviation += (loss - result.loss) * (loss - result.loss);
    result.deviation = count > 1 ? std::sqrt(result.deviation / (count - 1)) : 0;
    if (count > 1) deviations.push_back(result.deviation);
    most = std::max(most, result.losses.size());
    report.results.push_back(std::move(result));
  }
  if (!deviations.empty()) report.chance = median(deviations);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < report.results.size(); ++i) {
    if (report.results[i].losses.size() == most) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return report.results[a].loss < report.results[b].loss; });
  if (!order.empty()) report.best = order[0];
  if (order.size() > 1) report.next = order[1];
  return report;
}

nlohmann::json to_json(const Sweep& sweep, const SweepReport& report) {
  nlohmann::json points = nlohmann::json::array();
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepResult& result = report.results[i];
    nlohmann::json settings = nlohmann::json::object(), folders = nlohmann::json::array();
    for (std::size_t axis = 0; axis < sweep.axes.size(); ++axis)
      settings[sweep.axes[axis].setting] = sweep.points[i].values[axis];
    for (const std::size_t run : sweep.points[i].runs) folders.push_back(sweep.plan[run].folder);
    nlohmann::json one{{"settings", settings}, {"runs", folders}, {"losses", result.losses}};
    if (!result.losses.empty()) one["loss"] = result.loss;
    if (result.losses.size() > 1) one["deviation"] = result.deviation;
    points.push_back(std::move(one));
  }
  nlohmann::json out{{"points", points}, {"best", nullptr}, {"within_chance", nullptr}};
  if (report.best) out["best"] = points[*report.best]["settings"];
  if (report.next && report.chance > 0) out["within_chance"] = report.within_chance();
  return out;
}

}  // namespace some
