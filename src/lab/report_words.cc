// Tables over many runs, and the texts of the report (lab/texts.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/charts.h"
#include "lab/report_parts.h"

namespace some {
namespace {

// Returns "done", or how many of the seeds are done.
std::string state_of(const RunGroup& group) {
  if (group.runs.size() == 1) return group.first().found.state_text();
  const auto done = std::count_if(group.runs.begin(), group.runs.end(),
                                  [](const RunHistory& run) { return run.found.state == RunState::finished; });
  if (done == static_cast<std::ptrdiff_t>(group.runs.size())) return fmt::format("done, {} seeds", done);
  return fmt::format("{} of {} seeds done", done, group.runs.size());
}

// Returns an example from these runs of how padding affects the loss.
std::string padding_example(const ReportTexts& texts, const std::vector<RunGroup>& groups) {
  for (const RunGroup& group : groups) {
    const EvalPoint* last = group.first().last();
    if (last == nullptr || !last->padded_loss) continue;
    return texts
        .say("padding-example", {{"run", group.name},
                                 {"padded", fixed(std::exp(*last->padded_loss), 2)},
                                 {"real", fixed(last->perplexity, 2)}})
        .plain();
  }
  return "";
}

// True if an explanation concerns any of these runs.
bool concerns(Explanation::When when, const std::vector<RunGroup>& groups) {
  using When = Explanation::When;
  const auto any = [&](auto test) { return std::any_of(groups.begin(), groups.end(), test); };
  switch (when) {
    case When::always: return true;
    case When::padding: return any([](const RunGroup& g) { return g.first().recipe.data.count_pads; });
    case When::seeds: return any([](const RunGroup& g) { return g.runs.size() > 1; });
    case When::one_seed: return !any([](const RunGroup& g) { return g.runs.size() > 1; });
    case When::scaled: return any([](const RunGroup& g) { return g.scaled(); });
    case When::pale: return any([](const RunGroup& g) { return g.published() != nullptr && !g.comparable(); });
    case When::builtin: return any([](const RunGroup& g) { return g.reads_builtin(); });
  }
  return true;
}

void add_explanations(Document& document, const ReportTexts& texts, const std::vector<Explanation>& list,
                      const std::vector<RunGroup>& groups) {
  std::vector<Text> items;
  for (const Explanation& one : list) {
    if (!concerns(one.when, groups)) continue;
    Text item;
    item.strong(one.title + " ")
        .append(parse_marks(texts.fill(one.text, {{"example", padding_example(texts, groups)}})));
    items.push_back(std::move(item));
  }
  document.list(std::move(items));
}

}  // namespace

void add_reading_guide(Document& document, const ReportTexts& texts, const std::vector<RunGroup>& groups) {
  if (texts.guide.empty()) return;
  document.heading(2, "reading", "How to read this");
  add_explanations(document, texts, texts.guide, groups);
}

void add_reasons(Document& document, const ReportTexts& texts) {
  if (texts.reasons.empty()) return;
  document.heading(2, reasons_id, "Why a number may differ from the published one");
  add_explanations(document, texts, texts.reasons, {});
}

Text published_text(const RunGroup& group, const std::string& number) {
  return group.comparable() || number == "–" ? Text(number) : Text().pale(number);
}

Table overview_table(const std::string& id, const std::vector<const RunGroup*>& groups) {
  Table table;
  table.id = id;
  table.columns = {{"run", "", false},
                   {"what", "", false},
                   {"state", "", false},
                   {"total", "parameters, M", true},
                   {"trained", "parameters, M", true},
                   {"published", "validation loss as trained", true},
                   {"here", "validation loss as trained", true},
                   {"diff.", "validation loss as trained", true},
                   {"loss", "real tokens", true},
                   {"bits/byte", "real tokens", true},
                   {"published", "Gini", true},
                   {"here", "Gini", true},
                   {"time", "", true}};
  for (const RunGroup* group : groups) {
    const RunHistory& run = group->first();
    std::optional<double> published_loss, published_gini;
    Spread here = spread_of(*group, final_headline);
    Spread gini = spread_of(*group, [](const RunHistory& one) -> std::optional<double> {
      if (one.last() == nullptr || one.middle >= one.last()->layers.size()) return std::nullopt;
      return one.last()->layers[one.middle].gini;
    });
    if (const Published* published = group->published(); published != nullptr && !published->epochs.empty()) {
      const auto& values = published->epochs.back().values;
      if (values.count("val") > 0) published_loss = values.at("val");
      if (values.count("gini") > 0) published_gini = values.at("gini");
    }
    const auto published_cell = [&](const std::optional<double>& value, int digits) {
      return value ? published_text(*group, fixed(*value, digits)) : Text("–");
    };
    table.rows.push_back(
        {Text().link(group->name, group->id()), group->title(), state_of(*group),
         fmt::format("{:.2f}", static_cast<double>(run.parameters.total) / 1e6),
         fmt::format("{:.2f}", static_cast<double>(run.parameters.trainable) / 1e6), published_cell(published_loss, 4),
         here.text(4),
         published_loss && here.count > 0 && group->comparable() ? fmt::format("{:+.4f}", here.mean - *published_loss)
                                                                 : "–",
         spread_of(*group, final_loss).text(4), spread_of(*group, final_bits).text(4),
         published_cell(published_gini, 3), gini.text(3), run.timing.seconds > 0 ? duration(run.timing.seconds) : "–"});
  }
  return table;
}

void add_series(Document& document, const ReportTexts& texts, const Series& series,
                const std::vector<const RunGroup*>& groups) {
  document.heading(2, "series-" + series.name, series.title);
  document.paragraph(parse_marks(series.about));
  document.table(overview_table("overview-" + series.name, groups));
  std::string missing;
  for (const std::string& recipe : series.recipes) {
    if (std::none_of(groups.begin(), groups.end(), [&](const RunGroup* group) { return group->recipe == recipe; }))
      missing += (missing.empty() ? "" : ", ") + recipe;
  }
  if (!missing.empty()) document.paragraph(texts.say("missing", {{"runs", missing}, {"series", series.name}}));
  std::vector<const RunGroup*> evaluated;
  for (const RunGroup* group : groups) {
    if (group->first().last() != nullptr) evaluated.push_back(group);
  }
  if (evaluated.size() < 2) return;
  document.begin_side_by_side();
  document.chart(comparison_chart("curves-" + series.name, "Validation loss over non-padding tokens", evaluated));
  document.chart(dots_chart("dots-" + series.name, "Final losses", evaluated));
  document.end_side_by_side();
}

void add_experiment_index(Document& document, const ReportTexts& texts, const SeriesIndex& index,
                          const std::vector<RunGroup>& groups) {
  document.heading(2, "index", "Experiment index");
  document.paragraph(texts.say("index"));
  Table table;
  table.id = "experiment-index";
  table.columns = {{"series", "", false},
                   {"run", "", false},
                   {"what", "", false},
                   {"published loss", "", true},
                   {"perplexity", "", true},
                   {"here, as trained", "", true},
                   {"here, non-padding tokens", "", true}};
  for (const Series& series : index.series) {
    for (const std::string& name : series.recipes) {
      const Recipe recipe = load_recipe(index.recipe_path(name), {});
      std::string loss = "–", perplexity = "–";
      if (recipe.published && !recipe.published->epochs.empty()) {
        const auto& values = recipe.published->epochs.back().values;
        if (values.count("val") > 0) loss = fmt::format("{:.4f}", values.at("val"));
        if (values.count("ppl") > 0) perplexity = fmt::format("{:.2f}", values.at("ppl"));
      }
      bool found = false;
      for (const RunGroup& group : groups) {
        if (group.recipe != name) continue;
        found = true;
        table.rows.push_back({series.name, Text().link(group.name, group.id()), group.title(),
                              published_text(group, loss), published_text(group, perplexity),
                              spread_of(group, final_headline).text(4), spread_of(group, final_loss).text(4)});
      }
      if (!found) table.rows.push_back({series.name, name, recipe.title, loss, perplexity, "–", "–"});
    }
  }
  document.begin_fold(Text(fmt::format("All experiments ({} lines)", table.rows.size())));
  document.table(std::move(table));
  document.end_fold();
  add_published_numbers(document, index, groups);
}

}  // namespace some
