// Training on the GPU: steps replayed as CUDA graphs, and runs that change the device when resumed.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "model/sample.h"
#include "other_values.h"
#include "runs/checkpoint.h"
#include "temporary_folder.h"
#include "tensor/device.h"
#include "train/step.h"
#include "train/trainer.h"

namespace some {
namespace {

#define NEEDS_GPU() \
  if (!some::cuda::available()) GTEST_SKIP() << "needs a GPU: " << some::cuda::unavailable_reason_text()

ModelConfig step_config() {
  ModelConfig c = medium_config();
  c.seq_len = 32;
  c.keys.decay_warmup = 9;  // starts in the middle
  return c;
}

Batch step_batch(const ModelConfig& config, int rows, int number) {
  Batch batch;
  batch.offsets.push_back(0);
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < config.seq_len; ++p) {
      batch.tokens.push_back((3 + p * p * 7 + p * number + 5 * r) % config.vocab);
      batch.positions.push_back(p);
    }
    for (int p = 0; p < config.seq_len; ++p) {
      const std::size_t at = static_cast<std::size_t>(r * config.seq_len + p);
      batch.targets.push_back(p + 1 < config.seq_len ? batch.tokens[at + 1] : -1);
      batch.predicted += p + 1 < config.seq_len;
    }
    batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  }
  batch.longest = config.seq_len;
  batch.slots = batch.real_tokens = batch.size();
  return batch;
}

// Rows of different lengths without padding, 8 * seq_len tokens at most. Batches of consecutive numbers differ in their
// number of tokens; there are three length classes.
Batch unpadded_batch(const ModelConfig& config, int rows, int number) {
  const Batch padded = step_batch(config, rows, number);
  Batch batch;
  batch.offsets.push_back(0);
  for (int r = 0; r < rows; ++r) {
    const int length = config.seq_len - (r * 5 + number) % 7 - 9 * (number % 3);
    for (int p = 0; p < length; ++p) {
      const auto at = static_cast<std::size_t>(r * config.seq_len + p);
      batch.tokens.push_back(padded.tokens[at]);
      batch.positions.push_back(p);
      batch.targets.push_back(p + 1 < length ? padded.targets[at] : -1);
      batch.predicted += p + 1 < length;
    }
    batch.longest = std::max<std::int64_t>(batch.longest, length);
    batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  }
  batch.slots = static_cast<std::int64_t>(rows) * config.seq_len;
  batch.real_tokens = batch.size();
  return batch;
}

std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu);
  return {static_cast<const char*>(host.raw()), host.bytes()};
}

struct Trained {
  std::string outcomes, value, compute, first, second, keys;
  std::vector<std::int64_t> key_steps;
  std::int64_t replayed = 0;
};

// Runs steps whose rates change all the time, with changes of top-k, temperature and batch size, and an evaluation in
// between that takes more memory than a step.
Trained train(const ModelConfig& config, const std::string& precision, bool graphs, bool padded = true) {
  std::shared_ptr<Context> ctx = make_context("cuda", precision);
  Model model(ctx, config, true);
  TrainStep step(model, TrainConfig(), padded, {.graphs = graphs, .early_bytes = {}});
  Trained out;
  for (int i = 0; i < 30; ++i) {
    StepPlan plan;
    plan.step = i;
    plan.lr = 1e-3 * (1 + i % 7);
    plan.top_k = i < 6 ? 1 : config.top_k;
    plan.temperature = i < 20 ? 0.8 : 0.6;
    plan.progress = i / 29.0;
    const int rows = i == 13 ? 3 : 8;
    const std::vector<Batch> batches(i == 17 ? 2 : 1,
                                     padded ? step_batch(config, rows, i) : unpadded_batch(config, rows, i));
    out.outcomes += bytes_of(step.run(batches, plan));
    if (i == 24) {
      ctx->arena->reset();
      model.evaluate(upload(*ctx, step_batch(config, 400, i)), {});
    }
  }
  ParameterStore& p = model.parameters();
  out.value = bytes_of(p.value);
  out.compute = bytes_of(p.compute);
  out.first = bytes_of(p.first);
  out.second = bytes_of(p.second);
  if (config.ffn == Ffn::some) {
    for (Layer& layer : model.layers()) {
      out.keys += bytes_of(layer.keys.keys) + bytes_of(layer.keys.usage) + bytes_of(layer.keys.mass) +
                  bytes_of(layer.keys.counts);
      if (layer.keys.choice_bias) out.keys += bytes_of(layer.keys.choice_bias);
      out.key_steps.push_back(layer.keys.steps);
    }
    for (const Tensor& counts : model.epoch_counts()) out.keys += bytes_of(counts);
  }
  out.replayed = step.replayed();
  return out;
}

struct StepVariant : Variant {
  bool repeats;  // steps can be recorded as a graph
};

class RecordedStep : public testing::TestWithParam<StepVariant> {};

TEST_P(RecordedStep, GivesTheBitsOfThePlainOne) {
  NEEDS_GPU();
  ModelConfig config = step_config();
  GetParam().change(config);
  for (const auto& [precision, padded] :
       {std::pair("bf16", true), std::pair("fp32", true), std::pair("bf16", false), std::pair("fp32", false)}) {
    SCOPED_TRACE(fmt::format("{} {}", precision, padded ? "padded" : "unpadded"));
    const Trained plain = train(config, precision, false, padded), recorded = train(config, precision, true, padded);
    EXPECT_EQ(plain.replayed, 0);
    // Unpadded steps have three length classes.
    EXPECT_TRUE(GetParam().repeats ? recorded.replayed >= (padded ? 10 : 2) : recorded.replayed == 0)
        << recorded.replayed;
    EXPECT_TRUE(plain.outcomes == recorded.outcomes) << "losses or gradient norms";
    EXPECT_TRUE(plain.value == recorded.value) << "parameters";
    EXPECT_TRUE(plain.compute == recorded.compute) << "their copy";
    EXPECT_TRUE(plain.first == recorded.first && plain.second == recorded.second) << "moments";
    EXPECT_TRUE(plain.keys == recorded.keys) << "keys";
    EXPECT_EQ(plain.key_steps, recorded.key_steps);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RecordedStep,
    testing::Values(
        StepVariant{"published", [](ModelConfig&) {}, true},
        StepVariant{"pre_rope", [](ModelConfig& c) { c.norm = Norm::pre, c.position = Position::rope; }, true},
        StepVariant{"dense", [](ModelConfig& c) { c.ffn = Ffn::dense; }, true},
        StepVariant{"lora", [](ModelConfig& c) { c.training = ExpertTraining::lora; }, true},
        StepVariant{"full", [](ModelConfig& c) { c.training = ExpertTraining::full; }, true},
        StepVariant{"every_second", [](ModelConfig& c) { c.keys.update_every = 2; }, true},
        StepVariant{"frozen_layer", [](ModelConfig& c) { c.keys.frozen_layers = {1}, c.keys.key_ema = 0.9; }, true},
        StepVariant{"losses",
                    [](ModelConfig& c) {
                      c.balance_loss = 0.1, c.entropy_low = 0.1, c.entropy_high = 0.2,
                      c.temperature = Temperature::learned, c.ground = 0.2;
                      c.output_proj = OutputProj::linear;
                    },
                    true},
        StepVariant{"readin_narrow",
                    [](ModelConfig& c) { c.input_proj = true, c.output_proj = OutputProj::features, c.query_dim = 20; },
                    true},
        StepVariant{"modulated_look_back",
                    [](ModelConfig& c) { c.output_proj = OutputProj::modulated, c.conv = 3, c.query_dim = 16; }, true},
        StepVariant{"modulated_listen",
                    [](ModelConfig& c) {
                      c.output_proj = OutputProj::modulated, c.modulation = ModulationPlace::additive,
                      c.token_shift = 3;
                    },
                    true},
        StepVariant{"dense_look_back", [](ModelConfig& c) { c.ffn = Ffn::dense, c.conv = 3; }, true},
        StepVariant{"balanced",
                    [](ModelConfig& c) {
                      c.keys.balance_rate = 0.01;
                      c.keys.use_alpha = c.keys.use_beta = c.keys.use_delta = false;
                    },
                    true},
        StepVariant{"dropout", [](ModelConfig& c) { c.dropout = 0.2; }, true},
        StepVariant{"partitions", [](ModelConfig& c) { c.key_partitions = 4, c.key_probe = 2; }, true},
        StepVariant{"random_routing", [](ModelConfig& c) { c.routing = RoutingKind::hash; }, true},
        StepVariant{"rebirth",
                    [](ModelConfig& c) { c.keys.respawn_threshold = 0.9, c.keys.constraint = Constraint::clamp; },
                    false},
        StepVariant{"fraction", [](ModelConfig& c) { c.keys.update_fraction = 0.5; }, false},
        StepVariant{"annealed",
                    [](ModelConfig& c) {
                      c.keys.beta_anneal = {AnnealShape::linear, 1.0, 0.2};
                    },
                    false}),
    [](const auto& info) { return info.param.name; });

// The rows that extend an unpadded batch to its length class change no sum over tokens: the gradients are those of the
// batch alone, within rounding, and the counts of choices are equal.
TEST(UnpaddedStep, GivesTheGradientsOfItsTokensOnly) {
  NEEDS_GPU();
  ModelConfig config = step_config();
  config.balance_loss = 0.1;
  config.output_proj = OutputProj::linear;
  const Batch batch = unpadded_batch(config, 7, 1);
  std::shared_ptr<Context> ctx = make_context("cuda", "fp32");
  Model stepped(ctx, config, true), passed(ctx, config, true);
  TrainStep step(stepped, TrainConfig(), false);
  StepPlan plan;
  plan.lr = 1e-3;
  const std::vector<double> outcome = read_vector(step.run(std::span(&batch, 1), plan));

  StepSettings settings = plan;
  settings.loss_scale = 1.0 / static_cast<double>(batch.predicted);
  settings.keys = passed.plan_keys(0, 0);
  Schedule schedule(*ctx);
  passed.clear_gradients(*ctx);
  passed.clear_key_sums(*ctx);
  ctx->arena->reset();
  const std::vector<double> nll = read_vector(passed.train_pass(schedule, upload(*ctx, batch), settings));
  double loss = 0;
  for (const double one : nll) loss += one * settings.loss_scale;
  EXPECT_NEAR(outcome[0], loss, 1e-5 * loss);
  const std::vector<double> actual = read_vector(stepped.parameters().grad),
                            expected = read_vector(passed.parameters().grad);
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  EXPECT_GT(length, 0);
  EXPECT_LT(std::sqrt(difference / length), 1e-5);
  for (std::size_t layer = 0; layer < passed.layers().size(); ++layer) {
    EXPECT_EQ(read_vector(stepped.key_sums()[layer].slot_counts), read_vector(passed.key_sums()[layer].slot_counts));
    EXPECT_EQ(read_vector(stepped.key_sums()[layer].positions), read_vector(passed.key_sums()[layer].positions));
  }
}

// A CUDA graph repeats the numbers it was recorded with. Changes every setting that a rule declares while steps are
// being replayed, and changes it back: results must be bit-identical to steps that were never recorded.
TEST(RecordedSteps, FollowEverySettingOfTheRules) {
  NEEDS_GPU();
  ModelConfig config = step_config();
  config.keys.decay_warmup = 2;
  config.keys.clip_delta = 0.4;
  config.keys.key_ema = 0.5;
  config.keys.balance_rate = 0.01;
  config.keys.theta_percentile = 0.5;
  const auto train_with = [&](const Setting<KeySettings>& setting, const SettingValue& value, bool graphs,
                              std::int64_t& replayed) {
    std::shared_ptr<Context> ctx = make_context("cuda", "fp32");
    Model model(ctx, config, true);
    TrainStep step(model, TrainConfig(), true, {.graphs = graphs, .early_bytes = {}});
    KeySettings changed = config.keys;
    setting.set(changed, value);
    std::string bytes;
    for (int i = 0; i < 24; ++i) {
      if (i == 8) model.set_key_settings(changed);
      if (i == 16) model.set_key_settings(config.keys);
      StepPlan plan;
      plan.step = i;
      plan.lr = 1e-3;
      plan.progress = i / 23.0;
      const std::vector<Batch> batches(1, step_batch(config, 8, i));
      bytes += bytes_of(step.run(batches, plan));
      for (Layer& layer : model.layers()) {
        visit_key_state(layer.keys, [&](const std::string&, Tensor& tensor) { bytes += bytes_of(tensor); });
        bytes += fmt::format(" {}", layer.keys.steps);
      }
    }
    replayed = step.replayed();
    return bytes;
  };
  for (const Setting<KeySettings>& setting : key_settings()) {
    for (const SettingValue& value : other_values(setting, setting.get(config.keys), config.layers)) {
      std::int64_t none = 0, some = 0;
      const std::string plain = train_with(setting, value, false, none),
                        recorded = train_with(setting, value, true, some);
      EXPECT_EQ(none, 0);
      EXPECT_GE(some, 6) << setting.name;
      EXPECT_TRUE(plain == recorded) << setting.name;
    }
  }
}

const char* const recipe_text = R"(
seed = 5
[model]
d_model = 32
layers = 2
heads = 2
seq_len = 48
[some]
experts = 6
d_ffn = 32
top_k = 2
decay_warmup = 8
[data]
train = "builtin:stories"
train_documents = 48
long = "cut"
valid_documents = 8
vocab = 320
[train]
epochs = 3
batch = 4
lr = 0.003
measure_every = 1
eval_every = 7
checkpoint_every = 5
)";

Recipe recipe(const std::vector<std::string>& overrides) { return parse_recipe(recipe_text, "test recipe", overrides); }

TrainHooks stop_after(int steps) {
  TrainHooks hooks;
  hooks.stop_signal = [done = 0, steps]() mutable { return ++done >= steps ? SIGTERM : 0; };
  return hooks;
}

struct Line {
  std::string kind;
  std::int64_t step;
  double loss;
};

std::vector<Line> lines_of(const std::string& run) {
  std::vector<Line> out;
  std::ifstream in(run + "/metrics.jsonl");
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    out.push_back({line.at("kind"), line.at("step"), line.value("loss", line.value("train_loss", 0.0))});
  }
  return out;
}

TEST(TrainerOnGpu, ARunGoesOnOnTheOtherDevice) {
  NEEDS_GPU();
  for (const char* pads : {"data.count_pads=true", "data.count_pads=false"}) {
    TemporaryFolder folder;
    const auto on = [&](const char* device) {
      return recipe({fmt::format("train.device=\"{}\"", device), "train.precision=\"fp32\"", pads});
    };
    start_run(on("cpu"), folder / "cpu", {});
    EXPECT_EQ(start_run(on("cpu"), folder / "to-cuda", stop_after(13)).steps, 13);
    resume_run(folder / "to-cuda", {{"train.device=\"cuda\""}, {}}, {});
    EXPECT_EQ(start_run(on("cuda"), folder / "to-cpu", stop_after(13)).steps, 13);
    resume_run(folder / "to-cpu", {{"train.device=\"cpu\""}, {}}, {});
    const std::vector<Line> expected = lines_of(folder / "cpu");
    for (const char* run : {"to-cuda", "to-cpu"}) {
      SCOPED_TRACE(fmt::format("{} {}", run, pads));
      EXPECT_TRUE(run_is_finished(folder / run));
      const std::vector<Line> actual = lines_of(folder / run);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(actual[i].kind, expected[i].kind);
        EXPECT_EQ(actual[i].step, expected[i].step);
        // Different data or lost moments would differ by far more.
        EXPECT_NEAR(actual[i].loss, expected[i].loss, 2e-3 * expected[i].loss)
            << expected[i].kind << " " << expected[i].step;
      }
    }
  }
}

TEST(TrainerOnGpu, AStoppedAndResumedRunEndsBitIdentical) {
  NEEDS_GPU();
  for (const char* pads : {"data.count_pads=true", "data.count_pads=false"}) {
    SCOPED_TRACE(pads);
    TemporaryFolder folder;
    const Recipe same = recipe({"train.device=\"cuda\"", pads});
    start_run(same, folder / "whole", {});
    for (const int stop : {1, 11, 19}) {
      const std::string run = folder / fmt::format("stopped-{}", stop);
      EXPECT_EQ(start_run(same, run, stop_after(stop)).steps, stop);
      resume_run(run, {}, {});
      EXPECT_EQ(read_file(run + "/metrics.jsonl"), read_file(folder / "whole/metrics.jsonl")) << stop;
      const std::string last = list_checkpoints(run).back().folder,
                        other = list_checkpoints(folder / "whole").back().folder;
      EXPECT_TRUE(read_file(last + "/model.safetensors") == read_file(other + "/model.safetensors")) << stop;
    }
  }
}

}  // namespace
}  // namespace some
