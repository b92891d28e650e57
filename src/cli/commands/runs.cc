// `some runs` and `some compare`: list runs with their progress, and compare several runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "cli/show.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "core/files/folders.h"
#include "core/system_error.h"
#include "lab/charts.h"
#include "recipe/schema.h"
#include "runs/history.h"
#include "runs/run.h"

namespace some {
namespace {

namespace fs = std::filesystem;

// Returns settings by name as written in a recipe, except those that do not affect what was learned.
std::map<std::string, std::string> settings_of(const Recipe& recipe) {
  std::map<std::string, std::string> out;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string name = key.full_name();
    if (name != "title" && !is_left_out_of_comparisons(name)) out[name] = key.write(key.get(recipe));
  }
  std::string stages;
  for (std::size_t i = 0; i < recipe.stages.size(); ++i) stages += (i > 0 ? ", " : "") + stage_name(recipe, i);
  out["stages"] = stages.empty() ? "none" : stages;
  out["from"] = recipe.from ? recipe.from->text() : "none";
  return out;
}

std::vector<std::string> key_order() {
  std::vector<std::string> names;
  for (const RecipeKey& key : recipe_keys()) names.push_back(key.full_name());
  names.emplace_back("stages");
  names.emplace_back("from");  // the initial weights
  return names;
}

// Returns the size of a folder. Files that disappear meanwhile (in a running training) count as zero.
double bytes_in(const fs::path& folder) {
  double sum = 0;
  for (const std::string& name : list_folder(folder.string())) {
    const fs::path path = folder / name;
    if (is_link(path.string())) continue;
    std::error_code error;
    if (folder_exists(path.string()))
      sum += bytes_in(path);
    else if (const std::uintmax_t size = fs::file_size(path, error); !error)
      sum += static_cast<double>(size);
    else if (error != std::errc::no_such_file_or_directory)
      failed(Code::folder_unreadable, "cannot access {}: {}", path.string(), reason_of(error.value()));
  }
  return sum;
}

struct Listed {
  RunHistory history;
  std::map<std::string, std::string> settings;
  double bytes = 0;

  std::int64_t step() const {
    std::int64_t step = history.train.empty() ? 0 : history.train.back().step;
    if (const EvalPoint* last = history.last()) step = std::max(step, last->step);
    return history.found.step(step);
  }
};

Listed read(const RunListEntry& run) {
  Listed out;
  out.history = read_history(run, terminal_log());
  out.settings = settings_of(out.history.recipe);
  out.bytes = bytes_in(run.folder);
  return out;
}

std::vector<Listed> read_all(const std::vector<RunListEntry>& found) {
  std::vector<Listed> runs;
  for (const RunListEntry& one : found) {
    try {
      runs.push_back(read(one));
    } catch (const Error& error) {
      say("warning[{}]: {}: cannot read: {}\n", name_of(error.code()), one.folder, error.what());
    }
  }
  return runs;
}

nlohmann::json result_json(const Listed& run) {
  nlohmann::json out{{"run", run.history.found.folder},
                     {"state", run.history.found.state_text()},
                     {"step", run.step()},
                     {"total_parameters", run.history.parameters.total},
                     {"trainable_parameters", run.history.parameters.trainable},
                     {"bytes", run.bytes}};
  if (const EvalPoint* last = run.history.last()) {
    out["loss"] = last->loss;
    out["perplexity"] = last->perplexity;
    out["bits_per_byte"] = last->bits_per_byte;
    if (last->padded_loss) out["padded_loss"] = *last->padded_loss;
  }
  if (const EvalPoint* best = run.history.best()) out["best"] = {{"step", best->step}, {"loss", best->loss}};
  if (run.history.timing.steps > 0) {
    out["seconds"] = run.history.timing.seconds;
    out["tokens_per_second"] = run.history.timing.tokens / run.history.timing.seconds;
  }
  return out;
}

// --- runs ---

struct RunsOptions {
  std::string folder = "runs";
  bool settings = false, json = false;
};

// Returns the most frequent value of each setting; ties are resolved in favor of the first one seen.
std::map<std::string, std::string> commonest(const std::vector<Listed>& runs) {
  std::map<std::string, std::string> out;
  for (const auto& [key, first] : runs[0].settings) {
    std::map<std::string, int> counts;
    for (const Listed& run : runs) counts[run.settings.at(key)] += 1;
    out[key] = first;
    for (const Listed& run : runs) {
      if (counts[run.settings.at(key)] > counts[out[key]]) out[key] = run.settings.at(key);
    }
  }
  return out;
}

std::string size_words(const Listed& run) {
  const double total = static_cast<double>(run.history.parameters.total) / 1e6,
               trained = static_cast<double>(run.history.parameters.trainable) / 1e6;
  return fmt::format("{:.2f} M ({:.2f})", total, trained);
}

void list_runs(const RunsOptions& options) {
  std::vector<RunListEntry> found = find_runs(options.folder, terminal_log());
  if (const auto one = find_run(options.folder, terminal_log())) found = {*one};
  const std::vector<Listed> runs = read_all(found);
  if (runs.empty())
    bad_input(Code::run_not_found,
              "no runs found in {}; 'some train tiny' creates one in runs, 'some runs FOLDER' lists another folder",
              options.folder);
  const auto common = commonest(runs);
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Listed& run : runs) {
      nlohmann::json one = result_json(run);
      one["differs"] = nlohmann::json::object();
      for (const auto& [key, value] : run.settings) {
        if (value != common.at(key)) one["differs"][key] = value;
      }
      list.push_back(one);
    }
    print_json({{"folder", options.folder}, {"runs", list}});
    return;
  }
  const auto differences_of = [&](const Listed& run) {
    std::string text;
    for (const std::string& key : key_order()) {
      const auto value = run.settings.find(key);
      if (value != run.settings.end() && value->second != common.at(key))
        text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value->second);
    }
    return text;
  };
  std::size_t width = 3, state_width = 5, different = 0;
  for (const Listed& run : runs) {
    width = std::max(width, display_width(run.history.found.name));
    state_width = std::max(state_width, run.history.found.state_text().size());
  }
  fmt::print("{:{}}  {:<{}}  {:>7}  {:>8}  {:>9}  {:>20}  {:>9}\n", "run", width, "state", state_width, "step", "loss",
             "bits/byte", "parameters (trained)", "on disk");
  for (const Listed& run : runs) {
    const EvalPoint* last = run.history.last();
    fmt::print("{}{}  {:<{}}  {:>7}  {:>8}  {:>9}  {:>20}  {:>9}\n", run.history.found.name,
               std::string(width - display_width(run.history.found.name), ' '), run.history.found.state_text(),
               state_width, run.step(), last ? fmt::format("{:.4f}", last->loss) : "-",
               last ? fmt::format("{:.4f}", last->bits_per_byte) : "-", size_words(run), format_bytes(run.bytes));
    const std::string differences = differences_of(run);
    if (!differences.empty()) different += 1;
    if (options.settings && !differences.empty()) fmt::print("{}", wrapped(differences, table_columns(), "    "));
  }
  if (options.settings && different > 0)
    fmt::print("below a run: settings in which it differs from most of the others\n");
  else if (different > 0)
    print_line("{} of {} runs differ from the others in settings; 'some runs{} --settings' shows them", different,
               runs.size(), options.folder == "runs" ? "" : " " + options.folder);
}

// --- compare ---

struct CompareOptions {
  std::vector<std::string> runs;
  std::string html;
  bool json = false;
};

struct Row {
  std::string name;
  std::vector<std::string> cells;
};

std::string number(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

std::vector<Row> result_rows(const std::vector<Listed>& runs) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, const auto& cell) {
    Row row{name, {}};
    for (const Listed& run : runs) row.cells.push_back(cell(run));
    rows.push_back(std::move(row));
  };
  const auto evaluated = [](const auto& text) {
    return [text](const Listed& run) {
      const EvalPoint* last = run.history.last();
      return last ? text(run, *last) : std::string("-");
    };
  };
  add("state", [](const Listed& run) { return run.history.found.state_text(); });
  add("step", [](const Listed& run) { return fmt::format("{}", run.step()); });
  add("loss (nats/token)", evaluated([](const Listed&, const EvalPoint& e) { return number(e.loss, 4); }));
  add("bits per byte", evaluated([](const Listed&, const EvalPoint& e) { return number(e.bits_per_byte, 4); }));
  add("perplexity", evaluated([](const Listed&, const EvalPoint& e) { return number(e.perplexity, 2); }));
  if (std::any_of(runs.begin(), runs.end(),
                  [](const Listed& run) { return run.history.last() && run.history.last()->padded_loss.has_value(); }))
    add("padded loss", evaluated([](const Listed&, const EvalPoint& e) {
          return e.padded_loss ? number(*e.padded_loss, 4) : std::string("-");
        }));
  add("lowest loss (its step)", [](const Listed& run) {
    const EvalPoint* best = run.history.best();
    return best ? fmt::format("{:.4f} ({})", best->loss, best->step) : std::string("-");
  });
  add("training loss", [](const Listed& run) {
    return run.history.train.empty() ? std::string("-") : number(run.history.train.back().loss, 4);
  });
  add("Gini, middle layer", evaluated([](const Listed& run, const EvalPoint& e) {
        return run.history.middle < e.layers.size() ? number(e.layers[run.history.middle].gini, 3) : std::string("-");
      }));
  add("parameters", [](const Listed& run) {
    return fmt::format("{:.2f} M", static_cast<double>(run.history.parameters.total) / 1e6);
  });
  add("trained parameters", [](const Listed& run) {
    return fmt::format("{:.2f} M", static_cast<double>(run.history.parameters.trainable) / 1e6);
  });
  add("time", [](const Listed& run) {
    return run.history.timing.steps > 0 ? format_seconds(run.history.timing.seconds) : std::string("-");
  });
  add("tokens per second", [](const Listed& run) {
    const RunTiming& timing = run.history.timing;
    return timing.steps > 0 && timing.seconds > 0 ? format_count(timing.tokens / timing.seconds) : std::string("-");
  });
  return rows;
}

std::vector<Row> setting_rows(const std::vector<Listed>& runs) {
  std::vector<Row> rows;
  for (const std::string& key : key_order()) {
    if (!runs[0].settings.contains(key)) continue;
    Row row{key, {}};
    for (const Listed& run : runs) row.cells.push_back(run.settings.at(key));
    if (std::any_of(row.cells.begin(), row.cells.end(), [&](const std::string& cell) { return cell != row.cells[0]; }))
      rows.push_back(std::move(row));
  }
  return rows;
}

// Prints as many runs side by side as fit the terminal, then the next ones below.
void print_rows(const std::vector<std::string>& names, const std::vector<Row>& rows) {
  std::size_t first_width = 3;
  for (const Row& row : rows) first_width = std::max(first_width, display_width(row.name));
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < names.size(); ++i) {
    widths.push_back(display_width(names[i]));
    for (const Row& row : rows) widths[i] = std::max(widths[i], display_width(row.cells[i]));
  }
  for (std::size_t first = 0; first < names.size();) {
    std::size_t last = first, width = first_width;
    while (last < names.size() && (last == first || width + 2 + widths[last] <= table_columns()))
      width += 2 + widths[last++];
    const auto line = [&](const std::string& name, const std::vector<std::string>& cells) {
      std::string text = padded(name, first_width);
      for (std::size_t i = first; i < last; ++i) text += "  " + padded(cells[i], widths[i]);
      while (!text.empty() && text.back() == ' ') text.pop_back();
      fmt::print("{}\n", text);
    };
    line("", names);
    for (const Row& row : rows) line(row.name, row.cells);
    first = last;
    if (first < names.size()) fmt::print("\n");
  }
}

constexpr const char* other_text =
    "Text or tokenizer differ: compare bits per byte rather than nats/token, and only if the validation text is the "
    "same.";

std::string compare_page(const std::vector<Listed>& runs, const std::vector<Row>& settings,
                         const std::vector<Row>& results, bool same_tokens) {
  std::vector<const RunHistory*> histories;
  std::vector<std::string> names;
  for (const Listed& run : runs) {
    histories.push_back(&run.history);
    names.push_back(run.history.found.folder);
  }
  Document document({"Comparison", fmt::format("{}", fmt::join(names, ", "))});
  if (!same_tokens) document.note(other_text);
  document.begin_side_by_side();
  document.chart(overlaid_validation(histories, !same_tokens));
  document.chart(overlaid_training(histories));
  document.end_side_by_side();
  const auto table = [&](const std::string& id, const std::string& title, const std::vector<Row>& rows) {
    Table out{id, title, {{"", "", false}}, {}};
    for (const std::string& name : names) out.columns.push_back({name, "", false});
    for (const Row& row : rows) {
      out.rows.push_back({row.name});
      for (const std::string& cell : row.cells) out.rows.back().push_back(cell);
    }
    document.table(std::move(out));
  };
  document.heading(2, "settings", "Settings that differ");
  if (settings.empty())
    document.paragraph("All settings are the same.");
  else
    table("settings-table", "Settings that differ", settings);
  document.heading(2, "results", "Results");
  table("results-table", "Last evaluation", results);
  return write_html(document);
}

void compare(const CompareOptions& options) {
  if (options.runs.size() < 2) bad_input(Code::argument_missing, "comparing requires at least two runs");
  std::vector<Listed> runs;
  for (const std::string& folder : options.runs) {
    read_run_recipe(folder);  // reports what is wrong if the folder is not a run
    runs.push_back(read(*find_run(folder, terminal_log())));
  }
  const std::vector<Row> settings = setting_rows(runs), results = result_rows(runs);
  // Losses in nats/token are not comparable between different tokenizations.
  const bool same_tokens = std::none_of(settings.begin(), settings.end(), [](const Row& row) {
    return row.name == "data.tokenizer" || row.name == "data.vocab" || row.name == "data.train";
  });
  if (!options.html.empty()) write_output_file(options.html, compare_page(runs, settings, results, same_tokens));
  if (options.json) {
    nlohmann::json list = nlohmann::json::array(), different = nlohmann::json::object();
    for (const Listed& run : runs) list.push_back(result_json(run));
    for (const Row& row : settings) different[row.name] = row.cells;
    print_json({{"runs", list}, {"settings", different}, {"losses_comparable", same_tokens}});
    return;
  }
  std::vector<std::string> names;
  for (const Listed& run : runs) names.push_back(run.history.found.folder);
  if (settings.empty()) {
    fmt::print("All settings are the same.\n\n");
  } else {
    fmt::print("Settings that differ\n");
    print_rows(names, settings);
    fmt::print("\n");
  }
  fmt::print("Results of the last evaluation\n");
  print_rows(names, results);
  if (!same_tokens) fmt::print("\n{}", wrapped(other_text, table_columns()));
  if (!options.html.empty()) fmt::print("\npage: {}\n", options.html);
}

void set_up_runs(Command& command) {
  auto options = std::make_shared<RunsOptions>();
  command.add_option("FOLDER", options->folder, "folder of run folders")->capture_default_str();
  command.add_flag("--settings", options->settings,
                   "below each run, the settings in which it differs from most others");
  command.add_json(options->json);
  command.callback([options] { list_runs(*options); });
}

void set_up_compare(Command& command) {
  auto options = std::make_shared<CompareOptions>();
  command.add_option("RUNS", options->runs, "two or more runs, by name (in runs) or folder")->run_folder()->required();
  command.add_option("--html", options->html, "also write an HTML page with overlaid curves and the tables");
  command.add_json(options->json);
  command.callback([options] { compare(*options); });
}

}  // namespace

CommandSpec runs_command() {
  return {
      .name = "runs",
      .group = CommandGroup::find_things,
      .summary = "list runs with state, loss, size and differing settings",
      .examples = {{"runs", "those in ./runs"}, {"runs lab", ""}},
      .json = "the runs",
      .set_up = set_up_runs,
  };
}

CommandSpec compare_command() {
  return {
      .name = "compare",
      .group = CommandGroup::find_things,
      .summary = "compare runs: differing settings, and results",
      .examples = {{"compare runs/tiny runs/top4", ""},
                   {"compare runs/tiny runs/top4 --html compare.html", "an HTML page with overlaid curves"}},
      .json = "the comparison",
      .set_up = set_up_compare,
  };
}

}  // namespace some
