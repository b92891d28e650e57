// Two models in one process, each with its own context and thread: results are bit-identical to those of a single
// model, and each writes to its own log.
#include <gtest/gtest.h>

#include <barrier>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "model/sample.h"
#include "runs/checkpoint.h"
#include "temporary_folder.h"
#include "tensor/device.h"
#include "train/step.h"
#include "train/trainer.h"

namespace some {
namespace {

std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu);
  return {static_cast<const char*>(host.raw()), host.bytes()};
}

// Runs both functions concurrently, starting at the same moment.
void together(const std::function<void()>& one, const std::function<void()>& other) {
  std::barrier start(2);
  std::thread second([&] {
    start.arrive_and_wait();
    other();
  });
  start.arrive_and_wait();
  one();
  second.join();
}

struct TrainedModel {
  std::string device, precision;
  int threads;
  ModelConfig config;
};

// Padded rows, so that steps are replayed as CUDA graphs on a GPU.
Batch batch_of(const ModelConfig& config, int number) {
  std::vector<std::vector<std::int32_t>> rows;
  for (int r = 0; r < 6; ++r) {
    std::vector<std::int32_t> row;
    for (int p = 0; p < config.seq_len - r; ++p) row.push_back((3 + p * p * 7 + p * number + 5 * r) % config.vocab);
    rows.push_back(row);
  }
  return rows_batch(rows, config.seq_len, true);
}

// Returns losses, parameters, moments and keys after some steps.
std::string trained(const TrainedModel& setup, int steps) {
  std::shared_ptr<Context> ctx = make_context(setup.device, setup.precision, make_host(setup.threads));
  Model model(ctx, setup.config, true);
  TrainStep step(model, TrainConfig(), true);
  std::string out;
  for (int i = 0; i < steps; ++i) {
    StepPlan plan;
    plan.step = i;
    plan.lr = 1e-3 * (1 + i % 3);
    const std::vector<Batch> batches{batch_of(setup.config, i)};
    out += bytes_of(step.run(batches, plan));
  }
  const ParameterStore& p = model.parameters();
  out += bytes_of(p.value) + bytes_of(p.first) + bytes_of(p.second);
  for (Layer& layer : model.layers()) out += bytes_of(layer.keys.keys) + bytes_of(layer.keys.usage);
  return out;
}

void expect_the_bits_of_each_alone(const TrainedModel& one, const TrainedModel& other) {
  constexpr int steps = 12;
  const std::string one_alone = trained(one, steps), other_alone = trained(other, steps);
  EXPECT_NE(one_alone, other_alone);
  for (int round = 0; round < 3; ++round) {
    std::string first, second;
    together([&] { first = trained(one, steps); }, [&] { second = trained(other, steps); });
    EXPECT_TRUE(first == one_alone) << "round " << round;
    EXPECT_TRUE(second == other_alone) << "round " << round;
  }
}

ModelConfig other_config() {
  ModelConfig c = medium_config();
  c.seed = 11;
  c.d_model = 48;
  c.experts = 6;
  c.norm = Norm::pre;
  return c;
}

TEST(TwoModels, GiveTheBitsOfEachAlone) {
  expect_the_bits_of_each_alone({"cpu", "fp32", 1, medium_config()}, {"cpu", "fp32", 3, other_config()});
  expect_the_bits_of_each_alone({"cpu", "fp32", 2, medium_config()}, {"cpu", "f64", 5, other_config()});
}

TEST(TwoModels, OnOneGpu) {
  if (!some::cuda::available()) GTEST_SKIP() << "needs a GPU: " << some::cuda::unavailable_reason_text();
  expect_the_bits_of_each_alone({"cuda", "bf16", 1, medium_config()}, {"cuda", "fp32", 2, other_config()});
  expect_the_bits_of_each_alone({"cuda", "bf16", 1, medium_config()}, {"cpu", "fp32", 2, other_config()});
}

TEST(TwoModels, OnTwoGpus) {
  if (const std::string why = some::cuda::unusable_reason(1); !why.empty()) GTEST_SKIP() << "needs two GPUs: " << why;
  const TrainedModel first{"cuda:0", "bf16", 1, medium_config()};
  TrainedModel second = first;
  second.device = "cuda:1";
  EXPECT_TRUE(trained(first, 12) == trained(second, 12));
  second.config = other_config();
  expect_the_bits_of_each_alone(first, second);
}

std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A whole run on text whose validation documents partly occur in the training text, which causes a warning.
struct WholeRun {
  Recipe recipe;
  std::string folder;
  std::string log, warning, metrics, checkpoint;

  void train() {
    TrainHooks hooks;
    hooks.log = Log([this](const LogMessage& message) { log += message.text + "\n"; });
    start_run(recipe, folder, hooks);
    metrics = file_bytes(RunPaths{folder}.metrics());
    checkpoint = file_bytes(list_checkpoints(folder).back().folder + "/model.safetensors");
  }
};

WholeRun make_run(const TemporaryFolder& folder, const std::string& name, int repeated, int threads, int seed) {
  std::string train, valid;
  for (int i = 0; i < 40; ++i) {
    const std::string story = fmt::format("The {} cat number {} saw {} birds.\n<|endoftext|>\n", name, i, i * i);
    train += story;
    if (i < repeated) valid += story;
  }
  valid += "Another story.\n<|endoftext|>\n";
  const std::string text = fmt::format(
      "seed = {}\n[model]\nd_model = 16\nlayers = 2\nheads = 2\nseq_len = 32\n[some]\nexperts = 6\nd_ffn = 16\n"
      "top_k = 2\n[data]\ntrain = \"{}\"\nvalid = \"{}\"\nvocab = 300\n[train]\nepochs = 2\nbatch = 4\n"
      "device = \"cpu\"\nthreads = {}\n",
      seed, folder.write(name + "-train.txt", train), folder.write(name + "-valid.txt", valid), threads);
  WholeRun run{parse_recipe(text, name, {}), folder / name, "", "", "", ""};
  run.warning = fmt::format("{} of {} validation documents", repeated, repeated + 1);
  return run;
}

TEST(TwoRuns, WriteTheSameFilesAsAloneAndUseTheirOwnLogs) {
  const TemporaryFolder folder;
  WholeRun one = make_run(folder, "red", 3, 1, 1), other = make_run(folder, "blue", 5, 3, 2);
  one.train();
  other.train();
  EXPECT_NE(one.log.find(one.warning), std::string::npos) << one.log;
  EXPECT_NE(other.log.find(other.warning), std::string::npos) << other.log;
  const TemporaryFolder second_folder;
  WholeRun one_again = make_run(second_folder, "red", 3, 1, 1), other_again = make_run(second_folder, "blue", 5, 3, 2);
  together([&] { one_again.train(); }, [&] { other_again.train(); });
  EXPECT_EQ(one_again.log, one.log);
  EXPECT_EQ(other_again.log, other.log);
  EXPECT_TRUE(one_again.metrics == one.metrics && one_again.checkpoint == one.checkpoint);
  EXPECT_TRUE(other_again.metrics == other.metrics && other_again.checkpoint == other.checkpoint);
}

}  // namespace
}  // namespace some
