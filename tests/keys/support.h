// Random cases for the key store, and conversion between plain vectors and tensors.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "keys/key_store.h"
#include "reference.h"

namespace some::test {

template <typename T>
Tensor matrix(const std::vector<Row>& rows, Shape shape) {
  Tensor out = Tensor::empty(std::move(shape), dtype_of<T>());
  T* at = out.data<T>();
  for (const Row& row : rows) {
    for (const double x : row) *at++ = static_cast<T>(x);
  }
  return out;
}

inline std::vector<double> values(const Tensor& tensor) {
  if (!tensor) return {};
  const Tensor wide = tensor.to(DType::f64);
  return {wide.data<double>(), wide.data<double>() + wide.elements()};
}

inline std::vector<std::int64_t> numbers(const Tensor& tensor) {
  return {tensor.data<std::int64_t>(), tensor.data<std::int64_t>() + tensor.elements()};
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return static_cast<bool>(a) == static_cast<bool>(b) &&
         (!a || (a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0));
}
inline bool same_bits(const KeyState& a, const KeyState& b) {
  return same_bits(a.keys, b.keys) && same_bits(a.usage, b.usage) && same_bits(a.mass, b.mass) &&
         same_bits(a.average, b.average) && same_bits(a.choice_bias, b.choice_bias) && same_bits(a.counts, b.counts) &&
         a.steps == b.steps;
}
inline KeyState copy_of(const KeyState& state) {
  KeyState out = state;
  out.keys = state.keys.clone();
  out.usage = state.usage.clone();
  out.mass = state.mass.clone();
  if (state.average) out.average = state.average.clone();
  if (state.choice_bias) out.choice_bias = state.choice_bias.clone();
  out.counts = state.counts.clone();
  return out;
}

struct CaseShape {
  int tokens = 40, experts = 9, top_k = 3, d_model = 12;
  bool some_idle = true;  // no token chooses the last expert, if k leaves room for that
};

// Returns queries of length 1 and distinct choices that favor low expert numbers, so that usage is uneven.
inline Step random_step(const CaseShape& shape, std::uint64_t seed, int number) {
  const RandomStream stream = random_stream(seed, "test.step." + std::to_string(number));
  std::uint64_t next = 0;
  Step step;
  const int choosable = shape.some_idle && shape.experts > shape.top_k ? shape.experts - 1 : shape.experts;
  for (int t = 0; t < shape.tokens; ++t) {
    Row query(static_cast<std::size_t>(shape.d_model));
    for (double& x : query) x = stream.normal(next++);
    const double long_ = length(query);
    for (double& x : query) x /= long_;
    step.queries.push_back(query);
    std::vector<std::pair<double, int>> order;
    for (int e = 0; e < choosable; ++e) order.emplace_back(stream.uniform(next++) * (1.0 + 0.7 * e), e);
    std::sort(order.begin(), order.end());
    std::vector<int> choice;
    Row gates;
    double total = 0;
    for (int i = 0; i < shape.top_k; ++i) {
      choice.push_back(order[static_cast<std::size_t>(i)].second);
      gates.push_back(0.1 + stream.uniform(next++));
      total += gates.back();
    }
    for (double& gate : gates) gate /= total;
    step.choices.push_back(choice);
    step.gates.push_back(gates);
  }
  step.stream = random_stream(seed, "test.keys." + std::to_string(number));
  step.noise = random_stream(seed, "test.phoenix." + std::to_string(number));
  return step;
}

// Returns the plan of a step's update, with the step's own beta and random numbers.
inline KeyPlan plan_of(const KeySettings& settings, const KeyState& state, const Step& step) {
  KeyPlan plan = plan_update(settings, {.update = state.steps + 1});
  plan.fraction = step.fraction;
  plan.stream = plan.sample = step.stream;
  plan.noise = step.noise;
  plan.beta = settings.use_beta ? step.beta : 0.0;
  return plan;
}

// The store under test in precision T, receiving the same steps as the reference.
template <typename T>
class Store {
 public:
  Store(const CaseShape& shape, const KeySettings& settings, std::uint64_t seed = 5, int threads = 0)
      : shape_(shape),
        settings(settings),
        ctx(make_context("cpu", dtype_of<T>() == DType::f64 ? "f64" : "fp32", make_host(threads))) {
    state = make_key_state(*ctx, shape.experts, shape.d_model, seed, 0, settings);
    sums = make_key_sums(*ctx, shape.experts, shape.top_k, shape.d_model, needs_of(settings));
  }

  void add(const Step& step, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    const auto part = [&](const std::vector<Row>& rows) {
      return std::vector<Row>(rows.begin() + begin, rows.begin() + end);
    };
    const std::int64_t slots = static_cast<std::int64_t>(step.choices[0].size());
    Routing routing;
    routing.gates = matrix<T>(part(step.gates), {end - begin, slots});
    routing.indices = Tensor::empty({end - begin, slots}, DType::i32);
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < slots; ++i) {
        routing.indices.data<std::int32_t>()[(t - begin) * slots + i] =
            step.choices[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)];
      }
    }
    Tensor targets;
    if (!step.targets.empty()) {
      targets = Tensor::empty({end - begin}, DType::i32);
      std::copy(step.targets.begin() + begin, step.targets.begin() + end, targets.data<std::int32_t>());
    }
    add_key_sums(*ctx,
                 {matrix<T>(part(step.queries), {end - begin, shape_.d_model}), routing, plan_of(settings, state, step),
                  step.first_position + begin, &sums},
                 targets ? &targets : nullptr);
  }

  // Adds the step in chunks of `piece` tokens (0: all at once), then updates.
  void update(const Step& step, std::int64_t piece = 0) {
    const std::int64_t tokens = static_cast<std::int64_t>(step.queries.size());
    clear_key_sums(*ctx, sums);
    if (piece == 0) piece = std::max<std::int64_t>(tokens, 1);
    for (std::int64_t begin = 0; begin < tokens; begin += piece) add(step, begin, std::min(tokens, begin + piece));
    update_keys(*ctx, state, sums, plan_of(settings, state, step));
  }

  Reference reference() const {
    Reference out;
    out.settings = settings;
    const std::vector<double> keys = values(state.keys);
    for (int e = 0; e < shape_.experts; ++e)
      out.keys.emplace_back(keys.begin() + e * shape_.d_model, keys.begin() + (e + 1) * shape_.d_model);
    out.average = out.keys;
    out.usage = values(state.usage);
    out.mass = values(state.mass);
    out.bias = state.choice_bias ? values(state.choice_bias) : Row(out.keys.size());
    return out;
  }

 private:
  CaseShape shape_;

 public:
  KeySettings settings;
  std::unique_ptr<Context> ctx;
  KeyState state;
  KeySums sums;
};

inline double largest_error(const std::vector<double>& got, const std::vector<double>& wanted) {
  double scale = 0, worst = 0;
  for (const double x : wanted) scale = std::max(scale, std::fabs(x));
  for (std::size_t j = 0; j < wanted.size(); ++j) worst = std::max(worst, std::fabs(got[j] - wanted[j]));
  if (got.size() != wanted.size()) return INFINITY;
  return scale > 0 ? worst / scale : worst;
}

inline std::vector<double> flat(const std::vector<Row>& rows) {
  std::vector<double> out;
  for (const Row& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

template <typename T>
void expect_equal(const Store<T>& store, const Reference& reference, const std::string& what) {
  const double tolerance = dtype_of<T>() == DType::f64 ? 1e-11 : 2e-5;
  EXPECT_LT(largest_error(values(store.state.keys), flat(reference.keys)), tolerance) << what << ": keys";
  EXPECT_LT(largest_error(values(store.state.usage), reference.usage), tolerance) << what << ": usage";
  EXPECT_LT(largest_error(values(store.state.mass), reference.mass), tolerance) << what << ": mass";
  if (store.settings.key_ema > 0) {
    EXPECT_LT(largest_error(values(store.state.average), flat(reference.average)), tolerance) << what << ": average";
  }
  if (store.settings.balance_rate > 0) {
    EXPECT_LT(largest_error(values(store.state.choice_bias), reference.bias), tolerance) << what << ": bias";
  }
  EXPECT_EQ(store.state.steps, reference.steps) << what;
  EXPECT_EQ(numbers(store.state.counts)[0], reference.births) << what << ": births";
  EXPECT_EQ(numbers(store.state.counts)[1], reference.deaths) << what << ": deaths";
}

}  // namespace some::test
