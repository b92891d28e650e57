// Knock-outs of memory slots by word class.
#include "analysis/knock_outs/ablate_slots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/assignments.h"
#include "analysis/tiny_run.h"
#include "expect_error.h"
#include "train/remember.h"

namespace some {
namespace {

TEST(AblateSlots, ComparesEachClassWithRandomSlots) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"memory.slots=600"}));
  Memory memory = open_memory(run, run.paths.memory());
  AblateSlotsOptions options;
  options.max_documents = 5;
  options.draws = 4;
  int calls = 0;
  options.progress = [&](int done, int) { EXPECT_EQ(done, ++calls); };
  const AblateSlotsReport report = ablate_slots(run, memory, options);
  EXPECT_EQ(report.slots, slots_in_use(memory));
  ASSERT_GT(report.knock_outs.size(), 3U);
  EXPECT_EQ(calls, static_cast<int>(report.knock_outs.size()) * 4);
  std::int64_t slots = 0;
  for (const SlotKnockOut& one : report.knock_outs) {
    slots += one.slots;
    EXPECT_GT(one.slots, 0);
    EXPECT_TRUE(std::isfinite(one.change));
    EXPECT_GE(one.control_deviation, 0);
    EXPECT_GE(one.p, 1.0 / 5);
    EXPECT_LE(one.p, 1);
  }
  EXPECT_EQ(slots, report.slots);
  EXPECT_NE(report.loss, report.without_slots);
  // The memory is restored afterwards, and the numbers equal those of an evaluation with it.
  const AnalysisText text = load_analysis_text(run, "", 5);
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.max_documents = 5;
  how.memory = &memory;
  EXPECT_EQ(evaluate(*run.model, text.data, how).loss, report.loss);
  options.progress = {};
  EXPECT_EQ(to_json(ablate_slots(run, memory, options)), to_json(report));
}

TEST(AblateSlots, RefusesAnEmptyMemory) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"memory.slots=600"}));
  Memory memory = open_memory(run, run.paths.memory());
  prune(*run.ctx, memory, 1000000);
  EXPECT_TRUE(is_error(error_in([&] { ablate_slots(run, memory, {}); }), Code::memory_settings));
}

}  // namespace
}  // namespace some
