// Published compared with reproduced numbers, for one run and for every run of the lab.
#include <fmt/format.h>

#include <algorithm>

#include "lab/report_parts.h"
#include "recipe/schema.h"

namespace some {
namespace {

struct ComparedMeasure {
  const char* key;  // key in [published]
  const char* title;
  int digits;
};
// In the order of the table's columns.
constexpr ComparedMeasure compared[] = {
    {"train", "training loss", 4},
    {"val", "validation loss", 4},
    {"ppl", "perplexity", 2},
    {"gini", "Gini", 3},
    {"entropy", "entropy (bits)", 3},
    {"gini_mass", "Gini by mass", 3},
    {"entropy_mass", "entropy by mass", 3},
    {"dead", "deaths", 0},
    {"temperature", "temperature", 2},
};

// A number of a whole run, published and measured.
struct RunNumber {
  const char* key;  // key in [published]
  const char* title;
  int digits;
  bool always;  // shown whether or not it was published
};
constexpr int three_digits = -1;  // three significant digits
constexpr RunNumber run_numbers[] = {
    {"total_parameters_m", "parameters, million", 2, true},
    {"trainable_parameters_m", "trained, million", 2, true},
    {"steps", "steps", 0, true},
    {"experts_used", "experts ever used, middle layer, best epoch", 0, true},
    {"best_gini", "Gini, middle layer, best epoch", 4, false},
    {"best_entropy", "entropy, middle layer, best epoch", 4, false},
    {"best_gini_mass", "Gini by mass, middle layer, best epoch", 4, false},
    {"best_entropy_mass", "entropy by mass, middle layer, best epoch", 4, false},
    {"gini_peak", "highest Gini after an epoch, middle layer", 3, false},
    {"entropy_low", "lowest entropy after an epoch, middle layer", 3, false},
    {"step_seconds", "seconds a step", three_digits, true},
};

// Formats 1234567 as 1,234,567, as in charts.
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (std::ptrdiff_t place = std::ssize(digits) - 3; place > 0; place -= 3)
    digits.insert(static_cast<std::size_t>(place), ",");
  return digits;
}

std::string written(double value, const RunNumber& number) {
  return number.digits == three_digits ? fmt::format("{:.3g}", value) : fixed(value, number.digits);
}

std::optional<double> published_number(const Published* published, const std::string& key) {
  if (published == nullptr) return std::nullopt;
  const auto value = published->values.find(key);
  return value == published->values.end() ? std::nullopt : std::optional(value->second);
}

std::string trained_share(const std::optional<double>& total, const std::optional<double>& trained) {
  return total && trained ? fmt::format("{:.2f} %", 100 * *trained / *total) : "–";
}

// Returns the group that reproduces a recipe; null if there is none.
const RunGroup* replay_of(const std::vector<RunGroup>& groups, const std::string& recipe) {
  for (const RunGroup& group : groups) {
    if (group.recipe == recipe && group.comparable()) return &group;
  }
  return nullptr;
}

Text run_cell(const std::string& name, const RunGroup* group) {
  return group == nullptr ? Text(name) : Text().link(name, group->id());
}

// Adds one line per published epoch.
void add_epochs(Table& table, const std::string& name, const Recipe& recipe, const RunGroup* group) {
  for (const PublishedEpoch& epoch : recipe.published->epochs) {
    std::vector<Text> row{run_cell(name, group), fmt::to_string(epoch.epoch)};
    for (const ComparedMeasure& measure : compared) {
      const auto told = epoch.values.find(measure.key);
      Spread here;
      if (group != nullptr)
        here = spread_of(*group, [&](const RunHistory& run) { return run.measured(measure.key, epoch.epoch); });
      row.push_back(told == epoch.values.end() ? "–" : fixed(told->second, measure.digits));
      row.push_back(told == epoch.values.end() ? "–" : here.text(measure.digits));
    }
    table.rows.push_back(std::move(row));
  }
}

// Adds one line per number of a whole run. Parameter counts follow from the recipe.
void add_numbers(Table& table, const std::string& name, const Recipe& recipe, const RunGroup* group) {
  const ParameterCounts parameters = count_parameters(recipe.model);
  for (const RunNumber& number : run_numbers) {
    const auto told = published_number(&*recipe.published, number.key);
    if (!told) continue;
    std::optional<double> here;
    if (number.key == std::string("total_parameters_m"))
      here = static_cast<double>(parameters.total) / 1e6;
    else if (number.key == std::string("trainable_parameters_m"))
      here = static_cast<double>(parameters.trainable) / 1e6;
    else if (group != nullptr)
      here = group->first().measured_once(number.key);
    table.rows.push_back(
        {run_cell(name, group), number.title, written(*told, number), here ? written(*here, number) : "–"});
  }
}

}  // namespace

void add_size_and_speed(Document& document, const RunGroup& group) {
  Table table;
  table.id = group.id() + "-size";
  table.caption = "Size, time and speed";
  table.columns = {{"", "", false}, {"published", "", true}, {"here", "", true}};
  const RunHistory& run = group.first();
  const RunTiming& timing = run.timing;
  for (const RunNumber& number : run_numbers) {
    const auto told = published_number(group.published(), number.key);
    const auto here = run.measured_once(number.key);
    if (!told && !(number.always && here)) continue;
    table.rows.push_back({number.title, published_text(group, told ? written(*told, number) : "–"),
                          here ? written(*here, number) : "–"});
    if (number.key == std::string("trainable_parameters_m"))
      table.rows.push_back(
          {"trained fraction",
           published_text(group, trained_share(published_number(group.published(), "total_parameters_m"), told)),
           trained_share(run.measured_once("total_parameters_m"), here)});
  }
  if (run.last() != nullptr && run.middle < run.last()->layers.size()) {
    table.rows.push_back({fmt::format("experts used in the last epoch, layer {}", run.middle), "–",
                          fmt::format("{:.0f} of {}", run.last()->layers[run.middle].used, run.recipe.model.experts)});
  }
  if (timing.steps > 0) {
    table.rows.push_back({"time, including evaluations and checkpoints", "–",
                          duration(timing.seconds) + (run.last() != nullptr && timing.steps < run.last()->step
                                                          ? fmt::format(" (of {} steps)", timing.steps)
                                                          : "")});
    table.rows.push_back({"non-padding tokens per second", "–", grouped(timing.tokens / timing.seconds)});
    if (run.recipe.data.count_pads)
      table.rows.push_back({"positions per second, including padding", "–", grouped(timing.slots / timing.seconds)});
    table.rows.push_back(
        {"computation, TFLOP/s", "–", fmt::format("{:.3g}", timing.operations / timing.seconds / 1e12)});
    // The publications mention an A100, but their logs contain a line that is printed for any newer GPU as well.
    table.rows.push_back(
        {"device", published_number(group.published(), "step_seconds") ? "A100, as reported" : "–", timing.device});
    table.rows.push_back({"working memory, MiB", "–", grouped(timing.memory / 1048576)});
  } else {
    table.rows.push_back({"time and speed", "–", "not written yet"});
  }
  document.table(std::move(table));
}

void add_published_comparison(Document& document, const RunGroup& group) {
  const Published* published = group.published();
  if (published == nullptr || published->epochs.empty()) return;
  Table table;
  table.id = group.id() + "-published";
  table.caption = group.comparable() ? "Published and reproduced, epoch by epoch"
                                     : "Published and reproduced numbers, epoch by epoch";
  table.columns = {{"epoch", "", true}};
  std::vector<const ComparedMeasure*> measures;
  for (const ComparedMeasure& measure : compared) {
    const bool reported = std::any_of(published->epochs.begin(), published->epochs.end(),
                                      [&](const PublishedEpoch& epoch) { return epoch.values.count(measure.key) > 0; });
    if (!reported) continue;
    measures.push_back(&measure);
    table.columns.push_back({"published", measure.title, true});
    table.columns.push_back({"here", measure.title, true});
    if (group.comparable()) table.columns.push_back({"diff.", measure.title, true});
  }
  for (const PublishedEpoch& epoch : published->epochs) {
    std::vector<Text> row{fmt::to_string(epoch.epoch)};
    for (const ComparedMeasure* measure : measures) {
      const auto told = epoch.values.find(measure->key);
      const Spread here =
          spread_of(group, [&](const RunHistory& run) { return run.measured(measure->key, epoch.epoch); });
      row.push_back(published_text(group, told == epoch.values.end() ? "–" : fixed(told->second, measure->digits)));
      row.push_back(here.text(measure->digits));
      if (group.comparable())
        row.push_back(told == epoch.values.end() || here.count == 0
                          ? "–"
                          : fmt::format("{:+.{}f}", here.mean - told->second, measure->digits));
    }
    table.rows.push_back(std::move(row));
  }
  document.table(std::move(table));
}

void add_published_numbers(Document& document, const SeriesIndex& index, const std::vector<RunGroup>& groups) {
  Table epochs, numbers;
  epochs.id = "published-epochs";
  epochs.columns = {{"run", "", false}, {"epoch", "", true}};
  for (const ComparedMeasure& measure : compared) {
    epochs.columns.push_back({"published", measure.title, true});
    epochs.columns.push_back({"here", measure.title, true});
  }
  numbers.id = "published-numbers";
  numbers.columns = {{"run", "", false}, {"", "", false}, {"published", "", true}, {"here", "", true}};
  for (const std::string& name : index.all_recipes()) {
    const Recipe recipe = load_recipe(index.recipe_path(name), {});
    if (!recipe.published) continue;
    const RunGroup* group = replay_of(groups, name);
    add_epochs(epochs, name, recipe, group);
    add_numbers(numbers, name, recipe, group);
  }
  document.begin_fold(Text(fmt::format("Every published number, epoch by epoch ({} lines)", epochs.rows.size())));
  document.table(std::move(epochs));
  document.end_fold();
  document.begin_fold(Text(fmt::format("Every published number of a whole run ({} lines)", numbers.rows.size())));
  document.table(std::move(numbers));
  document.end_fold();
}

}  // namespace some
