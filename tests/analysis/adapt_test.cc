#include "analysis/adapt.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/inspect.h"
#include "analysis/tiny_run.h"
#include "core/files/files.h"
#include "expect_error.h"
#include "inference/generate.h"
#include "inference/key_learner.h"
#include "runs/checkpoint.h"

namespace some {
namespace {

AdaptOptions recipes() {
  AdaptOptions options;
  options.data = "builtin:recipes";
  options.max_documents = 12;
  options.max_eval_documents = 6;
  return options;
}

TEST(Adapt, FrozenKeysStayTheSameToTheBit) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const KeySnapshot before(*run.model);
  AdaptOptions options = recipes();
  options.frozen = true;
  const nlohmann::json whole = to_json(adapt_run(run, options));
  EXPECT_TRUE(before.bitwise_equal(*run.model));
  EXPECT_TRUE(whole["frozen"]["keys_identical"].get<bool>());
  EXPECT_FALSE(whole.contains("active"));
  EXPECT_FALSE(whole["new"].contains("after"));
  // Every token of the stream is predicted once for every window; reading with the cache gives the same loss.
  for (const std::int64_t window : {7, 63, 64, 100000}) {
    options.window = window;
    const nlohmann::json parts = to_json(adapt_run(run, options));
    EXPECT_EQ(parts["frozen"]["tokens"], whole["frozen"]["tokens"]) << window;
    EXPECT_EQ(parts["frozen"]["bytes"], whole["frozen"]["bytes"]) << window;
    EXPECT_NEAR(parts["frozen"]["loss"].get<double>(), whole["frozen"]["loss"].get<double>(), 1e-4) << window;
    if (window < 64) {
      const auto& list = parts["frozen"]["windows"];
      for (std::size_t i = 0; i + 1 < list.size(); ++i) EXPECT_EQ(list[i]["tokens"], window);
    }
    if (window == 100000) {
      EXPECT_EQ(parts["frozen"]["windows"].size(), 1u);
    }
  }
  EXPECT_EQ(whole["frozen"]["tokens"], whole["stream"]["tokens"]);
}

TEST(Adapt, EachRuleMovesKeysAndOnlyItsOwnWay) {
  TemporaryFolder folder;
  const std::string path = train_tiny(folder);
  AdaptOptions options = recipes();
  std::map<std::string, double> moved;
  for (const char* rules : {"", "alpha", "beta", "delta", "alpha,beta,delta"}) {
    OpenedRun run = open_tiny(path);
    options.rules = rules;
    const nlohmann::json report = to_json(adapt_run(run, options));
    EXPECT_TRUE(report["frozen"]["keys_identical"].get<bool>());
    EXPECT_EQ(report["active"]["windows"].size(), report["frozen"]["windows"].size());
    EXPECT_EQ(report["active"]["tokens"], report["frozen"]["tokens"]);
    // The first window is read before anything was learned: both readings agree on it.
    EXPECT_EQ(report["active"]["windows"][0]["loss"], report["frozen"]["windows"][0]["loss"]);
    EXPECT_EQ(report["updates"].get<std::size_t>(), report["active"]["windows"].size());
    moved[rules] = report["layers"][0]["key_moved"]["mean"].get<double>();
    // The model's own settings are restored.
    EXPECT_EQ(run.model->config().keys.use_beta, run.recipe.model.keys.use_beta);
  }
  EXPECT_GT(moved["alpha"], 0);
  EXPECT_GT(moved["beta"], 0);
  EXPECT_NE(moved["alpha"], moved["beta"]);
  EXPECT_NE(moved["alpha"], moved["alpha,beta,delta"]);
  EXPECT_EQ(moved[""], moved["alpha,beta,delta"]);  // as this run was trained
}

TEST(Adapt, FrozenLayersNeverMove) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"some.frozen_layers=[1]"}));
  AdaptOptions options = recipes();
  options.window = 20;
  const nlohmann::json report = to_json(adapt_run(run, options));
  EXPECT_GT(report["layers"][0]["key_moved"]["mean"].get<double>(), 0);
  EXPECT_EQ(report["layers"][1]["key_moved"]["max"].get<double>(), 0);
}

TEST(Adapt, SavesARunThatOpensWithTheNewKeys) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  AdaptOptions options = recipes();
  options.window = 100;
  options.out = folder / "adapted";
  const AdaptReport report = adapt_run(run, options);
  OpenedRun adapted = open_tiny(options.out);
  EXPECT_EQ(adapted.step, run.step + report.updates);
  for (std::size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(read_vector(adapted.model->layers()[l].keys.keys), read_vector(run.model->layers()[l].keys.keys));
    EXPECT_EQ(read_vector(adapted.model->layers()[l].keys.usage), read_vector(run.model->layers()[l].keys.usage));
    EXPECT_EQ(adapted.model->layers()[l].keys.steps, run.model->layers()[l].keys.steps);
  }
  EXPECT_EQ(read_vector(adapted.model->parameters().value), read_vector(run.model->parameters().value));
  EXPECT_TRUE(run_is_finished(options.out));
  EXPECT_NE(read_file(options.out + "/adapt.html").find("Gain from learning"), std::string::npos);
  EXPECT_EQ(xml_problem(plot_adaptation(report)), "");
  EXPECT_GE(list_key_positions(options.out).size(), 2u);
  InspectOptions inspect;
  inspect.layer = 0;
  EXPECT_GT(inspect_run(adapted, inspect).layers.at(0).measures.key_moved.value().mean, 0);
  EXPECT_ERROR(adapt_run(run, options), Code::path_exists, "--out", options.out);
}

// A killed adaptation leaves OUT.writing, and the same command starts again. Files of other origin are not removed.
TEST(Adapt, AKilledOneIsRepeated) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  AdaptOptions options = recipes();
  options.window = 100;
  options.out = folder / "adapted/";
  folder.write("adapted.writing/keys/step-1.safetensors", "half");
  folder.write("adapted.writing/tokenizer.json.tmp-1-0", "half");
  folder.write("adapted.writing/notes.txt", "mine");
  EXPECT_ERROR(adapt_run(run, options), Code::path_exists, "--out", "notes.txt");
  EXPECT_EQ(read_file(folder / "adapted.writing/notes.txt"), "mine");
  std::filesystem::remove(folder / "adapted.writing/notes.txt");
  adapt_run(run, options);
  EXPECT_FALSE(std::filesystem::exists(folder / "adapted.writing"));
  EXPECT_FALSE(std::filesystem::exists(folder / "adapted/keys/step-1.safetensors"));
  open_tiny(folder / "adapted");
  // An invalid text leaves nothing behind.
  options.out = folder / "other";
  options.data = folder / "absent.txt";
  EXPECT_ERROR(adapt_run(run, options), Code::file_not_found, options.data);
  EXPECT_FALSE(std::filesystem::exists(folder / "other.writing"));
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

TEST(Adapt, ThePictureShowsBothLossesAndTheGain) {
  AdaptReport report;
  report.run = "runs/<x>";
  report.from_step = 5;
  report.data = "a & b";
  report.rules = "alpha";
  report.updates = 400;
  for (const int windows : {0, 1, 3, 400}) {
    report.frozen = {};
    report.active.emplace();
    for (int i = 0; i < windows; ++i) {
      report.frozen.windows.push_back({10, 40, 30.0});
      report.active->windows.push_back({10, 40, 30.0 - 0.01 * i});
    }
    const std::string both = plot_adaptation(report);
    EXPECT_EQ(xml_problem(both), "") << windows;
    for (const char* words : {"frozen keys", "learning keys", "tokens read", "gain (nats/token)"})
      EXPECT_NE(both.find(words), std::string::npos) << words;
    AdaptReport only = report;
    only.active.reset();
    EXPECT_EQ(xml_problem(plot_adaptation(only)), "");
    EXPECT_EQ(plot_adaptation(only).find("learning keys"), std::string::npos);
  }
}

TEST(Adapt, OneLongTextIsReadWhole) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  std::string text;
  for (int i = 0; i < 120; ++i) text += "The dog ran to the house and saw a bird. ";
  AdaptOptions options;
  options.data = folder.write("long.txt", text);
  options.frozen = true;
  const nlohmann::json report = to_json(adapt_run(run, options));
  // All tokens except the first of the stream and of the held-out fifth (an end token is added to the document).
  const auto tokens = static_cast<std::int64_t>(run.tokenizer.encode(text.substr(0, text.size() - 1)).size()) + 1;
  EXPECT_NEAR(static_cast<double>(report["frozen"]["tokens"].get<std::int64_t>() +
                                  report["new"]["before"]["tokens"].get<std::int64_t>()),
              static_cast<double>(tokens - 2), 2);
  EXPECT_GT(report["stream"]["pieces"].get<int>(), 1);
}

TEST(Adapt, TellsWhatIsWrong) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  AdaptOptions options = recipes();
  options.data = folder / "absent.txt";
  EXPECT_ERROR(adapt_run(run, options), Code::file_not_found, options.data);
  options.data = folder.write("empty.txt", "");
  EXPECT_ERROR(adapt_run(run, options), Code::text_empty, options.data);
  options.data = folder.write("blank.txt", "\n  \n");
  EXPECT_ERROR(adapt_run(run, options), Code::text_empty, options.data);
  options.data = folder.write("short.txt", "a");
  EXPECT_ERROR(adapt_run(run, options), Code::text_too_short, options.data);
  options.data = "builtin:nonsense";
  EXPECT_ERROR(adapt_run(run, options), Code::text_unknown, options.data);
  options.data.clear();
  EXPECT_ERROR(adapt_run(run, options), Code::argument_missing);
  options = recipes();
  options.rules = "alpha,gamma";
  EXPECT_ERROR(adapt_run(run, options), Code::rule_unknown, "--rules", "gamma");
  options.rules = "alpha";
  options.frozen = true;
  EXPECT_ERROR(adapt_run(run, options), Code::option_conflict, "--frozen");
  options.rules.clear();
  options.out = folder / "copy";
  EXPECT_ERROR(adapt_run(run, options), Code::option_conflict, "--out");
  EXPECT_FALSE(std::filesystem::exists(options.out));
  options = recipes();
  options.window = -1;
  EXPECT_ERROR(adapt_run(run, options), Code::option_invalid, "--window", "-1");
}

TEST(Adapt, TextOfUnknownTokensIsRefused) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"data.tokenizer=\"whitespace\"", "train.max_steps=2"}));
  AdaptOptions options;
  options.data =
      folder.write("runes.txt", "\xE1\x9A\xA0\xE1\x9A\xA2 \xE1\x9A\xA6\n<|endoftext|>\n\xE1\x9A\xA8 \xE1\x9A\xB1\n");
  EXPECT_ERROR(adapt_run(run, options), Code::data_nothing_to_predict, options.data);
  AdaptOptions dense = recipes();
  TemporaryFolder other;
  OpenedRun without = open_tiny(train_tiny(other, {"model.ffn=\"none\"", "train.max_steps=1"}));
  EXPECT_ERROR(adapt_run(without, dense), Code::experts_missing, without.paths.folder, "none");
}

TEST(GenerateKeys, AdaptsOnlyWhenAsked) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const std::vector<std::string> prompts{"Once upon a time there was a dog", "The bird"};
  GenerateOptions options;
  options.max_tokens = 20;
  options.stop_at_eos = false;
  const KeySnapshot start(*run.model);
  const auto frozen = generate(*run.model, run.tokenizer, prompts, options);
  EXPECT_TRUE(start.bitwise_equal(*run.model));
  // With a window longer than everything read and generated, no update happens, and reading in pieces changes nothing.
  options.adapt_window = 100000;
  const auto waiting = generate(*run.model, run.tokenizer, prompts, options);
  EXPECT_TRUE(start.bitwise_equal(*run.model));
  for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(waiting[i].tokens, frozen[i].tokens);
  options.adapt_window = 4;
  generate(*run.model, run.tokenizer, prompts, options);
  EXPECT_FALSE(start.bitwise_equal(*run.model));
  EXPECT_GT(start.distance(*run.model, 0).mean, 0);
  // Repeating it from the same state gives the same result.
  const KeySnapshot once(*run.model);
  start.restore(*run.model);
  EXPECT_TRUE(start.bitwise_equal(*run.model));
  generate(*run.model, run.tokenizer, prompts, options);
  EXPECT_TRUE(once.bitwise_equal(*run.model));
}

TEST(Rules, AreChosenByName) {
  KeySettings settings;
  settings.use_delta = false;
  EXPECT_EQ(rules_text(choose_rules(settings, "")), "alpha,beta");
  EXPECT_EQ(rules_text(choose_rules(settings, "delta,alpha")), "alpha,delta");
  settings.use_alpha = settings.use_beta = false;
  EXPECT_EQ(rules_text(settings), "none");
  settings.balance_rate = 0.002;
  EXPECT_EQ(rules_text(settings), "balance");
  EXPECT_EQ(rules_text(choose_rules(settings, "alpha")), "alpha");
  for (const char* bad : {"alpha,", "Alpha", "all", ",", "alpha beta"})
    EXPECT_ERROR(choose_rules(settings, bad), Code::rule_unknown, "--rules", bad);
}

}  // namespace
}  // namespace some
