#include "ops/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/threads.h"
#include "tensor/device.h"

namespace some::test {

Array zeros(Shape shape) {
  const auto count = static_cast<std::size_t>(shape.elements());
  return {std::move(shape), std::vector<double>(count, 0.0)};
}

Array normals(Shape shape, const std::string& name, double scale) {
  const RandomStream stream = random_stream(7, name);
  Array result = zeros(std::move(shape));
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    result.values[i] = to_float(to_bfloat16(static_cast<float>(scale) * stream.normal(i)));
  }
  return result;
}

Array whole_numbers(Shape shape, const std::string& name, int below) {
  const RandomStream stream = random_stream(7, name);
  Array result = zeros(std::move(shape));
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    result.values[i] = stream.below(i, static_cast<std::uint32_t>(below));
  }
  return result;
}

Tensor Lab::put(const Array& array, DType type) {
  if (type == DType::i32) {
    Tensor host = Tensor::empty(array.shape, DType::i32);
    std::transform(array.values.begin(), array.values.end(), host.data<std::int32_t>(),
                   [](double value) { return static_cast<std::int32_t>(value); });
    return host.to(context_->device);
  }
  Tensor host = Tensor::empty(array.shape, DType::f64);
  std::copy(array.values.begin(), array.values.end(), host.data<double>());
  return host.to(type).to(context_->device);
}

Tensor Lab::unset(Shape shape, DType type) {
  Array array = zeros(std::move(shape));
  std::fill(array.values.begin(), array.values.end(), std::numeric_limits<double>::quiet_NaN());
  return put(array, type);
}

Param Lab::param(const Array& value) {
  Param result;
  result.value = master(value);
  result.compute = context_->compute == context_->master ? result.value : compute(value);
  return result;
}

Param Lab::param(const Array& value, const Array& gradient) {
  Param result = param(value);
  result.grad = master(gradient);
  return result;
}

Array read(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu);
  Array result = zeros(tensor.shape());
  if (host.dtype() == DType::i32) {
    std::copy_n(host.data<std::int32_t>(), host.elements(), result.values.begin());
  } else {
    const Tensor wide = host.to(DType::f64);
    std::copy_n(wide.data<double>(), wide.elements(), result.values.begin());
  }
  return result;
}

std::vector<OpCase>& all_cases() {
  static std::vector<OpCase> cases;
  return cases;
}

bool add_cases(std::vector<OpCase> cases) {
  for (OpCase& one : cases) all_cases().push_back(std::move(one));
  return true;
}

double difference(const Array& expected, const Array& actual) {
  if (expected.values.size() != actual.values.size()) return std::numeric_limits<double>::infinity();
  double magnitude = 1e-30, worst = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    magnitude = std::max(magnitude, std::fabs(expected.values[i]));
    const double error = std::fabs(expected.values[i] - actual.values[i]);
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst / magnitude;
}

void PrintTo(const OpCase& one, std::ostream* stream) { *stream << one.name; }

namespace {

Arrays run_on(const OpCase& one, const Arrays& inputs, const std::string& device, const std::string& precision,
              int threads = 0) {
  Lab lab(device, precision, threads);
  return one.run(lab, inputs);
}

void expect_near(const OpCase& one, const Arrays& expected, const Arrays& actual, double tolerance) {
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.count(name)) << name << " is not among the results";
    const bool exact = std::find(one.exact.begin(), one.exact.end(), name) != one.exact.end();
    EXPECT_LE(difference(values, actual.at(name)), exact ? 0.0 : tolerance) << "in " << name;
  }
}

double loss_of(const OpCase& one, const Arrays& inputs) {
  // One thread, because there are many tiny runs: starting threads would take longer than the work.
  const Arrays results = run_on(one, inputs, "cpu", "f64", 1);
  double sum = 0;
  for (const LossTerm& term : one.loss) {
    const Array& values = results.at(term.result);
    for (std::size_t i = 0; i < values.values.size(); ++i) {
      sum += values.values[i] * (term.weight.empty() ? 1.0 : inputs.at(term.weight).values[i]);
    }
  }
  return sum;
}

// Returns the slope of the loss when one input moves along `direction`, by central differences.
double slope_along(const OpCase& one, const Arrays& inputs, const std::string& name,
                   const std::vector<double>& direction) {
  constexpr double step = 1e-5;
  const auto loss_at = [&](double distance) {
    Arrays moved = inputs;
    for (std::size_t i = 0; i < direction.size(); ++i) moved.at(name).values[i] += distance * direction[i];
    return loss_of(one, moved);
  };
  return (loss_at(step) - loss_at(-step)) / (2 * step);
}

// Checks random directions, which depend on every element at once, and a few single elements.
void check_gradient(const OpCase& one, const Arrays& inputs, const Arrays& results, const Gradient& gradient) {
  constexpr std::size_t directions = 3, singles = 5;
  Array actual = results.at(gradient.result);
  if (!gradient.start.empty()) {
    for (std::size_t i = 0; i < actual.values.size(); ++i) actual.values[i] -= inputs.at(gradient.start).values[i];
  }
  const std::size_t count = actual.values.size();
  ASSERT_EQ(count, inputs.at(gradient.input).values.size());
  double length = 1e-9;
  for (const double value : actual.values) length += value * value;
  length = std::sqrt(length);
  const RandomStream stream = random_stream(11, one.name + gradient.input);
  for (std::size_t sample = 0; sample < directions + std::min(singles, count); ++sample) {
    std::vector<double> direction(count, 0.0);
    if (sample < directions) {
      for (std::size_t i = 0; i < count; ++i) direction[i] = stream.normal(sample * count + i);
    } else {
      direction[count <= singles ? sample - directions : stream.below(sample, static_cast<std::uint32_t>(count))] = 1.0;
    }
    double claimed = 0;
    for (std::size_t i = 0; i < count; ++i) claimed += direction[i] * actual.values[i];
    const double seen = slope_along(one, inputs, gradient.input, direction);
    EXPECT_LE(std::fabs(seen - claimed), 1e-6 * length) << gradient.result << " claims a slope of " << claimed
                                                        << " along sample " << sample << ", differences give " << seen;
  }
}

class Operation : public testing::TestWithParam<OpCase> {
 protected:
  // Compares a device and precision with the CPU in double precision.
  void compare(const std::string& device, const std::string& precision, double tolerance) {
    if (device == "cuda" && !cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
    const Arrays inputs = GetParam().inputs();
    expect_near(GetParam(), run_on(GetParam(), inputs, "cpu", "f64"), run_on(GetParam(), inputs, device, precision),
                tolerance);
  }
};

TEST_P(Operation, MatchesPlainLoops) {
  const Arrays inputs = GetParam().inputs();
  expect_near(GetParam(), GetParam().reference(inputs), run_on(GetParam(), inputs, "cpu", "f64"), 1e-10);
}

TEST_P(Operation, GradientsMatchDifferences) {
  if (GetParam().gradients.empty()) return;
  const Arrays inputs = GetParam().inputs();
  const Arrays results = run_on(GetParam(), inputs, "cpu", "f64", 1);
  for (const Gradient& gradient : GetParam().gradients) check_gradient(GetParam(), inputs, results, gradient);
}

TEST_P(Operation, SameBitsForAnyNumberOfThreads) {
  const Arrays inputs = GetParam().inputs();
  const Arrays alone = run_on(GetParam(), inputs, "cpu", "fp32", 1);
  for (const int count : {2, 3, 5}) {
    for (const auto& [name, values] : run_on(GetParam(), inputs, "cpu", "fp32", count)) {
      const std::vector<double>& expected = alone.at(name).values;
      ASSERT_EQ(expected.size(), values.values.size());
      EXPECT_EQ(0, std::memcmp(expected.data(), values.values.data(), expected.size() * sizeof(double)))
          << name << " differs with " << count << " threads";
    }
  }
}

TEST_P(Operation, CpuFloat) { compare("cpu", "fp32", 2e-5); }
TEST_P(Operation, CudaFloat) { compare("cuda", "fp32", 1e-4); }
TEST_P(Operation, CudaBfloat16) { compare("cuda", "bf16", GetParam().bf16_tolerance); }

// Two identical runs must give the same bits on a GPU, too.
TEST_P(Operation, CudaRepeats) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  const Arrays inputs = GetParam().inputs();
  const Arrays first = run_on(GetParam(), inputs, "cuda", "bf16");
  const Arrays second = run_on(GetParam(), inputs, "cuda", "bf16");
  for (const auto& [name, values] : first) {
    EXPECT_EQ(0,
              std::memcmp(values.values.data(), second.at(name).values.data(), values.values.size() * sizeof(double)))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Operation, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<OpCase>& info) { return info.param.name; });

}  // namespace
}  // namespace some::test
