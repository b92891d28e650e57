#include "ops/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/harness.h"

namespace some::test {
namespace {

constexpr std::uint64_t seed = 11;
constexpr std::int64_t step = 5;

Tensor key_of(Lab& lab) {
  const std::array<double, 4> pieces = dropout_key_pieces(seed, step);
  return lab.master({Shape{4}, {pieces.begin(), pieces.end()}});
}

// The definition of the specification, number by number.
double factor(double rate, std::uint64_t place, std::int64_t position, std::int64_t channel) {
  const std::uint64_t key = random_stream(seed, "dropout").bits64(step);
  const Philox block = philox(key, static_cast<std::uint64_t>(position * 8192 + channel / 8), place);
  const std::uint32_t bits = block.v[channel % 8 / 2] / (channel % 2 == 0 ? 1 : 65536) % 65536;
  const double threshold = std::round(rate * 65536);
  return bits < threshold ? 0 : 65536 / (65536 - threshold);
}

OpCase dropout_case(std::int64_t rows, std::int64_t d, double rate, std::int64_t first) {
  OpCase one;
  one.name = fmt::format("dropout_{}x{}_from{}_{}", rows, d, first, std::lround(rate * 100));
  one.inputs = [=] { return Arrays{{"x", normals({rows, d}, "x")}, {"dy", normals({rows, d}, "dy")}}; };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Dropout dropout{rate, 3, first, key_of(lab)};
    const Tensor x = lab.compute(in.at("x"));
    Tensor y = lab.new_compute({rows, d}), dx = lab.compute(in.at("dy"));
    apply_dropout(lab.context(), dropout, x, y);
    apply_dropout(lab.context(), dropout, dx, dx);  // in place
    return Arrays{{"y", read(y)}, {"dx", read(dx)}};
  };
  one.reference = [=](const Arrays& in) {
    Arrays out{{"y", zeros({rows, d})}, {"dx", zeros({rows, d})}};
    for (std::int64_t i = 0; i < rows * d; ++i) {
      const double by = factor(rate, 3, first + i / d, i % d);
      out["y"][i] = in.at("x")[i] * by;
      out["dx"][i] = in.at("dy")[i] * by;
    }
    return out;
  };
  one.loss = {{"y", "dy"}};
  one.gradients = {{"x", "dx"}};
  return one;
}

const bool added = add_cases({dropout_case(1, 8, 0.5, 0), dropout_case(70, 48, 0.1, 1000), dropout_case(9, 13, 0.3, 7),
                              dropout_case(300, 384, 0.2, 0), dropout_case(65, 512, 0.999, std::int64_t{1} << 40)});

TEST(Dropout, DropsTheRequestedShareAndKeepsTheMean) {
  Lab lab("cpu", "f64");
  constexpr std::int64_t rows = 2000, d = 64;
  Array ones = zeros({rows, d});
  for (double& one : ones.values) one = 1;
  const Tensor x = lab.compute(ones);
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    Tensor y = lab.new_compute({rows, d});
    apply_dropout(lab.context(), {rate, 0, 0, key_of(lab)}, x, y);
    double sum = 0, dropped = 0;
    for (const double value : read(y).values) {
      sum += value;
      dropped += value == 0 ? 1 : 0;
    }
    constexpr double count = rows * d;
    EXPECT_NEAR(dropped / count, rate, 4 * std::sqrt(rate * (1 - rate) / count) + 1e-5) << rate;
    EXPECT_NEAR(sum / count, 1, 4 * std::sqrt(rate / (1 - rate) / count) + 1e-9) << rate;
  }
}

TEST(Dropout, DiffersBetweenStepsPlacesAndPositions) {
  Lab lab("cpu", "f64");
  Array ones = zeros({4, 64});
  for (double& one : ones.values) one = 1;
  const auto mask = [&](std::int64_t at, std::uint64_t place, std::int64_t first) {
    const std::array<double, 4> pieces = dropout_key_pieces(seed, at);
    Tensor y = lab.new_compute({4, 64});
    apply_dropout(lab.context(), {0.5, place, first, lab.master({Shape{4}, {pieces.begin(), pieces.end()}})},
                  lab.compute(ones), y);
    return read(y).values;
  };
  EXPECT_EQ(mask(1, 2, 3), mask(1, 2, 3));
  EXPECT_NE(mask(1, 2, 3), mask(2, 2, 3));
  EXPECT_NE(mask(1, 2, 3), mask(1, 3, 3));
  EXPECT_NE(mask(1, 2, 3), mask(1, 2, 4));
  const std::vector<double> whole = mask(1, 2, 3), later = mask(1, 2, 5);
  EXPECT_TRUE(std::equal(whole.begin() + 128, whole.end(), later.begin())) << "a position has one mask in any batch";
}

}  // namespace
}  // namespace some::test
