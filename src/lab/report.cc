#include "lab/report.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "lab/report_parts.h"
#include "recipe/schema.h"

namespace some {
namespace fs = std::filesystem;
namespace {

std::vector<RunListEntry> choose_runs(const SeriesIndex& index, const std::vector<std::string>& names,
                                      const std::string& folder, const Log& log) {
  const std::vector<RunListEntry> all = find_runs(folder, log);
  if (names.empty()) {
    if (all.empty())
      bad_input(Code::run_not_found,
                "no runs in {}; train some with 'some lab run NAME --runs {}', or use another folder with --runs",
                folder, folder);
    return all;
  }
  std::vector<RunListEntry> chosen;
  const auto add = [&](const RunListEntry& run) {
    if (std::none_of(chosen.begin(), chosen.end(), [&](const RunListEntry& one) { return one.folder == run.folder; }))
      chosen.push_back(run);
  };
  const std::vector<std::string> recipes = index.all_recipes();
  for (const std::string& name : names) {
    std::vector<std::string> meant;
    if (name == "all" || index.find(name) != nullptr ||
        std::find(recipes.begin(), recipes.end(), name) != recipes.end())
      meant = index.select({name});
    bool found = false;
    for (const RunListEntry& run : all) {
      if (run.name != name && std::find(meant.begin(), meant.end(), run.identity.recipe) == meant.end()) continue;
      add(run);
      found = true;
    }
    if (found) continue;
    if (const auto run = find_run(name, log)) {
      add(*run);
      continue;
    }
    if (!meant.empty())
      bad_input(Code::run_not_found, "no run of {} in {}; train it with 'some lab run {} --runs {}'", name, folder,
                name, folder);
    std::vector<std::string> known = recipes;
    for (const Series& series : index.series) known.push_back(series.name);
    for (const RunListEntry& run : all) known.push_back(run.name);
    const std::string near = misspelled_name(name, known);
    bad_input(Code::series_unknown,
              "{} is neither a series, a recipe nor a run folder; {}`some lab list all` names them all", name,
              near.empty() ? "" : fmt::format("did you mean {}? ", near));
  }
  return chosen;
}

// Returns the groups of a series; a group appears under every series that contains it.
std::vector<const RunGroup*> groups_of(const Series& series, const std::vector<RunGroup>& groups) {
  std::vector<const RunGroup*> out;
  for (const std::string& recipe : series.recipes) {
    for (const RunGroup& group : groups) {
      if (group.recipe == recipe) out.push_back(&group);
    }
  }
  return out;
}

bool asked_for(const Series& series, const std::vector<std::string>& names) {
  bool any_series = false;
  for (const std::string& name : names) {
    if (name == series.name) return true;
    any_series = any_series || name == "all";
  }
  return names.empty() || any_series;
}

}  // namespace

Report make_report(const SeriesIndex& index, const std::vector<std::string>& names, const ReportOptions& options) {
  const std::vector<RunListEntry> runs = choose_runs(index, names, options.runs, options.host.log);
  const std::vector<RunGroup> groups = group_runs(index, runs, options.host.log);
  const ReportTexts texts = load_report_texts(index.folder);
  Document document({"Lab report", "SoME lab report"});
  const auto counted = [](std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  document.paragraph(texts.say(
      "overview", {{"runs", counted(runs.size(), "run")}, {"experiments", counted(groups.size(), "experiment")}}));
  document.heading(2, "glance", "At a glance");
  std::vector<const RunGroup*> all;
  for (const RunGroup& group : groups) all.push_back(&group);
  document.table(overview_table("overview", all));
  add_reading_guide(document, texts, groups);
  for (const Series& series : index.series) {
    const auto members = groups_of(series, groups);
    if (asked_for(series, names) && members.size() > 1) add_series(document, texts, series, members);
  }
  add_claims(document, texts, groups);
  document.heading(2, "runs", "The runs");
  for (const RunGroup& group : groups) {
    RunSamples samples;
    if (options.samples) {
      if (options.progress) options.progress("sample text: " + group.name);
      samples = sample_run(group.first(), options.device, options.host);
    }
    add_run(document, texts, group, samples, *options.host.threads);
  }
  add_reasons(document, texts);
  add_experiment_index(document, texts, index, groups);
  return {write_html(document), write_markdown(document), runs.size()};
}

}  // namespace some
