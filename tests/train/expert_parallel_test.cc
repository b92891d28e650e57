// Expert parallelism (model/ffn/expert_parallel.h), with ranks as threads: several ranks that each hold a part of the
// experts compute the same as one rank that holds all.
#include "model/ffn/expert_parallel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "expect_error.h"
#include "model/ffn/expert_bank.h"
#include "model/sample.h"
#include "tensor/device.h"
#include "thread_ranks.h"
#include "train/rank_checks.h"
#include "train/step.h"
#include "train/trainer.h"

namespace some {
namespace {

struct Outcome {
  std::vector<double> gradients;  // of the first step
  std::vector<double> losses, nll;
  std::vector<double> learned;  // parameters, moments and keys after the last step
  std::uint64_t library_hash = 0;
};

// Micro-batches of different lengths; the last rank may have fewer of them, or none.
std::vector<Batch> micro_batches(const ModelConfig& config, int count, int step) {
  std::vector<Batch> out;
  for (int i = 0; i < count; ++i) {
    std::vector<std::vector<std::int32_t>> rows;
    for (int r = 0; r < 1 + (i + step) % 3; ++r) {
      std::vector<std::int32_t> row;
      for (int p = 0; p < config.seq_len - (r + i) % 4; ++p)
        row.push_back((3 + p * p * 7 + p * (i + 5 * step) + 5 * r) % config.vocab);
      rows.push_back(row);
    }
    out.push_back(rows_batch(rows, config.seq_len, false));
  }
  return out;
}

void append(const Tensor& tensor, std::vector<double>& to) {
  if (!tensor) return;
  const std::vector<double> values = read_vector(tensor);
  to.insert(to.end(), values.begin(), values.end());
}

Outcome train(const Group& group, int expert_ranks, const std::string& precision, const ModelConfig& config,
              int batches, const std::string& device = "cpu") {
  std::shared_ptr<Context> ctx = make_context(device, precision, make_host(1, {}, group));
  ctx->expert_group = make_expert_group(group, expert_ranks);
  Model model(ctx, config, true);
  TrainStep step(model, TrainConfig(), false);
  Outcome out;
  out.library_hash = model.library_hash();
  for (int i = 0; i < 3; ++i) {
    StepPlan plan;
    plan.step = i;
    plan.lr = 1e-2;
    const std::vector<Batch> all = micro_batches(config, batches, i);
    append(step.run(all, plan), out.losses);
    if (i == 0) append(model.parameters().grad, out.gradients);
  }
  // Evaluation: the last rank has no batch.
  ctx->arena->reset();
  if (group.alone() || group.rank() + 1 < group.size())
    append(model.evaluate(upload(*ctx, micro_batches(config, 1, 7)[0]), {}), out.nll);
  else
    model.serve_pass(false);
  for (const Tensor& one : learned_tensors(model)) append(one, out.learned);
  return out;
}

double distance(const std::vector<double>& expected, const std::vector<double>& got) {
  EXPECT_EQ(expected.size(), got.size());
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::isnan(got[i]) ? INFINITY : std::abs(expected[i] - got[i]));
  }
  return largest > 0 ? error / largest : error;
}

struct Arrangement {
  int ranks, expert_ranks, batches;
};
constexpr Arrangement arrangements[] = {{2, 2, 1}, {4, 2, 7}, {4, 4, 4}};

std::vector<Variant> variants_with_experts() {
  std::vector<Variant> out;
  for (const Variant& one : model_variants) {
    ModelConfig config = small_config();
    one.change(config);
    if (config.ffn == Ffn::some && !config.has_transforms()) out.push_back(one);
  }
  out.push_back({"lora", [](ModelConfig& c) { c.training = ExpertTraining::lora, c.lora_rank = 3; }});
  out.push_back({"lora_features", [](ModelConfig& c) {
                   c.training = ExpertTraining::lora, c.lora_rank = 2, c.output_proj = OutputProj::features;
                 }});
  out.push_back({"rebirth", [](ModelConfig& c) {
                   c.keys.respawn_threshold = 0.9, c.keys.theta_percentile = 0.5, c.balance_loss = 0.1;
                 }});
  return out;
}

// In f64, which uses our own GEMM with results per row that do not depend on the other rows, frozen experts give the
// same bits. Trained experts sum the tokens of several micro-batches at once, which is another order.
TEST(Spread, IsWhatOneRankComputes) {
  for (const Variant& variant : variants_with_experts()) {
    ModelConfig config = small_config();
    variant.change(config);
    for (const Arrangement& how : arrangements) {
      for (const std::string precision : {"f64", "fp32"}) {
        SCOPED_TRACE(fmt::format("{} in {} on {} ranks by {}, {} micro-batches", variant.name, precision, how.ranks,
                                 how.expert_ranks, how.batches));
        const Outcome expected = train({}, 1, precision, config, how.batches);
        std::vector<Outcome> got(static_cast<std::size_t>(how.ranks));
        on_ranks(how.ranks, [&](const Group& group) {
          got[static_cast<std::size_t>(group.rank())] = train(group, how.expert_ranks, precision, config, how.batches);
        });
        const bool wide = precision == "f64";
        for (const Outcome& one : got) {
          EXPECT_EQ(one.library_hash, expected.library_hash);
          EXPECT_LT(distance(expected.gradients, one.gradients), wide ? 1e-15 : 1e-6);
          EXPECT_LT(distance(expected.losses, one.losses), wide ? 1e-15 : 1e-6);
          // An optimizer turns a gradient that is zero except for rounding into a full step.
          EXPECT_LT(distance(expected.learned, one.learned), wide ? 1e-12 : 1e-3);
          if (!one.nll.empty()) {
            EXPECT_LT(distance(expected.nll, one.nll), wide ? 1e-12 : 1e-3);
          }
          if (wide && !experts_learn(config)) {
            EXPECT_EQ(one.learned, expected.learned);
          }
          EXPECT_EQ(one.learned, got[0].learned);  // all ranks are bit-identical
        }
        EXPECT_TRUE(got.back().nll.empty());
      }
    }
  }
}

// Ranks on one GPU, each with its own stream; rows are sent through host memory.
TEST(SpreadCuda, IsWhatOneRankComputes) {
  if (!some::cuda::available()) GTEST_SKIP() << "needs a GPU: " << some::cuda::unavailable_reason_text();
  for (const Variant& variant : variants_with_experts()) {
    ModelConfig config = medium_config();
    variant.change(config);
    for (const std::string precision : {"fp32", "bf16"}) {
      for (const Arrangement& how : {Arrangement{2, 2, 3}, Arrangement{4, 4, 4}}) {
        SCOPED_TRACE(fmt::format("{} in {} on {} ranks", variant.name, precision, how.ranks));
        const Outcome expected = train({}, 1, precision, config, how.batches, "cuda");
        std::vector<Outcome> got(static_cast<std::size_t>(how.ranks));
        on_ranks(how.ranks, [&](const Group& group) {
          got[static_cast<std::size_t>(group.rank())] =
              train(group, how.expert_ranks, precision, config, how.batches, "cuda");
        });
        const bool exact = precision == "fp32";
        for (const Outcome& one : got) {
          EXPECT_EQ(one.library_hash, expected.library_hash);
          // In bf16 a near tie in top-k may be decided differently, and everything after it differs.
          if (exact) {
            EXPECT_LT(distance(expected.gradients, one.gradients), 1e-4);
          }
          EXPECT_LT(distance({expected.losses[0]}, {one.losses[0]}), exact ? 1e-5 : 1e-2);
          EXPECT_EQ(one.learned, got[0].learned);
        }
      }
    }
  }
}

// The purpose of expert parallelism: no rank holds the whole library.
TEST(Spread, EachRankHoldsItsPartOfTheLibrary) {
  const ModelConfig config = medium_config();
  std::shared_ptr<Context> alone = make_context("cpu", "fp32", make_host(1));
  Model whole(alone, config, false);
  on_ranks(4, [&](const Group& group) {
    std::shared_ptr<Context> ctx = make_context("cpu", "fp32", make_host(1, {}, group));
    ctx->expert_group = group;
    Model model(ctx, config, false);
    const Block held = ctx->mesh().experts(group.rank(), config.experts);
    EXPECT_EQ(held.count(), 2);
    for (std::size_t l = 0; l < model.layers().size(); ++l) {
      const Layer &part = model.layers()[l], &all = whole.layers()[l];
      EXPECT_EQ(part.experts.w1.compute.dim(0), 2);
      EXPECT_EQ(read_vector(part.experts.w1.compute), read_vector(all.experts.w1.compute.rows(held.begin, held.end)));
      EXPECT_EQ(read_vector(part.experts.w2.compute), read_vector(all.experts.w2.compute.rows(held.begin, held.end)));
      EXPECT_EQ(part.experts.library_hash, all.experts.library_hash);
    }
  });
}

TEST(Spread, WhatCannotBeIsRefused) {
  const auto error = [](int ranks, const std::vector<std::string>& overrides) {
    return error_in(
        [&] { check_rank_shares(ranks, parse_recipe("[train]\naccumulate = 8\n", "test recipe", overrides)); });
  };
  EXPECT_FALSE(error(2, {"train.expert_ranks=2"}));
  EXPECT_FALSE(error(8, {"train.expert_ranks=4"}));
  const std::string key = "train.expert_ranks";
  EXPECT_TRUE(is_bad_input(error(3, {"train.expert_ranks=2"}), Code::ranks_uneven, {key, "2", "3", "4", "4"}));
  EXPECT_TRUE(is_bad_input(error(1, {"train.expert_ranks=2"}), Code::ranks_uneven, {key, "2", "1", "2", "2"}));
  EXPECT_TRUE(is_bad_input(error(2, {"train.expert_ranks=2", "model.ffn=dense"}), Code::setting_conflict,
                           {key, "2", "this model.ffn"}));
  EXPECT_TRUE(is_bad_input(error(2, {"train.expert_ranks=2", "some.output_proj=modulated", "some.use_library=false"}),
                           Code::setting_conflict, {key, "2", "some.use_library = false"}));
  EXPECT_TRUE(
      is_bad_input(error(2, {"train.expert_ranks=2", "some.init=hadamard"}), Code::setting_conflict, {key, "2"}));
  EXPECT_TRUE(is_bad_input(error(4, {"train.expert_ranks=4", "some.experts=3", "some.top_k=2"}), Code::ranks_uneven,
                           {key, "4", "3"}));
}

}  // namespace
}  // namespace some
