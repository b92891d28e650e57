// Several ranks, as threads of one process, are bit-identical to a single rank.
#include <gtest/gtest.h>

#include "evaluation/evaluate.h"
#include "memory/reader.h"
#include "model/sample.h"
#include "thread_ranks.h"
#include "train/step.h"

namespace some {
namespace {

std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu);
  return {static_cast<const char*>(host.raw()), host.bytes()};
}

std::shared_ptr<Context> context_of(const Group& group) { return make_context("cpu", "fp32", make_host(1, {}, group)); }

ModelConfig config_of(Norm norm, Ffn ffn) {
  ModelConfig config = small_config();
  config.norm = norm;
  config.ffn = ffn;
  config.layers = 3;
  config.dropout = 0.2;  // masks depend on the place of a row in the step, not on ranks
  return config;
}

// Returns losses, parameters, moments and keys after some steps.
std::string trained(const Group& group, const ModelConfig& config, int micro_batches,
                    const TrainStep::Options& options) {
  Model model(context_of(group), config, true);
  TrainStep step(model, TrainConfig(), false, options);
  std::string out;
  for (int i = 0; i < 3; ++i) {
    std::vector<Batch> batches;
    for (int b = 0; b < micro_batches; ++b) {
      std::vector<std::vector<std::int32_t>> rows;
      for (int r = 0; r < 2; ++r) {
        auto& row = rows.emplace_back();
        for (int p = 0; p < config.seq_len - r; ++p)
          row.push_back((3 + p * p * 7 + p * (i + b) + 5 * r) % config.vocab);
      }
      batches.push_back(rows_batch(rows, config.seq_len, false));
    }
    StepPlan plan;
    plan.step = i;
    plan.lr = 1e-2;
    out += bytes_of(step.run(batches, plan));
  }
  const TrainStep::Communication spent = step.communication();
  EXPECT_EQ(spent.open_seconds > 0, true);
  const ParameterStore& p = model.parameters();
  out += bytes_of(p.value) + bytes_of(p.first) + bytes_of(p.second);
  if (config.ffn != Ffn::some) return out;
  for (Layer& layer : model.layers()) out += bytes_of(layer.keys.keys) + bytes_of(layer.keys.usage);
  return out;
}

TEST(Ranks, OverlappedAllReduceGivesTheSameBits) {
  for (const Norm norm : {Norm::pre, Norm::post}) {
    for (const Ffn ffn : {Ffn::some, Ffn::dense}) {
      const ModelConfig config = config_of(norm, ffn);
      for (const auto& [size, micro_batches] : {std::pair(2, 3), std::pair(3, 6), std::pair(4, 7)}) {
        const std::string alone = trained(Group(), config, micro_batches, {});
        // Sent layer by layer, several layers together, or all at the end.
        for (const std::optional<std::size_t> early :
             {std::optional<std::size_t>(0), std::optional<std::size_t>(6000), std::optional<std::size_t>()}) {
          on_ranks(size, [&, batches = micro_batches](const Group& group) {
            const bool same = trained(group, config, batches, {.graphs = true, .early_bytes = early}) == alone;
            EXPECT_TRUE(same) << group.size() << " ranks, " << (early ? fmt::to_string(*early) : "none")
                              << " bytes early";
          });
        }
      }
    }
  }
}

TokenData documents() {
  std::vector<std::vector<std::int32_t>> out;
  for (int d = 0; d < 23; ++d) {
    auto& one = out.emplace_back();
    for (int i = 0; i < 3 + d * 5 % 17; ++i) one.push_back(3 + (i * i + d * i + 5 * d) % 16);
  }
  return make_token_data(out);
}

TEST(Ranks, EvaluateTogether) {
  const TokenData data = documents();
  for (const Ffn ffn : {Ffn::some, Ffn::dense}) {
    const ModelConfig config = config_of(Norm::pre, ffn);
    EvaluateOptions options;
    options.rows = 4;
    Model model(context_of({}), config, false);
    const Evaluation alone = evaluate(model, data, options);
    for (const int size : {2, 3, 8}) {  // with eight ranks, some have no work
      on_ranks(size, [&](const Group& group) {
        Model same(context_of(group), config, false);
        const Evaluation shared = evaluate(same, data, options);
        EXPECT_EQ(shared.loss, alone.loss);
        EXPECT_EQ(shared.batch_mean_loss, alone.batch_mean_loss);
        EXPECT_EQ(shared.tokens, alone.tokens);
        ASSERT_EQ(shared.layers.size(), alone.layers.size());
        for (std::size_t l = 0; l < alone.layers.size(); ++l) {
          EXPECT_EQ(shared.layers[l].counts, alone.layers[l].counts);
          EXPECT_EQ(shared.layers[l].mass, alone.layers[l].mass);
          EXPECT_EQ(shared.layers[l].gate_entropy, alone.layers[l].gate_entropy);
          EXPECT_EQ(shared.layers[l].distinct_sets, alone.layers[l].distinct_sets);
        }
        // On one rank, while the others do something else.
        EvaluateOptions by_itself = options;
        by_itself.alone = true;
        if (group.root()) {
          EXPECT_EQ(evaluate(same, data, by_itself).loss, alone.loss);
        }
      });
    }
  }
}

TEST(Ranks, ReadIntoAMemoryTogether) {
  ModelConfig config = config_of(Norm::pre, Ffn::some);
  MemorySettings settings;
  settings.slots = 40;
  settings.window = 4;
  std::vector<std::int32_t> text;
  for (int i = 0; i < 900; ++i) text.push_back(3 + (i * i / 7 + 5 * i) % 16);
  // Returns the final memory, and the observed results.
  const auto read = [&](const Group& group, int stop_after) {
    const std::shared_ptr<Context> ctx = context_of(group);
    Model model(ctx, config, false);
    Memory memory = make_memory(*ctx, settings, config, mean_state(model, text, 200));
    std::string report;
    int passes = 0;
    learn_text(model, memory, "a text", text, std::ssize(text), [&](std::span<const WindowResult> windows, auto) {
      for (const WindowResult& one : windows) report += fmt::format("{} {} {};", one.frozen, one.mixed, one.births);
      return !(++passes == stop_after && group.rank() == group.size() - 1);  // only one rank is report to stop
    });
    return bytes_of(memory.store.keys) + bytes_of(memory.store.counts) + bytes_of(memory.store.shares) + report;
  };
  for (const int stop_after : {0, 2}) {
    const std::string alone = read({}, stop_after);
    for (const int size : {2, 3}) {
      on_ranks(size, [&](const Group& group) { EXPECT_TRUE(read(group, stop_after) == alone) << group.size(); });
    }
  }
}

}  // namespace
}  // namespace some
