// Settings that change with the step: active experts per token, temperature, and the interval of key updates.
#include "recipe/schedule.h"

#include <gtest/gtest.h>

#include <set>

#include "runs/checkpoint.h"
#include "temporary_folder.h"
#include "tensor/safetensors.h"
#include "train/trainer.h"

namespace some {
namespace {

TEST(Schedule, OneExpertForTheFirstShareOfTheSteps) {
  ModelConfig model;
  model.top_k = 4;
  model.topk_warmup = 0.25;
  for (std::int64_t step = 0; step < 20; ++step) EXPECT_EQ(scheduled_top_k(model, step, 20), step < 5 ? 1 : 4) << step;
  model.topk_warmup = 0;
  EXPECT_EQ(scheduled_top_k(model, 0, 20), 4);
}

TEST(Schedule, TemperatureFallsByEqualStepsAnEpoch) {
  ModelConfig model;
  model.train_temp = 1.0;
  EXPECT_EQ(scheduled_temperature(model, 3, 4), 1.0);
  model.train_temp_end = 0.2;
  for (int epoch = 0; epoch < 4; ++epoch) EXPECT_DOUBLE_EQ(scheduled_temperature(model, epoch, 4), 1.0 - 0.2 * epoch);
}

// Returns the steps after which the keys of the first layer had changed.
std::set<std::int64_t> steps_that_moved(const std::vector<std::string>& overrides) {
  TemporaryFolder folder;
  std::vector<std::string> all{"train.max_steps=7",      "train.save_keys_every=1", "data.train_documents=80",
                               "data.valid_documents=8", "data.vocab=320",          "train.device=cpu"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  start_run(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml", all), folder / "run", {});
  std::set<std::int64_t> moved;
  std::string before;
  for (const CheckpointName& one : list_key_positions(folder / "run")) {
    const Tensor keys = SafetensorsFile::open(one.folder).load("layers.0.keys");
    const std::string now(static_cast<const char*>(keys.raw()), keys.bytes());
    if (!before.empty() && now != before) moved.insert(one.step);
    before = now;
  }
  return moved;
}

TEST(Schedule, KeysAreUpdatedEverySoManySteps) {
  EXPECT_EQ(steps_that_moved({}), (std::set<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(steps_that_moved({"some.update_every=3"}), (std::set<std::int64_t>{1, 4, 7}));
  EXPECT_EQ(steps_that_moved({"some.frozen_layers=[0]"}), (std::set<std::int64_t>{}));
}

}  // namespace
}  // namespace some
