// Runs in stages: several texts one after another.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/files/files.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "train/initialize_from.h"
#include "train/small_run.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const char* const stages_text = R"(
[[stage]]
title = "tales"
[[stage]]
title = "outside"
data.train = "builtin:nature"
train.epochs = 1
train.lr = 0.002
some.key_ema = 0.7
some.top_k = 1
[[stage]]
data.train = "builtin:stories"
train.max_steps = 3
some.use_beta = false
)";

Recipe staged(const std::vector<std::string>& overrides = {}) {
  return parse_recipe(recipe_text() + stages_text, "test recipe", overrides);
}

std::vector<nlohmann::json> lines_of(const std::string& run, const std::string& kind) {
  std::vector<nlohmann::json> out;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    if (auto one = nlohmann::json::parse(line); one["kind"] == kind) out.push_back(one);
  }
  return out;
}

TEST(Stages, AreReadAndWrittenBack) {
  const Recipe recipe = staged();
  const std::vector<Recipe> each = stage_recipes(recipe);
  ASSERT_EQ(each.size(), 3u);
  EXPECT_EQ(each[0].data.train, "builtin:stories");
  EXPECT_EQ(each[1].data.train, "builtin:nature");
  EXPECT_EQ(each[1].model.top_k, 1);
  EXPECT_EQ(each[2].model.top_k, 2);
  EXPECT_EQ(each[2].train.max_steps, 3);
  EXPECT_FALSE(each[2].model.keys.use_beta);
  EXPECT_EQ(stage_name(recipe, 2), "stage 3");
  const Recipe again = parse_recipe(write_recipe(recipe), "written", {});
  EXPECT_EQ(write_recipe(again), write_recipe(recipe));
  EXPECT_TRUE(recipe_differences(recipe, again).empty());
  EXPECT_EQ(recipe_differences(staged({"stage.2.train.lr=0.5"}), recipe),
            (std::vector<std::string>{"stage.2.train.lr = 0.5 (0.002)"}));
  // An override without a stage applies to every stage.
  for (const Recipe& one : stage_recipes(staged({"train.lr=0.5", "train.max_steps=2"}))) {
    EXPECT_EQ(one.train.lr, 0.5);
    EXPECT_EQ(one.train.max_steps, 2);
  }
  // One number for all layers.
  EXPECT_EQ(stage_recipes(staged({"stage.1.some.beta_layer_scale=0.5"}))[0].model.keys.beta_layer_scale,
            (std::vector<double>{0.5, 0.5}));
}

TEST(Stages, NonsenseIsRefusedWithItsPlace) {
  const auto refused = [](const std::string& text, Code code, const std::vector<std::string>& values,
                          const std::vector<std::string>& overrides = {}) {
    EXPECT_TRUE(is_bad_input(error_in([&] { parse_recipe(text, "x.toml", overrides); }), code, values)) << text;
  };
  refused("[[stage]]\nmodel.d_model = 8", Code::setting_misplaced, {"x.toml:2", "stage.1.", "model.d_model"});
  refused("[[stage]]\ndata.vocab = 300", Code::setting_misplaced, {"stage.1.", "data.vocab"});
  refused("[[stage]]\ntrain.threads = 3", Code::setting_misplaced, {"stage.1.", "train.threads"});
  refused("[[stage]]\nseed = 3", Code::setting_misplaced, {"stage.1.", "seed"});
  refused("[[stage]]\ntrain.lrr = 3", Code::setting_unknown, {"train.lrr", "train.lr"});
  refused("[[stage]]\n[stage.trian]\nlr = 3", Code::setting_unknown, {"trian", "[train]"});
  refused("[[stage]]\ntitle = 3", Code::setting_type, {"stage.1."});
  refused("[[stage]]\ntrain.lr = -1", Code::setting_out_of_range, {"train.lr"});
  refused("[stage]\ntitle = \"x\"", Code::setting_type, {"stage"});
  refused("stage = [1]", Code::setting_type, {"stage"});
  refused("[[stage]]\nsome.top_k = 100", Code::setting_out_of_range, {"x.toml:2", "stage.1", "some.top_k", "100"});
  refused("[[stages]]\ntitle = \"x\"", Code::setting_unknown, {"stages"});
  refused("", Code::stage_unknown, {"1"}, {"stage.1.train.lr=1"});
  refused("[[stage]]\n", Code::stage_unknown, {"2"}, {"stage.2.train.lr=1"});
  refused("[[stage]]\n", Code::setting_syntax, {"override stage.train.lr=1"}, {"stage.train.lr=1"});
  refused("[[stage]]\n", Code::setting_syntax, {"override stage=1"}, {"stage=1"});
  refused("[[stage]]\n", Code::setting_misplaced, {"stage.1.", "seed"}, {"stage.1.seed=1"});
}

TEST(Stages, FollowOneAnother) {
  TemporaryFolder folder;
  const std::string run = folder / "run";
  std::vector<std::string> ended;
  TrainHooks hooks;
  hooks.stage_ended = [&](const StageReport& report) { ended.push_back(report.stage.title); };
  const TrainResult result = start_run(staged(), run, hooks);
  EXPECT_EQ(ended, (std::vector<std::string>{"tales", "outside", "stage 3"}));
  EXPECT_EQ(result.steps, 10 + 5 + 3);
  EXPECT_FALSE(result.stopped_early);
  ASSERT_EQ(result.stage_ends.size(), 3u);
  EXPECT_EQ(result.stage_ends[1].step, 15);
  EXPECT_EQ(result.data.stages.size(), 3u);
  EXPECT_EQ(read_run_data(RunPaths{run})->stages.size(), 3u);
  // Every stage's text is evaluated after every stage.
  const auto ends = lines_of(run, "stage");
  ASSERT_EQ(ends.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(ends[i]["texts"].size(), 3u);
    EXPECT_EQ(ends[i]["stage"], i + 1);
    for (std::size_t j = 0; j < 3; ++j)
      EXPECT_EQ(ends[i]["texts"][j]["compared"].get<double>(), result.stage_ends[i].losses[j]);
    EXPECT_EQ(result.stage_ends[i].losses[0], result.stage_ends[i].losses[2]);  // the same text
  }
  // Each stage has its own schedule: the learning rate restarts at the top.
  for (const auto& line : lines_of(run, "train")) {
    EXPECT_EQ(line["stage"], line["step"] <= 10 ? 1 : line["step"] <= 15 ? 2 : 3);
    if (line["step"] == 12) {
      EXPECT_DOUBLE_EQ(line["lr"].get<double>(), 0.002 * 0.5 * (1 + std::cos(std::numbers::pi / 5)));
    }
  }
  double epoch = 0;
  for (const auto& line : lines_of(run, "eval")) {
    EXPECT_GE(line["epoch"], epoch);
    epoch = line["epoch"];
  }
  // The last checkpoint of each stage is kept, records its stage, and opens with that stage's settings.
  for (const std::int64_t step : {10, 15, 18}) {
    const CheckpointName checkpoint = find_checkpoint(run, std::to_string(step));
    EXPECT_EQ(read_checkpoint_state(checkpoint)["stage"], step == 10 ? 1 : step == 15 ? 2 : 3);
  }
  OpenOptions open;
  open.checkpoint = "15";
  open.device = on_cpu;
  const OpenedRun opened = open_run(run, open);
  EXPECT_EQ(opened.recipe.data.train, "builtin:nature");
  EXPECT_EQ(opened.model->config().top_k, 1);
  EXPECT_TRUE(opened.model->layers()[0].keys.average);
}

TEST(Stages, OneTokenizerFromAllTexts) {
  TemporaryFolder folder;
  start_run(staged(), folder / "run", stop_after(1));
  start_run(recipe(), folder / "first", stop_after(1));
  EXPECT_NE(file_bytes(folder / "run/tokenizer.json"), file_bytes(folder / "first/tokenizer.json"));
  // A single stage without settings is a run without stages, except for the names.
  const Recipe one = parse_recipe(recipe_text() + "[[stage]]\n", "test recipe", {});
  start_run(one, folder / "one", {});
  start_run(recipe(), folder / "none", {});
  EXPECT_EQ(file_bytes(folder / "one/tokenizer.json"), file_bytes(folder / "none/tokenizer.json"));
  const auto weights = [&](const char* run) {
    return SafetensorsFile::open(find_checkpoint(folder / run, "latest").folder + "/model.safetensors")
        .content_digest();
  };
  EXPECT_EQ(weights("one"), weights("none"));
}

TEST(Stages, StopAndGoOnAnywhereBitIdentical) {
  TemporaryFolder folder;
  start_run(staged(), folder / "whole", {});
  for (const int stop : {3, 9, 10, 11, 15, 16, 17}) {
    const std::string run = folder / fmt::format("{}", stop);
    EXPECT_EQ(start_run(staged(), run, stop_after(stop)).steps, stop);
    const TrainResult result = resume_run(run, {}, {});
    EXPECT_EQ(result.stage_ends.size(), 3u);
    expect_same_run(folder / "whole", run);
  }
  // Killed without warning, in the second stage and at its border.
  struct Killed {};
  for (const int kill : {11, 13}) {
    TrainHooks hooks;
    hooks.step = [&](const TrainProgress& p) {
      if (p.step == kill) throw Killed();
    };
    const std::string run = folder / fmt::format("killed-{}", kill);
    EXPECT_THROW(start_run(staged(), run, hooks), Killed);
    resume_run(run, {}, {});
    expect_same_run(folder / "whole", run);
  }
}

TEST(Stages, AStageThatStopsEarlyMakesRoomForTheNext) {
  TemporaryFolder folder;
  const std::vector<std::string> still{"some.use_alpha=false", "some.use_beta=false",      "some.use_delta=false",
                                       "train.weight_decay=0", "some.respawn_threshold=0", "stage.1.train.patience=2",
                                       "train.eval_every=1",   "stage.1.train.lr=1e-12"};
  const TrainResult result = start_run(staged(still), folder / "run", {});
  EXPECT_LT(result.stage_ends[0].step, 10);
  EXPECT_EQ(result.steps, result.stage_ends[0].step + 5 + 3);
  start_run(staged(still), folder / "stopped", stop_after(static_cast<int>(result.stage_ends[0].step) + 2));
  resume_run(folder / "stopped", {}, {});
  expect_same_run(folder / "run", folder / "stopped");
}

TEST(Stages, TheLastOneCanBeMadeLonger) {
  TemporaryFolder folder;
  start_run(staged(), folder / "run", {});
  fs::copy(folder / "run", folder / "stopped", fs::copy_options::recursive);
  EXPECT_EQ(resume_run(folder / "run", {{"train.max_steps=5"}, {}}, {}).steps, 20);
  EXPECT_EQ(stage_recipes(read_run_recipe(folder / "run"))[0].train.max_steps, 0);
  resume_run(folder / "stopped", {{"stage.3.train.max_steps=5"}, {}}, stop_after(1));
  resume_run(folder / "stopped", {}, {});
  expect_same_run(folder / "run", folder / "stopped");
  EXPECT_ERROR((resume_run(folder / "run", {{"stage.1.train.epochs=9"}, {}}, {})), Code::resume_refused,
               "stage.1.train.epochs=9");
}

TEST(Stages, GoTogetherWithFrom) {
  TemporaryFolder folder;
  start_run(recipe(), folder / "source", {});
  start_run(staged(), folder / "whole", {}, FromOptions{folder / "source", "latest", true});
  start_run(staged(), folder / "stopped", stop_after(12), FromOptions{folder / "source", "latest", true});
  resume_run(folder / "stopped", {}, {});
  expect_same_run(folder / "whole", folder / "stopped");
  // A run can also be initialized from a stage of another run, with the settings of that stage.
  const FromOptions second{folder / "whole", "15"};
  const Recipe on = source_recipe(second, {"train.lr=0.001"});
  EXPECT_EQ(on.data.train, "builtin:nature");
  EXPECT_TRUE(on.stages.empty());
  EXPECT_EQ(on.train.lr, 0.001);
  EXPECT_EQ(start_run(on, folder / "on", {}, second).steps, 5);
}

}  // namespace
}  // namespace some
