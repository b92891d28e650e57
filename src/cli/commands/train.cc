#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "analysis/read.h"
#include "cli/board.h"
#include "cli/model_flags.h"
#include "cli/places.h"
#include "cli/program.h"
#include "cli/ranks.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "evaluation/json.h"
#include "runs/run.h"
#include "train/trainer.h"

namespace some {
namespace {

struct TrainFlags {
  std::string recipe, out, resume, from, from_checkpoint, device, precision;
  std::optional<std::int64_t> from_step;
  int threads = -1;
  std::vector<std::string> overrides;
  bool with_optimizer = false, json = false, board = false;
};

// Board for this training run and its sibling runs, opened as soon as the run folder exists. It is read-only:
// generating text would take time from training.
class TrainingBoard {
 public:
  void look(const std::string& folder) {
    if (board_) return;
    const std::string runs = std::filesystem::absolute(folder).lexically_normal().parent_path().string();
    if (!folder_exists(folder)) return;
    BoardSettings settings;
    settings.watch.folders = {runs};
    settings.server.port = default_port;
    settings.read_only = true;
    board_ = open_board(settings, true);
    print_line("board of this run during training: {}", board_->address(folder));
  }

 private:
  std::unique_ptr<Board> board_;
};

struct PreparationStopped {
  int signal;
};

class Display {
 public:
  void step(const TrainProgress& p) {
    const auto now = std::chrono::steady_clock::now();
    const bool last = p.step == p.total_steps;
    const double wait = is_terminal() ? 0.1 : 10.0;
    if (!last && shown_ && std::chrono::duration<double>(now - when_).count() < wait) return;
    when_ = now;
    shown_ = true;
    std::vector<ProgressPart> parts = {
        {fmt::format("step {}/{}", p.step, p.total_steps), 0},
        {(p.stages > 0 ? fmt::format("stage {}/{} ", p.stage, p.stages) : "") +
             fmt::format("epoch {}/{}", p.epoch, p.epochs),
         4},
        {fmt::format("loss {:.4f}", p.loss), 1},
        {fmt::format("lr {:.1e}", p.lr), 5},
        {fmt::format("{} tokens/s", format_count(p.tokens_per_second)), 3},
        {fmt::format("{:.2f} TFLOP/s", p.operations_per_second / 1e12), 6},
    };
    if (p.seconds_left) parts.push_back({fmt::format("{} left", format_seconds(*p.seconds_left)), 2});
    if (p.matrix_rate > 0)
      parts[5].text += fmt::format(" ({:.0f}% of this GPU's {:.0f})", 100 * p.operations_per_second / p.matrix_rate,
                                   p.matrix_rate / 1e12);
    if (!is_terminal()) {
      std::string line;
      for (const ProgressPart& part : parts) line += (line.empty() ? "" : "  ") + part.text;
      say("{}\n", line);
      return;
    }
    const double done = static_cast<double>(p.step) / static_cast<double>(p.total_steps);
    redraw(progress_line(done, std::move(parts), terminal_columns() - 1));
    if (last) say("\n");
  }

  void evaluated(const EvaluationReport& report) {
    const Evaluation& e = report.evaluation;
    std::string text = report.stage ? report.stage->title + "  " : "";
    text += fmt::format("epoch {:.2f}  step {}  validation loss {:.4f}  perplexity {:.2f}  {:.3f} bits/byte",
                        report.epoch, report.step, e.loss, e.perplexity(), e.bits_per_byte);
    if (e.padded_loss) text += fmt::format("  padded loss {:.4f}", *e.padded_loss);
    if (const LayerMeasures* middle = report.middle())
      text += fmt::format("  layer {}: Gini {:.3f}, {:.1f} effective experts", middle->layer, middle->count.gini,
                          middle->count.effective_experts);
    print_line("{}", text);
  }

  void sampled(const SampleReport& report) {
    for (const TextSample& one : report.samples) {
      const std::size_t width = is_terminal() ? static_cast<std::size_t>(terminal_columns()) : table_columns();
      print_line(
          "{}", shortened(fmt::format("  sample: {} |{}{}", one.prompt, one.text.starts_with(' ') ? "" : " ", one.text),
                          width));
    }
  }

  void stage_ended(const StageReport& report) {
    std::string text = fmt::format("stage {} ({}) ends; validation loss of every stage's text:", report.stage.number,
                                   report.stage.title);
    for (const StageReport::OnText& one : report.texts)
      text += fmt::format("{} {} {:.4f}", one.stage.number > 1 ? "," : "", one.stage.title, one.loss);
    print_line("{}", text);
  }

 private:
  std::chrono::steady_clock::time_point when_;
  bool shown_ = false;
};

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

void check_options(const TrainFlags& options) {
  const bool resumes = !options.resume.empty(), begins_from = !options.from.empty();
  if (resumes && begins_from)
    bad_input(Code::option_conflict, "{} resumes a run, --from starts a new run from its weights; use one of them",
              "--resume");
  if (resumes && !options.recipe.empty())
    bad_input(Code::option_conflict, "{}: --resume RUN uses the recipe of the run; use --from RUN with another recipe",
              options.recipe);
  if (!resumes && !begins_from && options.recipe.empty())
    bad_input(Code::argument_missing,
              "nothing to train; pass a recipe, --resume RUN to resume a run, or --from RUN to start from its weights");
  if (resumes && !options.out.empty())
    bad_input(Code::option_conflict, "{} cannot be combined with --resume: a resumed run stays in its folder", "--out");
  if (options.from_step && !resumes)
    bad_input(Code::option_needs_another, "{} requires --resume RUN; with --from use --from-checkpoint", "--from-step");
  if (!begins_from && !options.from_checkpoint.empty())
    bad_input(Code::option_needs_another, "{} requires --from RUN", "--from-checkpoint");
  if (!begins_from && options.with_optimizer)
    bad_input(Code::option_needs_another, "{} requires --from RUN{}", "--with-optimizer",
              resumes ? "; a resumed run always keeps its optimizer state" : "");
}

// Formats one row per stage with the losses after it, one column per stage's text. Entries below the diagonal belong to
// stages trained earlier.
std::string stage_table(const TrainResult& result) {
  std::size_t widest = 0;
  for (const std::string& title : result.stage_titles) widest = std::max(widest, display_width(title));
  const auto padded = [](const std::string& text, std::size_t width, bool right) {
    const std::string blanks(width - std::min(width, display_width(text)), ' ');
    return right ? blanks + text : text + blanks;
  };
  const std::size_t column = std::max<std::size_t>(widest, 8);
  std::string out = "validation loss on the text of each stage:\n" + std::string(widest + 6, ' ');
  for (const std::string& title : result.stage_titles) out += "  " + padded(title, column, true);
  for (std::size_t i = 0; i < result.stage_ends.size(); ++i) {
    out += "\nafter " + padded(result.stage_titles[i], widest, false);
    for (const double loss : result.stage_ends[i].losses)
      out += "  " + padded(fmt::format("{:.4f}", loss), column, true);
  }
  return out + "\n";
}

std::optional<FromOptions> source_of(const TrainFlags& options) {
  if (options.from.empty()) return std::nullopt;
  return FromOptions{without_slash(options.from), options.from_checkpoint.empty() ? "latest" : options.from_checkpoint,
                     options.with_optimizer};
}

// With only --from, the settings of that run are used.
Recipe recipe_of(const TrainFlags& options, const std::vector<std::string>& changes) {
  if (!options.recipe.empty()) return load_named_recipe(options.recipe, changes);
  return source_recipe(*source_of(options), changes);
}

std::string folder_of(const TrainFlags& options, const Recipe& recipe) {
  if (!options.out.empty()) return without_slash(options.out);
  if (options.recipe.empty())
    bad_input(Code::option_needs_another, "{} {}: use --out to name the new run folder", "--from", options.from);
  if (!is_plain_name(recipe.name))
    bad_input(Code::option_needs_another, "{}: cannot derive a run name from this file; use --out", options.recipe);
  return "runs/" + recipe.name;
}

void run(const TrainFlags& options) {
  check_options(options);
  std::vector<std::string> changes = options.overrides;
  if (!options.device.empty()) changes.push_back("train.device=" + options.device);
  if (!options.precision.empty()) changes.push_back("train.precision=" + options.precision);
  if (options.threads >= 0) changes.push_back(fmt::format("train.threads={}", options.threads));

  watch_signals();
  const Group& group = join_ranks();
  Display display;
  PreparationProgress preparation;
  TrainHooks hooks;
  hooks.group = group;
  TrainingBoard own_board;
  std::string folder = without_slash(options.resume);
  const auto look = [&] {
    if (options.board) own_board.look(folder);
  };
  if (group.root()) {
    hooks.log = terminal_log();
    hooks.step = [&](const TrainProgress& p) {
      look();
      display.step(p);
    };
    hooks.evaluated = [&](const EvaluationReport& report) { display.evaluated(report); };
    hooks.sampled = [&](const SampleReport& report) { display.sampled(report); };
    hooks.stage_ended = [&](const StageReport& report) { display.stage_ended(report); };
  }
  hooks.prepare = [&](const std::string& what, std::int64_t done, std::int64_t total) {
    if (const int signal = received_signal(); signal != 0) throw PreparationStopped{signal};
    if (!group.root()) return;
    look();
    preparation.show(what, done, total);
  };
  PreparationProgress remembering;
  hooks.remember = [&](const std::string& what, std::int64_t done, std::int64_t total) {
    remembering.show("memory: reading " + what, done, total);
  };
  hooks.stop_signal = [] { return received_signal(); };
  hooks.saving = set_saving;

  TrainResult result;
  try {
    if (!options.resume.empty()) {
      result = resume_run(folder, {changes, options.from_step}, hooks);
      if (result.was_finished && group.root())
        print_line(
            "{0} is finished (step {1}); extend it with some train --resume {0} train.epochs=N, or start a new run "
            "from its weights with some train --from {0} --out NEW",
            folder, result.steps);
    } else {
      const Recipe recipe = recipe_of(options, changes);
      folder = folder_of(options, recipe);
      result = start_run(recipe, folder, hooks, source_of(options));
    }
    if (result.memory && group.root()) {
      const TrainingMemoryReport& memory = *result.memory;
      if (memory.stopped)
        print_line("stopped while building the memory; resume with: some train --resume {}", folder);
      else
        print_line("memory {}: {} of {} slots; validation loss {:.4f} without it, {:.4f} with it", memory.file,
                   memory.slots_in_use, memory.slots, memory.loss_without, memory.loss);
    } else if (result.stopped_by != 0 && group.root())
      print_line("stopped at step {} and saved; resume with: some train --resume {}", result.steps, folder);
  } catch (const PreparationStopped& stopped) {
    result.stopped_by = stopped.signal;
    print_line("stopped while reading the text, before the first step; the same command starts again");
    if (!group.alone()) group.abort_all(128 + stopped.signal);
  }
  if (result.stopped_by != 0) exit_code = 128 + result.stopped_by;
  if (!group.root()) return;
  const bool finished = result.stopped_by == 0 || result.memory;
  nlohmann::json out{
      {"run", folder}, {"steps", result.steps}, {"finished", finished}, {"stopped_early", result.stopped_early}};
  if (result.data.train.documents > 0) {
    out["train_text"] = to_json(result.data.train);
    out["valid_text"] = to_json(result.data.valid);
  }
  if (const auto& e = result.final_evaluation) {
    out["loss"] = e->loss;
    out["perplexity"] = e->perplexity();
    out["bits_per_byte"] = e->bits_per_byte;
    if (e->padded_loss) out["padded_loss"] = *e->padded_loss;
  }
  if (result.memory) out["memory"] = to_json(*result.memory);
  for (std::size_t i = 0; i < result.stage_titles.size(); ++i) {
    nlohmann::json stage{{"stage", i + 1}, {"title", result.stage_titles[i]}};
    if (i < result.stage_ends.size()) {
      stage["step"] = result.stage_ends[i].step;
      stage["losses"] = result.stage_ends[i].losses;
    }
    out["stages"].push_back(stage);
  }
  if (options.json) {
    print_json(out);
  } else if (finished) {
    if (!result.stage_ends.empty()) fmt::print("{}", stage_table(result));
    fmt::print("run folder: {}\n", folder);
    if (options.board && !folder.empty())
      fmt::print("the board closes with the run; 'some board {}' reopens it\n",
                 std::filesystem::path(folder).parent_path().empty()
                     ? "."
                     : std::filesystem::path(folder).parent_path().string());
  }
}

void set_up_train(Command& command) {
  auto options = std::make_shared<TrainFlags>();
  command.add_option("RECIPE", options->recipe, "recipe, by name or file (TOML)");
  command.add_option("OVERRIDES", options->overrides, "key=value, e.g. train.max_steps=100 some.top_k=8");
  command.add_option("-o,--out", options->out, "new run folder (default: runs/NAME)");
  command.add_option("--resume", options->resume, "run to resume, by name (in runs) or folder")->run_folder();
  command
      .add_option(
          "--from-step", options->from_step,
          "with --resume: step of the checkpoint to resume from (default: the latest); later checkpoints are set aside")
      ->not_negative();
  command
      .add_option("--from", options->from,
                  "run whose weights and keys initialize the new run; without RECIPE its settings are used too")
      ->run_folder();
  command.add_option("--from-checkpoint", options->from_checkpoint, "with --from: latest (default), best, or a step");
  command.add_flag("--with-optimizer", options->with_optimizer, "with --from: also load the optimizer state");
  command.add_option("--device", options->device, "auto, cpu, cuda or cuda:N");
  command.add_option("--precision", options->precision, "fp32 or bf16");
  command.add_option("--threads", options->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command.add_flag("--board", options->board, "serve the board while the run trains (see 'some board')");
  command.add_json(options->json);
  command.callback([options] {
    // With --resume or --from, the first word may be an override.
    if ((!options->resume.empty() || !options->from.empty()) && options->recipe.find('=') != std::string::npos) {
      options->overrides.insert(options->overrides.begin(), options->recipe);
      options->recipe.clear();
    }
    run(*options);
  });
}

}  // namespace

CommandSpec train_command() {
  return {
      .name = "train",
      .group = CommandGroup::train_and_use,
      .summary = "train a recipe, resume a run, or start from the weights of another run",
      .examples = {{"train tiny", "a recipe by name; writes runs/tiny"},
                   {"train default some.top_k=4 --out runs/top4", "any setting can be overridden"},
                   {"train default data.train=mine.txt --out runs/mine", "your own text: a file or a folder"},
                   {"train --resume runs/mine", "resume after Ctrl-C; results are bit-identical"},
                   {"train --resume runs/mine train.epochs=4", "extend a finished run"},
                   {"train --from runs/tiny data.train=mine.txt --out runs/on",
                    "a new run from these weights, on other text"},
                   {"train continual", "several texts, one after another ([[stage]])"}},
      .works_on_ranks = true,
      .json = "the result",
      .set_up = set_up_train,
  };
}

}  // namespace some
