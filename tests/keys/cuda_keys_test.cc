// Compares the key store on the GPU with the CPU: same sums and same movement, and bit-identical when repeated.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support.h"
#include "tensor/device.h"

namespace some::test {
namespace {

struct Case {
  std::string name;
  CaseShape shape;
  KeySettings settings;
  int slots = 0;             // choices per token; 0: top_k
  double taking_part = 1.0;  // fraction of the tokens with a target
  double fraction = 1.0;
  double same_choice = 0.0;  // fraction of the tokens that choose like the first one, as padding does
  double beta = 0.005;
  int steps = 3;
};

KeySettings settings_with(const std::function<void(KeySettings&)>& change) {
  KeySettings settings;
  settings.decay_warmup = 1;
  change(settings);
  return settings;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, CaseShape shape,
                       const std::function<void(KeySettings&)>& change) -> Case& {
    all.push_back({name, shape, settings_with(change)});
    return all.back();
  };
  const auto nothing = [](KeySettings&) {};
  add("small", {40, 9, 3, 12}, nothing);
  add("one_expert", {10, 1, 1, 4}, nothing);
  add("odd_width", {77, 13, 2, 7}, nothing);
  add("published", {3000, 64, 4, 512}, nothing);
  add("narrow", {3000, 64, 4, 64}, nothing);
  add("narrower", {900, 40, 3, 5}, nothing).same_choice = 0.4;
  add("one_popular_choice", {5000, 64, 4, 128}, nothing).same_choice = 0.8;
  add("many_experts", {2500, 200, 8, 64}, nothing).same_choice = 0.5;
  add("very_many_slots", {400, 90, 24, 16}, nothing).taking_part = 0.7;
  add("some_targets", {700, 16, 2, 32}, nothing).taking_part = 0.3;
  add("no_position", {50, 16, 2, 32}, nothing).taking_part = 0.0;
  add("fraction", {900, 16, 2, 32}, nothing).fraction = 0.25;
  add("fewer_slots", {300, 16, 4, 32}, nothing).slots = 1;
  add("max_inertia", {300, 16, 4, 32}, [](KeySettings& s) { s.beta_inertia = BetaInertia::max; });
  add("no_pull", {300, 16, 4, 32}, [](KeySettings& s) { s.use_beta = false; });
  add("no_attraction", {300, 16, 4, 32}, [](KeySettings& s) { s.use_alpha = false; });
  add("cumulative", {300, 16, 4, 32}, [](KeySettings& s) { s.usage = Usage::cumulative; });
  add("flux_clipped", {300, 16, 4, 32}, [](KeySettings& s) {
    s.usage = Usage::flux;
    s.clip_delta = 0.05;
    s.alpha_floor = 0.02;
  });
  add("normalize_used_last", {300, 16, 4, 32}, [](KeySettings& s) {
    s.constraint = Constraint::normalize_used;
    s.constraint_order = ConstraintOrder::last;
  });
  add("clamp", {300, 16, 4, 32}, [](KeySettings& s) { s.constraint = Constraint::clamp; });
  add("free_with_mean", {300, 16, 4, 32}, [](KeySettings& s) {
    s.constraint = Constraint::free;
    s.key_ema = 0.9;
  });
  add("high_percentile", {300, 33, 4, 32}, [](KeySettings& s) {
    s.theta_percentile = 0.71;
    s.delta = 0.2;
  });
  add("absolute_theta", {300, 16, 4, 32}, [](KeySettings& s) {
    s.theta = 0.7;
    s.delta = 0.1;
  });
  add("balanced", {900, 64, 4, 32}, [](KeySettings& s) { s.balance_rate = 0.002; });
  add("balanced_still", {300, 16, 4, 33}, [](KeySettings& s) {
    s.use_alpha = s.use_beta = s.use_delta = false;
    s.balance_rate = 0.002;
  }).taking_part = 0.6;
  add("balanced_with_slack", {900, 64, 4, 32}, [](KeySettings& s) {
    s.balance_rate = 0.002;
    s.balance_slack = 0.2;
  });
  add("balanced_rebirth", {300, 40, 2, 32}, [](KeySettings& s) {
    s.theta_percentile = 0.5;
    s.delta = 0.6;
    s.respawn_threshold = 0.5;
    s.balance_rate = 0.1;
  });
  add("rebirth", {300, 40, 2, 32}, [](KeySettings& s) {
    s.theta_percentile = 0.5;
    s.delta = 0.6;
    s.respawn_threshold = 0.5;
    s.key_ema = 0.5;
  });
  Case& few = add("rebirth_with_few_positions", {300, 40, 2, 32}, [](KeySettings& s) {
    s.theta_percentile = 0.9;
    s.delta = 0.9;
    s.respawn_threshold = 0.5;
  });
  few.taking_part = 0.02;
  few.steps = 5;
  return all;
}

Step make_step(const Case& test, int number) {
  Step step = random_step(test.shape, 11, number);
  const RandomStream stream = random_stream(11, "test.choice." + std::to_string(number));
  const int slots = test.slots == 0 ? test.shape.top_k : test.slots;
  for (int t = 0; t < test.shape.tokens; ++t) {
    if (t > 0 && stream.uniform(static_cast<std::uint64_t>(2 * t)) < test.same_choice)
      step.choices[t] = step.choices[0];
    step.choices[t].resize(slots);
    step.gates[t].resize(slots);
    if (test.taking_part < 1.0)
      step.targets.push_back(stream.uniform(static_cast<std::uint64_t>(2 * t + 1)) < test.taking_part ? 5 : -1);
  }
  step.fraction = test.fraction;
  step.beta = test.beta;
  return step;
}

struct Result {
  KeyState state;
  KeySums sums;  // of the last step
};

Tensor on_cpu(const Tensor& tensor) { return tensor ? tensor.to(Device::cpu) : Tensor(); }

// Tokens [begin, end) of a step on a device.
struct Part {
  Tensor queries, targets;  // no targets: all take part
  Routing routing;
};

Part make_part(const Step& step, std::int64_t begin, std::int64_t end, const CaseShape& shape, const Device& device) {
  const auto rows = [&](const std::vector<Row>& all) {
    return std::vector<Row>(all.begin() + begin, all.begin() + end);
  };
  const std::int64_t slots = static_cast<std::int64_t>(step.choices[0].size());
  Part part;
  part.queries = matrix<float>(rows(step.queries), {end - begin, shape.d_model}).to(device);
  part.routing.gates = matrix<float>(rows(step.gates), {end - begin, slots}).to(device);
  Tensor indices = Tensor::empty({end - begin, slots}, DType::i32);
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t i = 0; i < slots; ++i) indices.data<std::int32_t>()[(t - begin) * slots + i] = step.choices[t][i];
  part.routing.indices = indices.to(device);
  if (!step.targets.empty()) {
    Tensor host = Tensor::empty({end - begin}, DType::i32);
    std::copy(step.targets.begin() + begin, step.targets.begin() + end, host.data<std::int32_t>());
    part.targets = host.to(device);
  }
  return part;
}

Result on_cpu(const KeyState& state, const KeySums& sums) {
  Result out{state, sums};
  visit_key_state(out.state, [](const std::string&, Tensor& tensor) { tensor = on_cpu(tensor); });
  for (Tensor* tensor : {&out.sums.slot_counts, &out.sums.gate_sums, &out.sums.positions, &out.sums.query_sums,
                         &out.sums.together, &out.sums.sample_priority, &out.sums.sample_queries})
    *tensor = on_cpu(*tensor);
  return out;
}

// Runs each step in two micro-batches of unequal size.
Result run(const Case& test, const std::string& device) {
  const auto ctx = make_context(device, "fp32");
  const CaseShape& shape = test.shape;
  KeyState state = make_key_state(*ctx, shape.experts, shape.d_model, 5, 0, test.settings);
  KeySums sums = make_key_sums(*ctx, shape.experts, shape.top_k, shape.d_model, needs_of(test.settings));
  for (int number = 0; number < test.steps; ++number) {
    const Step step = make_step(test, number);
    clear_key_sums(*ctx, sums);
    const std::int64_t cut = shape.tokens / 3, tokens = shape.tokens;
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, tokens}}) {
      const Part part = make_part(step, begin, end, shape, ctx->device);
      add_key_sums(*ctx, {part.queries, part.routing, plan_of(test.settings, state, step), begin, &sums},
                   part.targets ? &part.targets : nullptr);
    }
    update_keys(*ctx, state, sums, plan_of(test.settings, state, step));
  }
  return on_cpu(state, sums);
}

// Runs layers with different choices, each updated `steps` times, all in one launch or one by one.
std::vector<Result> run_layers(const Case& test, int layers, bool together) {
  const auto ctx = make_context("cuda", "fp32");
  const CaseShape& shape = test.shape;
  std::vector<KeyState> states;
  std::vector<KeySums> sums;
  for (int l = 0; l < layers; ++l) {
    states.push_back(make_key_state(*ctx, shape.experts, shape.d_model, 5, l, test.settings));
    sums.push_back(make_key_sums(*ctx, shape.experts, shape.top_k, shape.d_model, needs_of(test.settings)));
  }
  for (int number = 0; number < test.steps; ++number) {
    std::vector<LayerChoices> choices;
    std::vector<LayerUpdate> updates;
    Tensor targets;
    for (int l = 0; l < layers; ++l) {
      const Step step = make_step(test, 100 * l + number);
      const Part part = make_part(step, 0, shape.tokens, shape, ctx->device);
      if (l == 0) targets = part.targets;
      const std::size_t at = static_cast<std::size_t>(l);
      const KeyPlan plan = plan_of(test.settings, states[at], step);
      choices.push_back({part.queries, part.routing, plan, 0, &sums[at]});
      updates.push_back({&states[at], &sums[at], plan});
    }
    const Tensor* taking_part = targets ? &targets : nullptr;
    if (together) {
      clear_key_sums(*ctx, sums);
      add_key_sums(*ctx, choices, taking_part);
      update_keys(*ctx, updates);
      continue;
    }
    for (std::size_t l = 0; l < sums.size(); ++l) {
      clear_key_sums(*ctx, sums[l]);
      add_key_sums(*ctx, choices[l], taking_part);
      update_keys(*ctx, states[l], sums[l], updates[l].plan);
    }
  }
  std::vector<Result> results;
  for (std::size_t l = 0; l < sums.size(); ++l) results.push_back(on_cpu(states[l], sums[l]));
  return results;
}

class CudaKeys : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  }
};

TEST_P(CudaKeys, MovesAsOnTheCpu) {
  const Result cpu = run(GetParam(), "cpu"), gpu = run(GetParam(), "cuda");
  EXPECT_TRUE(same_bits(cpu.sums.slot_counts, gpu.sums.slot_counts));
  EXPECT_TRUE(same_bits(cpu.sums.together, gpu.sums.together));
  EXPECT_TRUE(same_bits(cpu.sums.positions, gpu.sums.positions));
  EXPECT_TRUE(same_bits(cpu.sums.sample_priority, gpu.sums.sample_priority));
  EXPECT_TRUE(same_bits(cpu.sums.sample_queries, gpu.sums.sample_queries));
  EXPECT_LT(largest_error(values(gpu.sums.gate_sums), values(cpu.sums.gate_sums)), 1e-6);
  EXPECT_LT(largest_error(values(gpu.sums.query_sums), values(cpu.sums.query_sums)), 2e-6);
  EXPECT_LT(largest_error(values(gpu.state.keys), values(cpu.state.keys)), 1e-5);
  EXPECT_LT(largest_error(values(gpu.state.usage), values(cpu.state.usage)), 1e-6);
  EXPECT_LT(largest_error(values(gpu.state.mass), values(cpu.state.mass)), 1e-6);
  if (cpu.state.average) {
    EXPECT_LT(largest_error(values(gpu.state.average), values(cpu.state.average)), 1e-5);
  }
  EXPECT_TRUE(same_bits(gpu.state.choice_bias, cpu.state.choice_bias));
  EXPECT_EQ(numbers(gpu.state.counts), numbers(cpu.state.counts));
  EXPECT_EQ(gpu.state.steps, cpu.state.steps);
}

TEST_P(CudaKeys, RepeatsBitForBit) {
  const Result once = run(GetParam(), "cuda"), again = run(GetParam(), "cuda");
  EXPECT_TRUE(same_bits(once.state, again.state));
  EXPECT_TRUE(same_bits(once.sums.query_sums, again.sums.query_sums));
  EXPECT_TRUE(same_bits(once.sums.gate_sums, again.sums.gate_sums));
}

TEST_P(CudaKeys, LayersTogetherMoveAsOneByOne) {
  constexpr int layers = 14;  // more than fit into one launch
  Case test = GetParam();
  test.shape.tokens = std::min(test.shape.tokens, 700);
  const std::vector<Result> together = run_layers(test, layers, true), single = run_layers(test, layers, false);
  for (std::size_t l = 0; l < layers; ++l) {
    EXPECT_TRUE(same_bits(together[l].state, single[l].state)) << "layer " << l;
    EXPECT_TRUE(same_bits(together[l].sums.query_sums, single[l].sums.query_sums)) << "layer " << l;
    EXPECT_TRUE(same_bits(together[l].sums.gate_sums, single[l].sums.gate_sums)) << "layer " << l;
    EXPECT_TRUE(same_bits(together[l].sums.together, single[l].sums.together)) << "layer " << l;
    EXPECT_TRUE(same_bits(together[l].sums.slot_counts, single[l].sums.slot_counts)) << "layer " << l;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaKeys, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace some::test
