#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "analysis/continual/continual.h"
#include "cli/model_flags.h"
#include "cli/places.h"
#include "cli/program.h"
#include "cli/ranks.h"
#include "cli/show.h"
#include "cli/show_queue.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "lab/queue.h"
#include "lab/report.h"
#include "runs/run.h"
#include "runtime/machine.h"
#include "text/stories.h"
#include "train/rank_checks.h"

namespace some {
namespace {

namespace fs = std::filesystem;

struct LabFlags {
  std::string recipes, runs = "lab";
  std::vector<std::string> words;  // names and KEY=VALUE
  LabOptions lab;
  std::string device, precision;
  std::optional<int> threads;
  std::optional<std::int64_t> max_steps;
  std::optional<int> ranks_per_run;
  std::vector<std::string> out;
  bool no_samples = false;
  bool json = false;
};

SeriesIndex open_index(const std::string& asked) {
  const std::vector<std::string> places = asked.empty() ? recipe_folders() : std::vector<std::string>{asked};
  for (const fs::path place : places) {
    if (exists_path((place / "index.toml").string()))
      return load_series_index((place / "index.toml").lexically_normal().string());
  }
  bad_input(Code::file_not_found, "{} not found; run the command in the project folder, or use --recipes FOLDER",
            (fs::path(asked.empty() ? "recipes" : asked) / "index.toml").string());
}

// --- list ---

struct ListedRecipe {
  std::string title;
  bool published = false;
  std::vector<RunListEntry> runs;
};

ListedRecipe listed(const SeriesIndex& index, const std::string& name, const std::vector<RunListEntry>& runs) {
  const Recipe recipe = load_recipe(index.recipe_path(name), {});
  ListedRecipe out{recipe.title, recipe.published.has_value(), {}};
  for (const RunListEntry& run : runs) {
    if (run.identity.recipe == name) out.runs.push_back(run);
  }
  return out;
}

// Returns run counts by state in order of interest, e.g. "2 done, 1 running".
std::string states_text(const std::vector<RunListEntry>& runs) {
  std::string out;
  for (const std::string state : {"done", "running", "interrupted", "failed"}) {
    const auto count =
        std::count_if(runs.begin(), runs.end(), [&](const RunListEntry& run) { return run.state_text() == state; });
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, state);
  }
  return out;
}

// Prints one line per series.
void list_series(const SeriesIndex& index, const std::vector<RunListEntry>& runs, const std::string& folder) {
  std::size_t width = 0;
  for (const Series& one : index.series) width = std::max(width, one.name.size());
  const std::size_t columns = table_columns();
  for (const Series& one : index.series) {
    std::vector<RunListEntry> own;
    for (const RunListEntry& run : runs) {
      if (std::find(one.recipes.begin(), one.recipes.end(), run.identity.recipe) != one.recipes.end())
        own.push_back(run);
    }
    const std::string states = states_text(own);
    std::string line = fmt::format("{:{}}  {:>2}  {}", one.name, width, one.recipes.size(), one.title);
    if (!states.empty()) line += "  [" + states + "]";
    // On a narrow terminal the title is dropped: the progress of a series is more important.
    if (display_width(line) > columns && !states.empty())
      line = fmt::format("{:{}}  {:>2}  [{}]", one.name, width, one.recipes.size(), states);
    fmt::print("{}\n", line);
  }
  fmt::print("\n{}", wrapped(fmt::format("Each line: series, number of recipes, description, and in brackets its runs "
                                         "in {} ({} in total). `some lab list NAME` lists the runs of a series, "
                                         "`some lab run NAME` trains them.",
                                         folder, runs.size()),
                             columns));
}

// Prints the runs of the selected series and recipes.
void list_recipes(const SeriesIndex& index, const std::vector<RunListEntry>& runs, const LabFlags& options) {
  const std::vector<std::string> names = index.select(options.words);
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  for (const std::string& word : options.words) {
    if (const Series* series = index.find(word))
      fmt::print("{}\n{}\n", series->title, wrapped(series->about, table_columns()));
  }
  for (const std::string& name : names) {
    const ListedRecipe recipe = listed(index, name, runs);
    std::string states;
    for (const RunListEntry& run : recipe.runs)
      states += fmt::format("  [{}{}]", run.name == name ? "" : run.name + ": ", run.state_text());
    fmt::print("{} {:{}}  {}{}\n", recipe.published ? "*" : " ", name, width, recipe.title, states);
  }
  fmt::print("\n* has published numbers; [..] state of the runs in {}\n", options.runs);
}

void list(const LabFlags& options) {
  const SeriesIndex index = open_index(options.recipes);
  const std::vector<RunListEntry> runs = find_runs(options.runs, terminal_log());
  if (options.json) {
    nlohmann::json series = nlohmann::json::array(), recipes = nlohmann::json::object();
    for (const Series& one : index.series) {
      series.push_back({{"name", one.name}, {"title", one.title}, {"about", one.about}, {"recipes", one.recipes}});
    }
    for (const std::string& name : index.all_recipes()) {
      const ListedRecipe recipe = listed(index, name, runs);
      nlohmann::json found = nlohmann::json::array();
      for (const RunListEntry& run : recipe.runs) {
        found.push_back({{"folder", run.folder},
                         {"state", run.state_text()},
                         {"scale", run.identity.scale},
                         {"seed", run.identity.seed}});
      }
      recipes[name] = {{"title", recipe.title}, {"published", recipe.published}, {"runs", found}};
    }
    print_json({{"series", series}, {"recipes", recipes}, {"runs_folder", options.runs}});
    return;
  }
  if (options.words.empty())
    list_series(index, runs, options.runs);
  else
    list_recipes(index, runs, options);
}

// --- run ---

void print_table(const std::vector<QueueEntry>& entries) {
  std::size_t width = 3;
  for (const QueueEntry& entry : entries) width = std::max(width, entry.name.size());
  fmt::print("{:{}}  {:13}  {:>7}  {:>8}  {:>9}  {:>9}  {:>11}\n", "run", width, "outcome", "steps", "time", "loss",
             "bits/byte", "padded loss");
  for (const QueueEntry& entry : entries) {
    const auto& e = entry.result.final_evaluation;
    const bool worked = entry.outcome != Outcome::already_done && entry.outcome != Outcome::not_begun;
    fmt::print("{:{}}  {:13}  {:>7}  {:>8}  {:>9}  {:>9}  {:>11}\n", entry.name, width, name_of(entry.outcome),
               entry.result.steps > 0 ? fmt::to_string(entry.result.steps) : "",
               worked ? format_seconds(entry.seconds) : "", e ? fmt::format("{:.4f}", e->loss) : "",
               e ? fmt::format("{:.4f}", e->bits_per_byte) : "",
               e && e->padded_loss ? fmt::format("{:.4f}", *e->padded_loss) : "");
  }
}

// Describes how several ranks are assigned to runs.
std::string arrangement(std::size_t runs, int ranks, int each) {
  const int teams = RankGroups{each}.count(ranks);
  const std::string ones = each == 1 ? "one rank" : fmt::format("{} ranks", each);
  if (teams == 1)
    return fmt::format("{} ranks share {}", ranks,
                       runs == 1 ? "the run" : "all ranks share each run; runs follow one another");
  const int idle = teams - static_cast<int>(std::min(runs, static_cast<std::size_t>(teams)));
  return fmt::format(
      "{} ranks: concurrent runs, {} each{}", ranks, ones,
      idle > 0 ? fmt::format("; ranks without a run: {} (with train.accumulate=N up to N ranks can share a run)",
                             idle * each)
               : "");
}

// The texts that the chosen series learn one after another, with their runs.
struct ContinualPart {
  const Series* series = nullptr;
  std::vector<std::string> texts;
};

std::vector<ContinualPart> continual_parts(const SeriesIndex& index, const std::vector<std::string>& names,
                                           bool builtin) {
  std::vector<ContinualPart> out;
  for (const std::string& name : names) {
    const Series* series = index.find(name);
    if (series == nullptr || series->continual.empty()) continue;
    ContinualPart part{series, series->continual};
    if (builtin) {
      part.texts.clear();
      for (const std::string& domain : story_domains()) {
        if (domain != "stories" && domain != "mixed") part.texts.push_back("builtin:" + domain);
      }
    }
    // A missing text is reported before hours of training.
    for (const std::string& text : part.texts) {
      if (!text.starts_with("builtin:") && !exists_path(text))
        bad_input(
            Code::file_not_found,
            "{} not found: series {} learns this text; create it (the comment of the series in {} names how), or use "
            "--builtin for built-in texts",
            text, series->name, index.folder + "/index.toml");
    }
    out.push_back(std::move(part));
  }
  return out;
}

// Measures continual learning of the finished runs and writes continual.json to their folders, and one page.
void measure_series(const ContinualPart& part, const std::vector<PlannedRun>& plan,
                    const std::vector<QueueEntry>& entries, const LabFlags& options) {
  std::vector<ContinualReport> reports;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const std::vector<std::string>& recipes = part.series->recipes;
    const bool done = entries[i].outcome == Outcome::already_done || entries[i].outcome == Outcome::trained ||
                      entries[i].outcome == Outcome::resumed;
    if (!done || std::find(recipes.begin(), recipes.end(), plan[i].identity.recipe) == recipes.end()) continue;
    if (received_signal() != 0) return;
    ModelFlags flags;
    flags.run = plan[i].folder;
    if (!options.device.empty()) flags.device = options.device;
    flags.precision = options.precision;
    flags.threads = options.threads.value_or(0);
    OpenedRun run = open_run(flags);
    ContinualOptions how;
    how.texts = part.texts;
    how.both_orders = true;
    how.stop = [] { return received_signal() != 0; };
    if (is_terminal())
      how.progress = [&](const std::string& what, std::int64_t at, std::int64_t total) {
        redraw(fmt::format("{}: {} ({} of {})", plan[i].name, what, at + 1, total));
      };
    ContinualReport report = measure_continual(run, how);
    if (is_terminal()) redraw("");
    if (report.stopped) return;
    write_file_atomic(plan[i].folder + "/continual.json", to_json(report).dump(1) + "\n");
    reports.push_back(std::move(report));
  }
  if (reports.empty()) return;
  const std::string page = fmt::format("{}/{}.html", options.runs, part.series->name);
  write_output_file(page, continual_page(reports));
  if (options.json) return;
  fmt::print("\n");
  print_continual(reports);
  fmt::print("page: {}\n", page);
}

void run(LabFlags options) {
  const SeriesIndex index = open_index(options.recipes);
  std::vector<std::string> names;
  LabOptions& lab = options.lab;
  lab.runs = options.runs;
  while (lab.runs.size() > 1 && lab.runs.back() == '/') lab.runs.pop_back();
  for (const std::string& word : options.words)
    (word.find('=') == std::string::npos ? names : lab.overrides).push_back(word);
  lab.max_steps = options.max_steps;
  if (!options.device.empty()) lab.overrides.push_back("train.device=" + options.device);
  if (!options.precision.empty()) lab.overrides.push_back("train.precision=" + options.precision);
  if (options.threads) lab.overrides.push_back(fmt::format("train.threads={}", *options.threads));
  const std::vector<ContinualPart> continual = continual_parts(index, names, lab.builtin);
  const std::vector<PlannedRun> plan = plan_runs(index, names, lab);

  watch_signals();
  const Group& group = join_ranks();
  std::vector<std::string> asked{"--runs " + lab.runs};
  for (const PlannedRun& one : plan) asked.push_back(one.name);
  asked.insert(asked.end(), lab.overrides.begin(), lab.overrides.end());
  check_same_command(group, nullptr, asked);

  const int ranks_per_run = choose_ranks_per_run(plan, group, options.ranks_per_run);
  if (!group.alone() && group.root()) print_line("{}", arrangement(plan.size(), group.size(), ranks_per_run));
  const std::vector<QueueEntry> entries = show_queue(plan, group, ranks_per_run);
  const int signal = static_cast<int>(group.all_reduce_max(received_signal()));
  if (!group.root()) return;

  if (options.json) {
    nlohmann::json out = nlohmann::json::array();
    for (const QueueEntry& entry : entries) out.push_back(to_json(entry));
    print_json({{"runs", out}, {"failed", count_failures(entries)}});
  } else {
    print_table(entries);
  }
  for (const ContinualPart& part : continual) measure_series(part, plan, entries, options);
  report_unfinished(entries, signal);
}

// --- report ---

void report(const LabFlags& options) {
  ReportOptions report_options;
  report_options.runs = options.runs;
  report_options.samples = !options.no_samples;
  if (!options.device.empty()) report_options.device = device_choice(options.device);
  report_options.progress = [](const std::string& what) { print_line("{}", what); };
  report_options.host = make_host(options.threads.value_or(0), terminal_log());
  for (const std::string& out : options.out) {
    if (!out.ends_with(".html") && !out.ends_with(".md"))
      bad_input(Code::option_invalid, "{} {}: must be a file that ends in .html or .md", "-o", out);
    if (const fs::path folder = fs::path(out).parent_path(); !folder.empty() && !folder_exists(folder.string()))
      bad_input(Code::folder_not_found, "{} {}: folder {} not found", "-o", out, folder.string());
  }
  const Report made = make_report(open_index(options.recipes), options.words, report_options);
  for (const std::string& out : options.out) write_output_file(out, out.ends_with(".md") ? made.markdown : made.html);
  if (options.json)
    print_json({{"files", options.out}, {"runs", made.runs}});
  else
    for (const std::string& out : options.out) fmt::print("{}: {} runs\n", out, made.runs);
}

void add_lab_options(Command& command, LabFlags& options) {
  command.add_option("--runs", options.runs, "folder of the run folders")->capture_default_str();
  command.add_option("--recipes", options.recipes, "folder of the recipes and index.toml (default: recipes)");
  command.add_json(options.json);
}

void set_up_lab_list(Command& command) {
  auto options = std::make_shared<LabFlags>();
  command.add_option("NAMES", options->words, "series or recipes to list run by run, or all");
  add_lab_options(command, *options);
  command.callback([options] { list(*options); });
}

void set_up_lab_run(Command& command) {
  auto options = std::make_shared<LabFlags>();
  command.add_option("NAMES", options->words, "series, runs or all, and KEY=VALUE overrides")->required();
  add_lab_options(command, *options);
  command.add_option("--seeds", options->lab.seeds, "number of runs per recipe, with its seed and the following ones")
      ->range(1, 1000)
      ->capture_default_str();
  command.add_option("--scale", options->lab.scale, "scale data and model down, e.g. 0.05 for a laptop")
      ->capture_default_str();
  command.add_flag("--builtin", options->lab.builtin, "built-in text instead of the recipes' files");
  command.add_option("--data", options->lab.train, "training text instead of the recipes'");
  command.add_option("--valid", options->lab.valid,
                     "with --data: validation text (default: a fraction of the training text)");
  command.add_option("--max-steps", options->max_steps,
                     "maximum number of steps; the learning-rate schedule is shortened to it");
  command.add_option("--device", options->device, "auto, cpu, cuda or cuda:N");
  command.add_option("--precision", options->precision, "fp32 or bf16");
  command.add_option("--threads", options->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command
      .add_option("--ranks-per-run", options->ranks_per_run,
                  "under mpirun or srun: ranks per run, with runs in parallel (default: the largest number at which no "
                  "run waits)")
      ->range(1, 1000000);
  command.callback([options] { run(*options); });
}

void set_up_lab_report(Command& command) {
  auto options = std::make_shared<LabFlags>();
  command.add_option("NAMES", options->words, "series, recipes or run folders (default: every run of --runs)");
  add_lab_options(command, *options);
  command.add_option("-o,--out", options->out, "FILE.html or FILE.md; repeatable")->required()->allow_extra_args(false);
  command.add_flag("--no-samples", options->no_samples,
                   "omit sample texts and traces, which require opening the models");
  command.add_option("--device", options->device, "device for samples: auto, cpu or cuda");
  command.add_option("--threads", options->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command.callback([options] { report(*options); });
}

}  // namespace

CommandSpec lab_command() {
  return {
      .name = "lab",
      .group = CommandGroup::experiments,
      .summary = "run series of recipes: reproduce published experiments and compare",
      .subcommands = {{
                          .name = "list",
                          .summary = "list the series and their finished runs; with names, each run",
                          .examples = {{"lab list", ""}},
                          .json = "the result",
                          .set_up = set_up_lab_list,
                      },
                      {
                          .name = "run",
                          .summary =
                              "train series or runs one after another; skips finished runs, resumes interrupted ones",
                          .examples = {{"lab run series-a --scale 0.02 --builtin",
                                        "a published series, scaled down for a laptop, on built-in text"},
                                       {"lab run a4 --seeds 3 --data train.txt --valid valid.txt", ""}},
                          .works_on_ranks = true,
                          .json = "the result",
                          .set_up = set_up_lab_run,
                      },
                      {
                          .name = "report",
                          .summary = "write a report of published and reproduced numbers as one self-contained file",
                          .examples = {{"lab report series-a -o report.html", ""}},
                          .json = "the result",
                          .set_up = set_up_lab_report,
                      }},
  };
}

}  // namespace some
