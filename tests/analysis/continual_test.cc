#include "analysis/continual/continual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "plot/document.h"
#include "tiny_run.h"
#include "train/remember.h"

namespace some {
namespace {

TEST(ContinualMeasures, AreThoseOfTheMatrix) {
  // Two texts learned after the own one.
  const ContinualMeasures measures = measures_of({{2.0, 5.0, 6.0}, {2.5, 3.0, 5.5}, {3.0, 3.4, 4.0}});
  EXPECT_DOUBLE_EQ(measures.average, (3.0 + 3.4 + 4.0) / 3);
  EXPECT_DOUBLE_EQ(measures.forgetting, ((3.0 - 2.0) + (3.4 - 3.0)) / 2);
  EXPECT_DOUBLE_EQ(measures.backward, ((2.0 - 3.0) + (3.0 - 3.4)) / 2);
  EXPECT_DOUBLE_EQ(measures.forward, ((5.0 - 5.0) + (6.0 - 5.5)) / 2);
  // A text that improves later: nothing is forgotten of it, but below what it was.
  EXPECT_DOUBLE_EQ(measures_of({{2.0, 5.0}, {1.5, 4.0}}).forgetting, -0.5);
  EXPECT_DOUBLE_EQ(measures_of({{2.0, 5.0}, {1.5, 4.0}}).backward, 0.5);
}

class Continual : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    run_ = train_tiny(*folder_, {"train.max_steps=250", "train.epochs=40", "data.train_documents=200"});
  }
  static void TearDownTestSuite() { delete folder_; }
  static ContinualOptions small() {
    ContinualOptions options;
    options.texts = {"builtin:nature", "builtin:recipes"};
    options.tokens = 1200;
    options.test_tokens = 240;
    options.settings.batch = 4;
    options.settings.rate = 0.002;
    options.choices.slots = 256;
    return options;
  }
  static std::map<ContinualMethod, ContinualResult> by_method(const ContinualOrder& order) {
    std::map<ContinualMethod, ContinualResult> out;
    for (const ContinualResult& one : order.results) out[one.method] = one;
    return out;
  }
  static TemporaryFolder* folder_;
  static std::string run_;
};
TemporaryFolder* Continual::folder_ = nullptr;
std::string Continual::run_;

TEST_F(Continual, EveryMethodLearnsAndBeginsWithTheSameModel) {
  OpenedRun run = open_tiny(run_);
  ContinualOptions options = small();
  options.both_orders = true;
  const ContinualReport report = measure_continual(run, options);
  ASSERT_EQ(report.orders.size(), 2u);
  EXPECT_EQ(report.orders[0].texts, (std::vector<std::string>{"own text", "builtin:nature", "builtin:recipes"}));
  EXPECT_EQ(report.orders[1].texts, (std::vector<std::string>{"own text", "builtin:recipes", "builtin:nature"}));
  const auto results = by_method(report.orders[0]), reversed = by_method(report.orders[1]);
  ASSERT_EQ(results.size(), static_cast<std::size_t>(continual_methods));
  const std::vector<double> begin = results.at(ContinualMethod::finetune).losses[0];
  for (const auto& [method, one] : results) {
    ASSERT_EQ(one.losses.size(), 3u) << name_of(method);
    for (std::size_t j = 1; j < 3; ++j) EXPECT_LT(one.losses[j][j], one.losses[0][j]) << name_of(method);
    if (method == ContinualMethod::dynamic || method == ContinualMethod::counter) continue;
    // An empty memory takes its part of the probability.
    const bool memory = method == ContinualMethod::slots || method == ContinualMethod::contexts;
    for (std::size_t j = 0; j < 3; ++j)
      EXPECT_NEAR(one.losses[0][j], begin[j], memory ? 0.2 : 0) << name_of(method) << j;
    EXPECT_EQ(one.losses[0][1], reversed.at(method).losses[0][2]) << "the order does not matter before learning";
  }
  // Small models learn small texts faster in exact counts than by gradients.
  EXPECT_LT(results.at(ContinualMethod::contexts).measures.average,
            results.at(ContinualMethod::slots).measures.average);
  EXPECT_EQ(results.at(ContinualMethod::finetune).kept_bytes, 0);
  EXPECT_EQ(results.at(ContinualMethod::lora).kept_bytes, 0);
  EXPECT_GT(results.at(ContinualMethod::ewc).kept_bytes, report.model_bytes);
  EXPECT_EQ(results.at(ContinualMethod::replay_1).kept_bytes, results.at(ContinualMethod::replay_10).kept_bytes);
  EXPECT_GE(results.at(ContinualMethod::replay_10).kept_bytes, 2 * 3 * 1200);

  const std::string page = continual_page({report, report});
  EXPECT_NE(page.find("memory, slots and contexts"), std::string::npos);
  EXPECT_NE(page.find("order-2-methods"), std::string::npos);
  const auto summary = summarize({report, report});
  EXPECT_EQ(summary[1][0].mean.average, report.orders[1].results[0].measures.average);
  EXPECT_EQ(summary[1][0].deviation.average, 0);
  ContinualReport other = report;
  other.orders[0].texts[1] = "another";
  EXPECT_TRUE(is_bad_input(error_in([&] { summarize({report, other}); }), Code::option_conflict));
}

TEST_F(Continual, ThePenaltyOfEwcKeepsTheModelWhereItWas) {
  OpenedRun run = open_tiny(run_);
  ContinualOptions options = small();
  options.texts = {"builtin:recipes"};
  options.settings.epochs = 4;
  options.methods = {ContinualMethod::finetune, ContinualMethod::ewc};
  std::map<double, std::map<ContinualMethod, ContinualResult>> found;
  for (const double weight : {0.0, 10.0, 1e6}) {
    options.settings.ewc = weight;
    found[weight] = by_method(measure_continual(run, options).orders[0]);
  }
  const auto moved = [&](double weight, std::size_t text) {
    const auto& losses = found[weight].at(ContinualMethod::ewc).losses;
    return losses[1][text] - losses[0][text];
  };
  EXPECT_EQ(found[0.0].at(ContinualMethod::ewc).losses, found[0.0].at(ContinualMethod::finetune).losses);
  EXPECT_LT(moved(10, 0), moved(0, 0)) << "less is forgotten of the own text";
  EXPECT_GT(moved(10, 1), moved(0, 1)) << "and less is learned";
  EXPECT_LT(std::abs(moved(1e6, 0)), std::abs(moved(0, 0)) / 2);
}

TEST_F(Continual, ReplayAndLowRankForgetLess) {
  OpenedRun run = open_tiny(run_);
  ContinualOptions options = small();
  options.texts = {"builtin:recipes"};
  options.settings.epochs = 6;
  options.methods = {ContinualMethod::finetune, ContinualMethod::replay_10, ContinualMethod::slots,
                     ContinualMethod::contexts};
  const auto results = by_method(measure_continual(run, options).orders[0]);
  const double finetune = results.at(ContinualMethod::finetune).measures.forgetting;
  EXPECT_GT(finetune, 0);
  for (const ContinualMethod method : {ContinualMethod::replay_10, ContinualMethod::slots, ContinualMethod::contexts})
    EXPECT_LT(results.at(method).measures.forgetting, finetune) << name_of(method);
}

TEST_F(Continual, DynamicEvaluationReturnsToWhatItWas) {
  OpenedRun run = open_tiny(run_);
  ContinualSettings settings;
  settings.dynamic_rate = 1e-3;
  settings.memory = default_memory_settings(run);
  const TokenData data = load_tokens(*run.ctx, "builtin:recipes", run.recipe.data, run.tokenizer, 20, "");
  const TokenStream text = stream_of(data, 500);
  const auto learner = make_learner(run, ContinualMethod::dynamic, settings, 32);
  const double first = learner->loss(text), again = learner->loss(text);
  EXPECT_EQ(first, again);
  const double frozen = loss_on(*run.model, nullptr, text, 32, document_end(run));
  EXPECT_LT(first, frozen) << "it learns while it is tested";
  learner->learn("recipes", text);
  EXPECT_LT(learner->loss(text), first);
}

TEST_F(Continual, IsTheSameOnAnyNumberOfThreads) {
  ContinualOptions options = small();
  options.tokens = 600;
  options.texts = {"builtin:recipes"};
  std::vector<std::string> found;
  for (const int threads : {1, 3}) {
    OpenedRun run = open_run(run_, {"latest", on_cpu, {}, make_host(threads)});
    nlohmann::json json = to_json(measure_continual(run, options));
    for (nlohmann::json& method : json["orders"][0]["methods"]) {
      method.erase("seconds");
      method.erase("test_seconds");
    }
    found.push_back(json.dump());
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST_F(Continual, RefusesWhatCannotBeMeasured) {
  OpenedRun run = open_tiny(run_);
  const auto refused = [&](const auto& change) {
    ContinualOptions options = small();
    change(options);
    return error_in([&] { measure_continual(run, options); });
  };
  EXPECT_TRUE(is_bad_input(refused([](auto& o) { o.texts.clear(); }), Code::argument_missing));
  EXPECT_TRUE(is_bad_input(refused([](auto& o) { o.tokens = 5; }), Code::option_invalid, {"--tokens", "5"}));
  EXPECT_TRUE(is_bad_input(refused([](auto& o) { o.settings.rank = 0; }), Code::option_invalid, {"--rank", "0"}));
  EXPECT_TRUE(is_bad_input(refused([](auto& o) { o.settings.rate = -1; }), Code::option_invalid, {"--rate", "-1"}));
  EXPECT_TRUE(is_bad_input(refused([&](auto& o) { o.texts = {folder_->write("brief.txt", "A word.\n")}; }),
                           Code::data_nothing_to_predict));
  ContinualOptions options = small();
  int asked = 0;
  options.stop = [&asked] { return ++asked > 2; };
  const ContinualReport stopped = measure_continual(run, options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.orders[0].results.size(), 2u);
}

}  // namespace
}  // namespace some
