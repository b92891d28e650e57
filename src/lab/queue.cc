#include "lab/queue.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/folders.h"
#include "data/source.h"
#include "recipe/scale.h"
#include "recipe/schema.h"
#include "runs/run.h"
#include "runs/run_lock.h"
#include "text/stories.h"
#include "train/rank_checks.h"

namespace some {
namespace fs = std::filesystem;
namespace {

// Thrown during data preparation when a signal arrives: nothing of the run exists yet, so nothing is saved.
struct PreparationStopped {
  int signal;
};

// Returns what is missing from a recipe's text; none if it is complete.
std::optional<Error> missing_text(const Recipe& of_run) {
  if (!of_run.stages.empty()) {
    for (const Recipe& stage : stage_recipes(of_run)) {
      if (auto missing = missing_text(stage)) return missing;
    }
    return std::nullopt;
  }
  const Recipe& recipe = of_run;
  for (const auto& [key, path] :
       {std::pair{"data.train", recipe.data.train}, std::pair{"data.valid", recipe.data.valid}}) {
    if (path.empty() || is_builtin(path) || exists_path(path)) continue;
    return make_error(Fault::input, Code::data_missing,
                      "{} = \"{}\": text not found; put it at this path, use your own with --data FILE --valid FILE, "
                      "or built-in text with --builtin",
                      key, path);
  }
  return std::nullopt;
}

PlannedRun plan_one(const SeriesIndex& index, const std::string& name, int seed, const LabOptions& options) {
  PlannedRun run;
  run.identity = {name, options.scale, seed, options.builtin};
  run.name = run_name(run.identity);
  run.folder = (fs::path(options.runs) / run.name).string();
  Recipe recipe = scale_recipe(load_recipe(index.recipe_path(name), {}), options.scale);
  if (!options.train.empty() && !recipe.stages.empty())
    bad_input(Code::option_conflict,
              "{}: --data would replace the texts of all stages by one; use stage.1.data.train=FILE", name);
  // Stages need different texts: each gets a separate built-in domain.
  for (std::size_t i = 0; options.builtin && i < recipe.stages.size(); ++i) {
    for (auto& [key, value] : recipe.stages[i].settings) {
      if ((key == "data.train" || key == "data.valid") && !is_builtin(std::get<std::string>(value)))
        value = "builtin:" + story_domains().at(i % (story_domains().size() - 1));  // the last domain is a mixture
    }
  }
  if (options.builtin && !is_builtin(recipe.data.train)) {
    recipe.data.train = "builtin:stories";
    recipe.data.valid = "builtin:stories";
  }
  if (!options.train.empty()) {
    recipe.data.train = options.train;
    recipe.data.valid = options.valid;
  }
  if (options.max_steps) {
    for (Stage& stage : recipe.stages)
      std::erase_if(stage.settings, [](const auto& setting) {
        return setting.first == "train.max_steps" || setting.first == "train.warmup_steps";
      });
    recipe.train.max_steps = *options.max_steps;
    if (*options.max_steps > 0) recipe.train.warmup_steps = std::min(recipe.train.warmup_steps, *options.max_steps);
  }
  // Overrides come last: explicit values are not scaled.
  recipe = override_recipe(recipe, run.name, options.overrides);
  recipe.seed += static_cast<std::uint64_t>(seed);
  recipe.model.seed = recipe.seed;
  if (options.scale != 1) recipe.title = scaled_title(recipe, name, options.scale);
  run.recipe = recipe;
  for (const std::string& change : options.overrides) {
    if (is_machine_setting(change)) run.resume_changes.push_back(change);
  }
  return run;
}

// Throws if the folder holds a run with other settings, left by another command: neither skipping nor resuming it would
// be what was requested.
void check_same_settings(const PlannedRun& run) {
  std::string differing;
  for (const std::string& difference : recipe_differences(read_run_recipe(run.folder), run.recipe)) {
    if (!is_machine_setting(difference)) differing += (differing.empty() ? "" : ", ") + difference;
  }
  if (!differing.empty()) {
    bad_input(Code::run_mismatch,
              "{} contains a run with other settings (requested values in brackets): {}; use another folder with "
              "--runs, or remove this one",
              run.folder, differing);
  }
}

// Records the run's identity for later lists and reports. The run does not depend on it: if it cannot be written (a
// full or read-only disk), the queue continues.
void remember(const PlannedRun& run, const Log& log, const std::string& failure = "") {
  try {
    const auto known = find_run(run.folder, log);
    if (known && known->stored && known->identity == run.identity && known->failure == failure) return;
    write_identity(run.folder, run.identity, failure);
  } catch (const std::exception& error) {
    log.warning(Code::run_unlisted, "{}: the identity of the run cannot be saved: {}", run.folder, error.what());
  }
}

// Action required for a run, derived from its folder.
enum class Work { nothing, begin, go_on };

Work look_at(const PlannedRun& run, const Log& log) {
  const RunState state = run_state(run.folder);
  if (state != RunState::absent) check_same_settings(run);
  if (state == RunState::finished) {
    complete_finished_run(run.folder);
    remember(run, log);
    return Work::nothing;
  }
  if (state == RunState::running) throw RunLocked(run.folder);
  if (const auto missing = missing_text(run.recipe)) throw *missing;
  return state == RunState::interrupted ? Work::go_on : Work::begin;
}

// Processes one run; collective over the ranks of a team. Only the team's first rank inspects folders and prints.
class Doing {
 public:
  Doing(const PlannedRun& run, std::size_t place, const QueueHooks& hooks, const Group& team)
      : run_(run), place_(place), hooks_(hooks), team_(team) {
    entry_.name = run.name;
    entry_.folder = run.folder;
  }

  QueueEntry run() {
    const auto started = std::chrono::steady_clock::now();
    std::int64_t work = 0;
    if (!attempt([&] { team_.all_or_none([&] { work = team_.root() ? static_cast<int>(look_at(run_, log())) : 0; }); }))
      return entry_;
    work = team_.all_reduce_max(work);
    if (static_cast<Work>(work) == Work::nothing) {
      entry_.outcome = Outcome::already_done;
      finish_memory();
      return entry_;
    }
    const bool resumed = static_cast<Work>(work) == Work::go_on;
    if (team_.root() && hooks_.begin) hooks_.begin(run_, place_, resumed);
    const bool done = attempt([&] {
      const TrainHooks train = train_hooks();
      entry_.result = resumed ? resume_run(run_.folder, {run_.resume_changes, {}}, train)
                              : start_run(run_.recipe, run_.folder, train);
      entry_.outcome = entry_.result.stopped_by != 0 ? Outcome::stopped : resumed ? Outcome::resumed : Outcome::trained;
    });
    if (!done && !taken_ && entry_.outcome == Outcome::failed) note_failure();
    entry_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return entry_;
  }

 private:
  const Log& log() const { return hooks_.train.log; }

  // Completes the memory of a trained run that was stopped while the memory was built.
  void finish_memory() {
    // Impossible if the checkpoints were removed to save space.
    if (run_.recipe.memory.slots == 0 || list_checkpoints(run_.folder).empty()) return;
    attempt([&] {
      build_requested_memory(entry_.result, run_.folder, run_.resume_changes, train_hooks(), false);
      if (entry_.result.stopped_by != 0) entry_.outcome = Outcome::stopped;
    });
  }

  TrainHooks train_hooks() {
    TrainHooks train = hooks_.train;
    train.group = team_;
    train.neighbours = hooks_.ranks;
    if (!team_.root()) {
      train.log = {};
      train.step = {};
      train.evaluated = {};
      train.stage_ended = {};
      train.prepare = {};
      train.remember = {};
      return train;
    }
    // The folder exists after the first step.
    train.step = [this](const TrainProgress& progress) {
      if (!identified_) remember(run_, log());
      identified_ = true;
      if (hooks_.train.step) hooks_.train.step(progress);
    };
    train.prepare = [this](const std::string& what, std::int64_t done, std::int64_t total) {
      // The other ranks of a team cannot be notified here: the team stops after the first step, with a checkpoint.
      const int signal = team_.alone() && hooks_.train.stop_signal ? hooks_.train.stop_signal() : 0;
      if (signal != 0) throw PreparationStopped{signal};
      if (hooks_.train.prepare) hooks_.train.prepare(what, done, total);
    };
    return train;
  }

  // Returns true if the work completed; otherwise the entry records the reason. An exception on one of several ranks
  // leaves the others waiting: it propagates to the caller, which can end all ranks.
  bool attempt(const std::function<void()>& work) {
    try {
      work();
      return true;
    } catch (const PreparationStopped& stopped) {
      entry_.outcome = Outcome::stopped;
      entry_.result.stopped_by = stopped.signal;
    } catch (const CollectiveError& failure) {
      fail(failure);
    } catch (const RunLocked& error) {
      fail(error);
      taken_ = true;  // the folder is in use by another process, which is not a failure of the run
      if (!team_.alone()) throw;
    } catch (const std::bad_alloc&) {
      const Error error = make_error(Fault::failure, Code::out_of_memory,
                                     "out of memory; 'some info RECIPE' shows the memory that a run requires");
      fail(error);
      give_up_alone(error);
    } catch (const Error& error) {
      fail(error);
      give_up_alone(error);
    } catch (const std::exception& error) {
      const Error unexpected(Fault::failure, Code::internal, error.what());
      fail(unexpected);
      give_up_alone(unexpected);
    }
    return false;
  }

  void fail(const Error& error) {
    entry_.outcome = Outcome::failed;
    entry_.message = error.what();
    entry_.code = error.code();
  }

  void give_up_alone(const Error& error) {
    if (team_.alone()) return;
    note_failure();
    throw error.within(run_.name, fmt::format("{}: {}", run_.name, entry_.message));
  }

  void note_failure() {
    if (team_.root() && exists_path(RunPaths{run_.folder}.config())) remember(run_, log(), entry_.message);
  }

  const PlannedRun& run_;
  std::size_t place_;
  const QueueHooks& hooks_;
  Group team_;
  QueueEntry entry_;
  bool identified_ = false, taken_ = false;
};

}  // namespace

std::string name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::already_done: return "already done";
    case Outcome::trained: return "done";
    case Outcome::resumed: return "resumed, done";
    case Outcome::failed: return "failed";
    case Outcome::stopped: return "stopped";
    case Outcome::not_begun: return "not begun";
  }
  return "";
}

std::vector<PlannedRun> plan_runs(const SeriesIndex& index, const std::vector<std::string>& names,
                                  const LabOptions& options) {
  if (names.empty()) bad_input(Code::argument_missing, "no series or runs given; 'some lab list' lists them");
  if (options.seeds < 1) bad_input(Code::option_invalid, "{} {}: must be an integer >= 1", "--seeds", options.seeds);
  if (options.builtin && !options.train.empty())
    bad_input(Code::option_conflict, "{} cannot be combined with --data", "--builtin");
  if (options.train.empty() && !options.valid.empty())
    bad_input(Code::option_needs_another, "{} requires --data", "--valid");
  for (const std::string& file : {options.train, options.valid}) {
    if (!file.empty() && !is_builtin(file) && !exists_path(file))
      bad_input(Code::data_missing, "text {} not found", file);
  }
  for (const std::string& change : options.overrides) {
    if (change.starts_with("seed=") && options.seeds > 1)
      bad_input(Code::option_conflict,
                "{}: cannot be combined with --seeds, which counts up from the seed of the recipe", change);
  }
  std::vector<PlannedRun> plan;
  for (const std::string& name : index.select(names)) {
    for (int seed = 0; seed < options.seeds; ++seed) plan.push_back(plan_one(index, name, seed, options));
  }
  // If no run has its text, the queue would only fail run by run.
  const auto without = [](const PlannedRun& run) {
    return missing_text(run.recipe) && run_state(run.folder) != RunState::finished;
  };
  if (std::all_of(plan.begin(), plan.end(), without)) {
    const Error missing = *missing_text(plan[0].recipe);
    throw missing.within(plan[0].name, fmt::format("{}: {}", plan[0].name, missing.what()));
  }
  return plan;
}

namespace {

nlohmann::json to_json(const QueueEntry& entry) {
  nlohmann::json out{{"outcome", static_cast<int>(entry.outcome)},
                     {"message", entry.message},
                     {"steps", entry.result.steps},
                     {"stopped_by", entry.result.stopped_by},
                     {"seconds", entry.seconds}};
  if (const auto& e = entry.result.final_evaluation) {
    out["loss"] = e->loss;
    out["bits_per_byte"] = e->bits_per_byte;
    if (e->padded_loss) out["padded_loss"] = *e->padded_loss;
  }
  return out;
}

void take(const nlohmann::json& told, QueueEntry& entry) {
  entry.outcome = static_cast<Outcome>(told.at("outcome").get<int>());
  entry.message = told.at("message").get<std::string>();
  entry.result.steps = told.at("steps").get<std::int64_t>();
  entry.result.stopped_by = told.at("stopped_by").get<int>();
  entry.seconds = told.at("seconds").get<double>();
  if (!told.contains("loss")) return;
  Evaluation& e = entry.result.final_evaluation.emplace();
  e.loss = told.at("loss").get<double>();
  e.bits_per_byte = told.at("bits_per_byte").get<double>();
  if (told.contains("padded_loss")) e.padded_loss = told.at("padded_loss").get<double>();
}

// Neighboring ranks form teams, and teams take the runs round-robin: neighboring runs in the plan are mostly seeds of
// one recipe and take about the same time.
struct Teams {
  Group ranks;
  RankGroups groups;

  int own() const { return groups.group_of(ranks.rank()); }
  int of(std::size_t place) const { return static_cast<int>(place) % groups.count(ranks.size()); }
  int first_rank_of(std::size_t place) const { return groups.first_rank(of(place)); }
  Group open() const { return ranks.split(groups.ranks(own())); }
};

// Exchanges the entries, so that every rank has those of all teams.
void share_entries(const Teams& teams, std::vector<QueueEntry>& entries) {
  const Group& ranks = teams.ranks;
  if (ranks.alone()) return;
  nlohmann::json mine = nlohmann::json::array();
  for (std::size_t place = 0; place < entries.size(); ++place)
    mine.push_back(teams.first_rank_of(place) == ranks.rank() ? to_json(entries[place]) : nlohmann::json());
  // A message may quote text that is not UTF-8.
  const std::vector<std::string> all =
      ranks.all_gather(mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  for (std::size_t place = 0; place < entries.size(); ++place) {
    const int doer = teams.first_rank_of(place);
    if (doer != ranks.rank())
      take(nlohmann::json::parse(all[static_cast<std::size_t>(doer)]).at(place), entries[place]);
  }
}

}  // namespace

int choose_ranks_per_run(const std::vector<PlannedRun>& plan, const Group& ranks, std::optional<int> asked) {
  std::vector<int> possible;
  for (int each = 1; each <= ranks.size(); ++each) {
    if (RankGroups::fit(ranks.size(), each)) possible.push_back(each);
  }
  if (asked) {
    if (std::find(possible.begin(), possible.end(), *asked) == possible.end())
      bad_input(Code::ranks_uneven, "{} {}: {} rank{} started, which {} cannot share evenly; must be {}",
                "--ranks-per-run", *asked, ranks.size(), ranks.alone() ? " was" : "s were", *asked,
                fmt::join(possible, ", "));
    for (const PlannedRun& run : plan) {
      if (const auto problem = rank_shares_error(*asked, run.recipe))
        throw problem->within(run.name, fmt::format("{}: {}", run.name, problem->what()));
    }
    return *asked;
  }
  if (ranks.alone()) return 1;
  std::int64_t choice = 1;
  if (ranks.root()) {  // only rank 0 is sure to see the folders
    std::vector<const PlannedRun*> open;
    for (const PlannedRun& run : plan) {
      try {
        if (run_state(run.folder) == RunState::finished) continue;
      } catch (const Error&) {  // reported when the run is processed
      }
      open.push_back(&run);
    }
    std::optional<int> best;
    for (const int each : possible) {
      const bool suits = std::all_of(open.begin(), open.end(),
                                     [&](const PlannedRun* run) { return !rank_shares_error(each, run->recipe); });
      const bool none_waits = static_cast<std::size_t>(RankGroups{each}.count(ranks.size())) >= open.size();
      if (suits && (none_waits || !best)) best = each;
    }
    choice = best.value_or(1);
  }
  return static_cast<int>(ranks.all_reduce_max(choice));
}

std::vector<QueueEntry> run_queue(const std::vector<PlannedRun>& plan, const QueueHooks& hooks) {
  const Teams teams{hooks.ranks, {hooks.ranks_per_run}};
  const Group team = teams.open();
  std::vector<QueueEntry> entries;
  bool stopped = false;
  for (std::size_t place = 0; place < plan.size(); ++place) {
    if (teams.of(place) != teams.own()) {
      entries.push_back({plan[place].name, plan[place].folder, Outcome::not_begun, "", {}, {}, 0});
      continue;
    }
    stopped = stopped || team.all_reduce_max(hooks.train.stop_signal ? hooks.train.stop_signal() : 0) != 0;
    QueueEntry entry;
    if (stopped) {
      entry.name = plan[place].name;
      entry.folder = plan[place].folder;
    } else {
      entry = Doing(plan[place], place, hooks, team).run();
      stopped = entry.outcome == Outcome::stopped;
    }
    if (hooks.end && team.root()) hooks.end(entry);
    entries.push_back(std::move(entry));
  }
  share_entries(teams, entries);
  return entries;
}

}  // namespace some
