// Continuing from existing runs: a longer run, a new run from another run's weights, several texts one after another.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run_command.h"
#include "core/files/files.h"

namespace some {
namespace {

using Json = nlohmann::json;

const std::string recipes = std::string(SOME_SOURCE_DIR) + "/recipes";

class GoOn : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    ASSERT_EQ(some({"train", recipes + "/tiny.toml", "train.max_steps=6"}).code, 0);
  }
  static void TearDownTestSuite() { delete folder_; }
  static CommandResult some(const std::vector<std::string>& arguments) {
    return run_command(folder_->path(), arguments);
  }
  static void refused(const std::vector<std::string>& arguments, Code code, const std::vector<std::string>& words) {
    const CommandResult result = some(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_TRUE(says(result, code, words));
  }
  static TemporaryFolder* folder_;
};
TemporaryFolder* GoOn::folder_ = nullptr;

TEST_F(GoOn, OptionsThatDoNotGoTogetherAreRefused) {
  refused({"train", "--from", "runs/tiny"}, Code::option_needs_another, {"--from", "runs/tiny"});
  refused({"train", "--from", "nowhere", "--out", "x"}, Code::run_not_found, {"nowhere"});
  refused({"train", "--from", "runs/tiny", "--resume", "runs/tiny"}, Code::option_conflict, {"--resume", "--from"});
  refused({"train", "tiny", "--resume", "runs/tiny"}, Code::option_conflict, {"tiny"});
  refused({"train", "tiny", "--with-optimizer"}, Code::option_needs_another, {"--with-optimizer", "--from"});
  refused({"train", "--resume", "runs/tiny", "--from-checkpoint", "best"}, Code::option_needs_another,
          {"--from-checkpoint", "--from"});
  refused({"train", "--from", "runs/tiny", "--from-step", "3", "--out", "x"}, Code::option_needs_another,
          {"--from-step"});
  refused({"train", "--from", "runs/tiny", "--from-checkpoint", "worst", "--out", "x"}, Code::option_invalid,
          {"--checkpoint", "worst"});
  refused({"train", "--from", "runs/tiny", "--out", "runs/tiny"}, Code::run_exists, {"runs/tiny"});
  refused({"train", "--from", "runs/tiny", "model.layers=3", "some.d_ffn=8", "--out", "x"}, Code::from_mismatch,
          {"model.layers = 3 (2)", "some.d_ffn = 8 (48)"});
  refused({"train", "--resume", "runs/tiny", "train.lr=1"}, Code::resume_refused, {"train.lr=1", "runs/tiny"});
  refused({"train", recipes + "/continual.toml", "stage.4.train.lr=1"}, Code::stage_unknown,
          {"stage.4.train.lr=1", "4"});
}

TEST_F(GoOn, FromAnotherRun) {
  const CommandResult result =
      some({"train", "--from", "runs/tiny/", "data.train=builtin:nature", "train.max_steps=4", "--out", "runs/on"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("data.train = \"builtin:nature\" (\"builtin:stories\")"), std::string::npos) << result.err;
  const CommandResult info = some({"info", "runs/on", "--json"});
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_EQ(Json::parse(info.out)["from"]["run"], "runs/tiny");
  EXPECT_EQ(Json::parse(info.out)["from"]["step"], 6);
  EXPECT_NE(some({"info", "runs/on"}).out.find("from         runs/tiny, step 6"), std::string::npos);
  EXPECT_NE(some({"compare", "runs/tiny", "runs/on"}).out.find("runs/tiny, step 6"), std::string::npos);
}

TEST_F(GoOn, ALongerRun) {
  ASSERT_EQ(some({"train", recipes + "/tiny.toml", "train.max_steps=4", "--out", "runs/short"}).code, 0);
  const CommandResult again = some({"train", "--resume", "runs/short"});
  EXPECT_NE(again.err.find("train.epochs=N"), std::string::npos) << again.err;
  const CommandResult longer = some({"train", "--resume", "runs/short", "train.max_steps=6", "--json"});
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_EQ(Json::parse(longer.out)["steps"], 6);
  EXPECT_NE(longer.err.find("train.max_steps = 6 (4)"), std::string::npos) << longer.err;
}

TEST_F(GoOn, SeveralTextsInTurn) {
  const std::vector<std::string> small{"model.d_model=32",         "model.layers=2",         "model.heads=2",
                                       "model.seq_len=64",         "some.experts=8",         "some.d_ffn=48",
                                       "data.train_documents=60",  "data.valid_documents=8", "data.vocab=400",
                                       "train.max_steps=3",        "train.warmup_steps=1",   "train.eval_every=2",
                                       "stage.2.train.max_steps=4"};
  const auto with_small = [&](std::vector<std::string> words) {
    words.insert(words.end(), small.begin(), small.end());
    return words;
  };
  const CommandResult info = some(with_small({"info", recipes + "/continual.toml", "--json"}));
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_EQ(Json::parse(info.out)["steps"], 10);
  EXPECT_EQ(Json::parse(info.out)["stages"][1]["title"], "nature");
  EXPECT_EQ(Json::parse(info.out)["stages"][1]["settings"]["data.train"], "\"builtin:nature\"");
  const CommandResult told = some(with_small({"info", recipes + "/continual.toml"}));
  EXPECT_NE(told.out.find("stage 2    nature: 4 steps"), std::string::npos) << told.out;
  const CommandResult result = some(with_small({"train", recipes + "/continual.toml"}));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("after nature"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("stage 3 (recipes)"), std::string::npos) << result.err;
  const CommandResult json = some({"train", "--resume", "runs/continual", "--json"});
  EXPECT_EQ(Json::parse(json.out)["stages"][2]["losses"].size(), 3u);
  // Every command that reads runs accepts this one.
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"info", "runs/continual"},
                                             {"eval", "runs/continual"},
                                             {"eval", "runs/continual", "--checkpoint", "7"},
                                             {"inspect", "runs/continual"},
                                             {"runs"},
                                             {"compare", "runs/tiny", "runs/continual", "--html", "compare.html"},
                                             {"adapt", "runs/continual", "--data", "builtin:letters", "--max-documents",
                                              "5", "--max-eval-documents", "3", "--out", "runs/adapted"},
                                             {"eval", "runs/adapted"},
                                             {"generate", "runs/continual", "--prompt", "The", "--max-tokens", "3"}}) {
    const CommandResult looked = some(command);
    EXPECT_EQ(looked.code, 0) << command[0] << "\n" << looked.err;
  }
  const std::string page = read_file(folder_->path() + "/compare.html");
  for (const char* part : {"Validation loss", "Training loss", "runs/continual", "Settings that differ"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(some({"settings", "stage"}).out.find("stage.title"), std::string::npos);
  // Names used by other programs, also if they are part of another word (frozen_layers).
  const std::string layers = some({"settings", "n_layer"}).out;
  EXPECT_NE(layers.find("model.layers"), std::string::npos);
  EXPECT_EQ(layers.find("frozen_layers"), std::string::npos);
  EXPECT_NE(some({"settings", "dropout"}).out.find("model.dropout"), std::string::npos);
  EXPECT_NE(some({"settings", "attention_dropout"}).err.find("model.dropout"), std::string::npos);
}

}  // namespace
}  // namespace some
