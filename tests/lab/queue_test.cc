// The queue: skipping, resuming, failing, stopping.
#include "lab/queue.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/files/files.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "thread_ranks.h"

namespace some {
namespace {

namespace fs = std::filesystem;

class Queue : public ::testing::Test {
 protected:
  Queue() {
    fs::create_directories(recipes());
    const std::string tiny =
        "# tiny\n[model]\nd_model = 16\nlayers = 2\nheads = 2\nseq_len = 32\nnorm = \"pre\"\n[some]\nexperts = "
        "4\nd_ffn = 16\ntop_k = 2\n"
        "[data]\ntrain = \"builtin:stories\"\ntrain_documents = 40\nlong = \"cut\"\nvocab = 300\n[train]\nepochs = "
        "2\nbatch = "
        "8\nmeasure_every = 2\nthreads = 1\n";
    write("one", tiny);
    write("two", "# two\nbase = \"one.toml\"\nseed = 5\n");
    write("three", "# three\nbase = \"one.toml\"\n[some]\ntop_k = 1\n");
    write("away",
          "# away\nbase = \"one.toml\"\n[data]\ntrain = \"nowhere/train.txt\"\nvalid = \"nowhere/valid.txt\"\n");
    write("wild", "# wild\nbase = \"one.toml\"\n[train]\nlr = 1e30\nclip = 0.0\n");
    write("patient", "# patient\nbase = \"one.toml\"\n[train]\nlr = 1e-12\neval_every = 1\npatience = 1\n");
    write("warm", "# warm\nbase = \"one.toml\"\n[train]\nwarmup_steps = 5\n");
    write("index",
          "[[series]]\nname = \"all-of-them\"\nrecipes = [\"one\", \"two\", \"three\"]\n[[series]]\nname = "
          "\"bad\"\nrecipes = [\"away\", \"wild\", \"patient\"]\n[[series]]\nname = \"slow\"\nrecipes = [\"warm\"]\n");
    index_ = load_series_index(recipes() + "/index.toml");
    options_.runs = folder_ / "runs";
  }

  std::string recipes() { return folder_ / "recipes"; }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(recipes() + "/" + name + ".toml") << text;
  }
  std::string folder_of(const std::string& name) { return options_.runs + "/" + name; }
  std::vector<PlannedRun> plan(const std::vector<std::string>& names) { return plan_runs(index_, names, options_); }
  std::vector<std::string> outcomes(const std::vector<QueueEntry>& entries) {
    std::vector<std::string> out;
    for (const QueueEntry& entry : entries) out.push_back(entry.name + ": " + name_of(entry.outcome));
    return out;
  }

  TemporaryFolder folder_;
  SeriesIndex index_;
  LabOptions options_;
};

using Lines = std::vector<std::string>;

TEST_F(Queue, BuildsTheMemoryThatARecipeAsksFor) {
  options_.overrides = {"memory.slots=64", "memory.window=8"};
  QueueHooks hooks;
  bool reading = false;
  hooks.train.remember = [&](const std::string&, std::int64_t, std::int64_t) { reading = true; };
  hooks.train.stop_signal = [&] { return reading ? SIGTERM : 0; };
  const auto stopped = run_queue(plan({"one", "two"}), hooks);
  EXPECT_EQ(outcomes(stopped), (Lines{"one: stopped", "two: not begun"}));
  ASSERT_TRUE(stopped[0].result.memory);
  EXPECT_TRUE(stopped[0].result.memory->stopped);
  const auto whole = run_queue(plan({"one", "two"}), {});
  EXPECT_EQ(outcomes(whole), (Lines{"one: already done", "two: done"}));
  for (const QueueEntry& entry : whole) {
    ASSERT_TRUE(entry.result.memory) << entry.name;
    EXPECT_FALSE(entry.result.memory->stopped);
    EXPECT_TRUE(fs::exists(folder_of(entry.name) + "/memory.safetensors"));
  }
  // Without checkpoints nothing can be resumed: existing files stay unchanged.
  fs::remove_all(folder_of("one") + "/checkpoints");
  EXPECT_EQ(outcomes(run_queue(plan({"one"}), {})), (Lines{"one: already done"}));
}

TEST_F(Queue, SkipsWhatIsFinished) {
  EXPECT_EQ(outcomes(run_queue(plan({"one", "two"}), {})), (Lines{"one: done", "two: done"}));
  const auto written = fs::last_write_time(folder_of("one") + "/metrics.jsonl");
  EXPECT_EQ(outcomes(run_queue(plan({"all-of-them"}), {})),
            (Lines{"one: already done", "two: already done", "three: done"}));
  EXPECT_EQ(fs::last_write_time(folder_of("one") + "/metrics.jsonl"), written);
  const auto found = find_runs(options_.runs);
  ASSERT_EQ(found.size(), 3U);  // the cache folder is not a run
  EXPECT_EQ(found[0].name, "one");
  EXPECT_EQ(found[0].state, RunState::finished);
  // A finished run whose checkpoints were removed to save space is not trained again over its results.
  fs::remove_all(folder_of("one") + "/checkpoints");
  EXPECT_EQ(outcomes(run_queue(plan({"one"}), {})), (Lines{"one: already done"}));
  EXPECT_EQ(fs::last_write_time(folder_of("one") + "/metrics.jsonl"), written);
  // Neither is a run that stopped early.
  const auto stopped = run_queue(plan({"patient"}), {});
  ASSERT_TRUE(stopped[0].result.stopped_early);
  fs::remove_all(folder_of("patient") + "/checkpoints");
  EXPECT_EQ(outcomes(run_queue(plan({"patient"}), {})), (Lines{"patient: already done"}));
  // Without the line written at the end of a run, it cannot be recognized as finished.
  fs::remove(folder_of("one") + "/timing.jsonl");
  EXPECT_EQ(run_state(folder_of("one")), RunState::interrupted);
}

TEST_F(Queue, AnOverrideThatDoesNotFitNamesTheRun) {
  options_.overrides = {"some.experts=1"};
  EXPECT_ERROR((plan({"three", "one"})), Code::setting_out_of_range, "one", "some.top_k", "2", "1");
  options_.overrides = {"train.max_steps=2"};  // shortens the warm-up as well
  EXPECT_EQ(plan({"one", "warm"})[1].recipe.train.warmup_steps, 1);
}

TEST_F(Queue, InterruptingLosesNothing) {
  run_queue(plan({"one", "two"}), {});
  const std::string whole = read_file(folder_of("two") + "/metrics.jsonl");
  options_.runs = folder_ / "again";
  // The queue may be stopped at every step.
  std::vector<QueueEntry> entries;
  int sittings = 0;
  do {
    int steps = 0;
    QueueHooks hooks;
    hooks.train.step = [&](const TrainProgress&) { ++steps; };
    hooks.train.stop_signal = [&] { return steps >= 3 ? SIGINT : 0; };
    entries = run_queue(plan({"one", "two"}), hooks);
    ASSERT_LT(++sittings, 20);
    if (sittings == 1) {
      EXPECT_EQ(outcomes(entries), (Lines{"one: stopped", "two: not begun"}));
      EXPECT_EQ(entries[0].result.stopped_by, SIGINT);
      EXPECT_EQ(entries[0].result.steps, 3);
      EXPECT_EQ(find_runs(options_.runs).at(0).state, RunState::interrupted);
    }
  } while (entries[1].outcome != Outcome::resumed);
  EXPECT_GT(sittings, 3);
  EXPECT_EQ(outcomes(entries), (Lines{"one: already done", "two: resumed, done"}));
  EXPECT_EQ(read_file(folder_of("two") + "/metrics.jsonl"), whole);
}

TEST_F(Queue, ASignalWhileTextIsReadStopsBeforeTheRunBegins) {
  QueueHooks hooks;
  bool begun = false;
  hooks.begin = [&](const PlannedRun&, std::size_t, bool) { begun = true; };
  hooks.train.stop_signal = [&] { return begun ? SIGTERM : 0; };
  EXPECT_EQ(outcomes(run_queue(plan({"one", "two"}), hooks)), (Lines{"one: stopped", "two: not begun"}));
  EXPECT_TRUE(find_runs(options_.runs).empty());
  EXPECT_EQ(outcomes(run_queue(plan({"one"}), {})), (Lines{"one: done"}));
}

TEST_F(Queue, GoesOnWhenOneFails) {
  const auto entries = run_queue(plan({"away", "wild", "one"}), {});
  EXPECT_EQ(outcomes(entries), (Lines{"away: failed", "wild: failed", "one: done"}));
  EXPECT_EQ(entries[0].code, Code::data_missing) << entries[0].message;
  EXPECT_NE(entries[0].message.find("nowhere/train.txt"), std::string::npos) << entries[0].message;
  EXPECT_EQ(entries[1].code, Code::loss_not_finite) << entries[1].message;
  const auto wild = find_run(folder_of("wild"));
  ASSERT_TRUE(wild);
  EXPECT_EQ(wild->state_text(), "failed");
  EXPECT_EQ(wild->failure, entries[1].message);
}

TEST_F(Queue, ARunIsTrainedByOneProcessAtATime) {
  // A second queue starts while the first trains a run, and a file is left incomplete by a killed process.
  Lines second;
  QueueHooks hooks;
  hooks.train.step = [&](const TrainProgress& progress) {
    if (progress.step != 3) return;
    const auto entries = run_queue(plan({"one"}), {});
    second = outcomes(entries);
    EXPECT_EQ(entries[0].code, Code::run_locked) << entries[0].message;
  };
  fs::create_directories(folder_of("one"));
  std::ofstream(folder_of("one") + "/best.tmp-1-2") << "3";
  EXPECT_EQ(outcomes(run_queue(plan({"one"}), hooks)), (Lines{"one: done"}));
  EXPECT_EQ(second, (Lines{"one: failed"}));
  EXPECT_FALSE(fs::exists(folder_of("one") + "/best.tmp-1-2"));
  EXPECT_EQ(find_run(folder_of("one"))->failure, "");
}

TEST_F(Queue, GoesOnWhereItsOwnNoteCannotBeWritten) {
  run_queue(plan({"one"}), {});
  // A folder in place of the file prevents writing it, like a full disk, which may also affect the record of failures.
  fs::remove(folder_of("one") + "/lab.json");
  fs::create_directories(folder_of("one") + "/lab.json");
  fs::create_directories(folder_of("wild") + "/lab.json");
  EXPECT_EQ(outcomes(run_queue(plan({"one", "wild", "two"}), {})),
            (Lines{"one: already done", "wild: failed", "two: done"}));
}

TEST_F(Queue, OtherSettingsInTheSameFolderAreAnError) {
  options_.overrides = {"train.max_steps=2"};
  run_queue(plan({"one"}), {});
  options_.overrides = {};
  const auto entries = run_queue(plan({"one"}), {});
  EXPECT_EQ(outcomes(entries), (Lines{"one: failed"}));
  EXPECT_NE(entries[0].message.find("train.max_steps = 2 (0)"), std::string::npos) << entries[0].message;
  // Machine settings may differ.
  options_.overrides = {"train.max_steps=2", "train.threads=2"};
  EXPECT_EQ(outcomes(run_queue(plan({"one"}), {})), (Lines{"one: already done"}));
}

TEST_F(Queue, RanksShareRunsInTeams) {
  options_.overrides = {"train.accumulate=2", "train.batch=4"};
  run_queue(plan({"all-of-them"}), {});
  const std::string alone = options_.runs;
  // Four ranks for three runs and one that fails on all of its ranks: with one, two and four ranks per run.
  for (const int each : {1, 2, 4}) {
    options_.runs = folder_ / fmt::format("on-{}", each);
    if (each == 4) options_.overrides = {"train.accumulate=4", "train.batch=2"};
    const auto runs = plan({"one", "wild", "two", "three"});
    std::mutex mutex;
    std::vector<std::string> begun;
    std::vector<Lines> told(4);
    on_ranks(4, [&](const Group& group) {
      QueueHooks hooks;
      hooks.ranks = group;
      hooks.ranks_per_run = each;
      hooks.begin = [&](const PlannedRun& run, std::size_t, bool) {
        const std::lock_guard lock(mutex);
        begun.push_back(fmt::format("{} by {}", run.name, group.rank()));
      };
      told.at(static_cast<std::size_t>(group.rank())) = outcomes(run_queue(runs, hooks));
    });
    for (const Lines& one : told) EXPECT_EQ(one, (Lines{"one: done", "wild: failed", "two: done", "three: done"}));
    std::sort(begun.begin(), begun.end());
    EXPECT_EQ(begun, each == 1   ? (Lines{"one by 0", "three by 3", "two by 2", "wild by 1"})
                     : each == 2 ? (Lines{"one by 0", "three by 2", "two by 0", "wild by 2"})
                                 : (Lines{"one by 0", "three by 0", "two by 0", "wild by 0"}));
    EXPECT_NE(find_run(folder_of("wild"))->failure, "");
    if (each == 4) continue;
    for (const std::string name : {"one", "two", "three"})
      EXPECT_EQ(read_file(folder_of(name) + "/metrics.jsonl"), read_file(alone + "/" + name + "/metrics.jsonl"));
  }
}

TEST_F(Queue, AsManyRanksShareARunAsLeaveNoneWaiting) {
  const auto choose = [&](const Lines& names, int ranks, std::optional<int> asked = {}) {
    const auto runs = plan(names);
    std::vector<int> all(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](const Group& group) {
      all.at(static_cast<std::size_t>(group.rank())) = choose_ranks_per_run(runs, group, asked);
    });
    for (const int one : all) EXPECT_EQ(one, all[0]);
    return all[0];
  };
  EXPECT_EQ(choose({"one"}, 4), 1) << "one micro-batch a step cannot be shared";
  options_.overrides = {"train.accumulate=4", "train.batch=2"};
  EXPECT_EQ(choose({"one"}, 4), 4);
  EXPECT_EQ(choose({"one", "two"}, 4), 2);
  EXPECT_EQ(choose({"all-of-them"}, 4), 1);
  EXPECT_EQ(choose({"all-of-them"}, 2), 1);
  EXPECT_EQ(choose({"one"}, 8), 4);
  EXPECT_EQ(choose({"one", "two"}, 3), 1);
  EXPECT_EQ(choose({"all-of-them"}, 4, 2), 2);
  run_queue(plan({"two"}), {});
  EXPECT_EQ(choose({"one", "two"}, 4), 4) << "one of them is done";
  options_.overrides.push_back("train.expert_ranks=2");
  EXPECT_EQ(choose({"all-of-them"}, 4), 2) << "experts are on two ranks";
  const auto problem = [&](int ranks, int asked) {
    std::optional<Error> out;
    on_ranks(ranks, [&](const Group& group) {
      const auto error = error_in([&] { choose_ranks_per_run(plan_runs(index_, {"one"}, options_), group, asked); });
      if (group.root()) out = error;
    });
    return out;
  };
  EXPECT_TRUE(is_bad_input(problem(4, 3), Code::ranks_uneven, {"--ranks-per-run", "3", "4", "3", "1, 2, 4"}));
  EXPECT_TRUE(is_bad_input(problem(8, 8), Code::ranks_uneven, {"one", "train.accumulate", "4", "8"}));
}

TEST_F(Queue, PlansSeedsScalesAndText) {
  options_.seeds = 3;
  auto runs = plan({"two"});
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].name, "two");
  EXPECT_EQ(runs[2].name, "two-seed2");
  EXPECT_EQ(runs[2].recipe.seed, 7U);
  EXPECT_EQ(runs[2].recipe.model.seed, 7U);
  options_.seeds = 1;
  options_.scale = 0.25;
  options_.overrides = {"some.d_ffn=13"};
  runs = plan({"one"});
  EXPECT_EQ(runs[0].name, "one@0.25");
  EXPECT_EQ(runs[0].recipe.model.d_ffn, 13) << "what is asked for explicitly is not scaled";
  options_.overrides = {};
  options_.builtin = true;
  runs = plan({"away"});
  EXPECT_EQ(runs[0].recipe.data.train, "builtin:stories");
  EXPECT_EQ(runs[0].recipe.data.valid, "builtin:stories");
  EXPECT_TRUE(runs[0].identity.builtin);
  options_.builtin = false;
  EXPECT_ERROR(plan({"away"}), Code::data_missing, "away@0.25", "data.train");
  EXPECT_NO_THROW(plan({"away", "one"}));
  options_.train = folder_ / "mine.txt";
  EXPECT_ERROR(plan({"one"}), Code::data_missing, options_.train);
  std::ofstream(options_.train) << "text\n";
  EXPECT_EQ(plan({"away"})[0].recipe.data.train, options_.train);
  EXPECT_EQ(plan({"away"})[0].recipe.data.valid, "");
}

TEST_F(Queue, AFolderOfRunsThatCannotBeReadIsAnError) {
  EXPECT_TRUE(find_runs(options_.runs, {}).empty());  // does not exist yet
  run_queue(plan({"one"}), {});
  // An unreadable run is reported and hides no other run.
  fs::create_symlink("not mounted", folder_of("two"));
  std::vector<LogMessage> warnings;
  const Log log([&](const LogMessage& message) { warnings.push_back(message); });
  const std::vector<RunListEntry> found = find_runs(options_.runs, log);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "one");
  EXPECT_TRUE(has_warning(warnings, Code::run_unlisted, {folder_of("two")}));
  EXPECT_ERROR(run_state(folder_of("two")), Code::link_broken, folder_of("two"));
  fs::rename(options_.runs, options_.runs + "-away");
  fs::create_symlink("not mounted", options_.runs);
  EXPECT_ERROR((find_runs(options_.runs, {})), Code::link_broken, options_.runs);
}

TEST(LabNames, TellRecipeScaleAndSeed) {
  for (const LabIdentity& identity : {LabIdentity{"a4", 1, 0, false}, LabIdentity{"v3.5", 0.05, 0, false},
                                      LabIdentity{"a6-warm", 1, 2, false}, LabIdentity{"1-v10", 0.001, 11, false}}) {
    const LabIdentity read = parse_run_name(run_name(identity));
    EXPECT_EQ(read.recipe, identity.recipe);
    EXPECT_EQ(read.scale, identity.scale);
    EXPECT_EQ(read.seed, identity.seed);
  }
  EXPECT_EQ(parse_run_name("my-seedling").recipe, "my-seedling");
  EXPECT_EQ(parse_run_name("a@home").recipe, "a@home");
}

}  // namespace
}  // namespace some
