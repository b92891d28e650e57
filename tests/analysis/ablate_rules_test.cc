// Knock-outs of key rules.
#include "analysis/knock_outs/ablate_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/tiny_run.h"
#include "expect_error.h"
#include "inference/key_learner.h"

namespace some {
namespace {

AblateRulesOptions few() {
  AblateRulesOptions options;
  options.learn_documents = 40;
  options.max_documents = 6;
  options.shuffles = 50;
  return options;
}

TEST(AblateRules, LeavesOutEachRuleAndRestoresTheKeys) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"some.alpha=0.5", "some.beta=0.2"}));
  const std::string rules = rules_text(run.recipe.model.keys);
  ASSERT_NE(rules.find("alpha,beta"), std::string::npos) << rules;
  const KeySnapshot before(*run.model);
  int calls = 0;
  AblateRulesOptions options = few();
  options.progress = [&](int done, int) { EXPECT_EQ(done, ++calls); };
  const AblateRulesReport report = ablate_rules(run, options);
  EXPECT_TRUE(before.bitwise_equal(*run.model));
  EXPECT_EQ(report.rules, rules);
  EXPECT_EQ(report.learn_documents, 40);
  EXPECT_GT(report.updates, 0);
  EXPECT_GT(report.moved, 0);
  const auto count = static_cast<std::size_t>(std::count(rules.begin(), rules.end(), ',') + 1);
  ASSERT_EQ(report.knock_outs.size(), count + 1);
  EXPECT_EQ(calls, static_cast<int>(count) + 2);
  EXPECT_EQ(report.knock_outs[0].without, "alpha");
  EXPECT_NE(report.knock_outs[0].moved, report.moved);
  const RuleKnockOut& none = report.knock_outs.back();
  EXPECT_EQ(none.without, "all");
  EXPECT_EQ(none.moved, 0);
  EXPECT_NE(none.change, 0);
  for (const RuleKnockOut& one : report.knock_outs) {
    EXPECT_GE(one.p, 1.0 / 51);
    EXPECT_LE(one.p, 1);
    EXPECT_GE(one.error, 0);
  }
  options.progress = {};
  EXPECT_EQ(to_json(ablate_rules(run, options)), to_json(report));
  // Stops after the first measurement.
  options.stop = [] { return true; };
  const AblateRulesReport stopped = ablate_rules(run, options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_TRUE(stopped.knock_outs.empty());
  EXPECT_TRUE(before.bitwise_equal(*run.model));
}

TEST(AblateRules, RefusesRunsWithoutRulesOrInitialKeys) {
  TemporaryFolder frozen, moving;
  OpenedRun still =
      open_tiny(train_tiny(frozen, {"some.use_alpha=false", "some.use_beta=false", "some.use_delta=false"}));
  EXPECT_TRUE(is_error(error_in([&] { ablate_rules(still, few()); }), Code::model_unsuitable));
  OpenedRun run = open_tiny(train_tiny(moving, {"some.alpha=0.5"}));
  std::filesystem::remove(run.paths.folder + "/keys/step-0.safetensors");
  EXPECT_TRUE(is_error(error_in([&] { ablate_rules(run, few()); }), Code::start_keys_missing));
}

}  // namespace
}  // namespace some
