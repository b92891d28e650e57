#include "ops/conv.h"

#include <gtest/gtest.h>

#include "ops/harness.h"

namespace some::test {
namespace {

// Sequences of 1, 2, 3, ... rows; the last one is truncated at the number of tokens.
Array staggered_positions(std::int64_t tokens) {
  Array positions = zeros({tokens});
  std::int64_t length = 1, at = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    positions[t] = static_cast<double>(at++);
    if (at == length) {
      at = 0;
      ++length;
    }
  }
  return positions;
}

OpCase look_back_case(std::int64_t tokens, std::int64_t d, std::int64_t taps) {
  const std::int64_t width = taps + 2;
  OpCase one;
  one.name = fmt::format("look_back_{}x{}_n{}", tokens, d, taps);
  one.inputs = [=] {
    return Arrays{{"positions", staggered_positions(tokens)}, {"x", normals({tokens, d}, "x")},
                  {"taps", normals({taps, d}, "taps", 0.5)},  {"dy", normals({tokens, d}, "dy")},
                  {"dx0", normals({tokens, d}, "dx0")},       {"dtaps0", normals({taps, d}, "dtaps0")}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Context& ctx = lab.context();
    Tensor rows = lab.new_whole({tokens, width});  // one more than is needed
    conv_rows(ctx, lab.whole(in.at("positions")), rows);
    const Tensor x = lab.compute(in.at("x"));
    const Param weights = lab.param(in.at("taps"), in.at("dtaps0"));
    Tensor y = lab.new_compute({tokens, d}), dx = lab.compute(in.at("dx0"));
    conv_forward(ctx, x, rows, weights, y);
    conv_backward(ctx, lab.compute(in.at("dy")), x, rows, weights, dx);
    // The states are stored elsewhere and in reverse order, as in generation.
    Array reversed = zeros({tokens}), turned = zeros({tokens, width});
    const Array table = read(rows);
    for (std::int64_t t = 0; t < tokens; ++t) {
      reversed[t] = static_cast<double>(tokens - 1 - t);
      for (std::int64_t j = 0; j < width; ++j) {
        const double row = table[t * (width) + j];
        turned[t * (width) + j] = row < 0 ? -1 : static_cast<double>(tokens - 1) - row;
      }
    }
    Tensor cache = lab.new_compute({tokens, d}), from_cache = lab.new_compute({tokens, d});
    scatter_rows(ctx, x, lab.whole(reversed), cache);
    conv_forward(ctx, cache, lab.whole(turned), weights, from_cache);
    return Arrays{{"rows", table},
                  {"y", read(y)},
                  {"from_cache", read(from_cache)},
                  {"dx", read(dx)},
                  {"dtaps", read(weights.grad)}};
  };
  one.reference = [=](const Arrays& in) {
    Arrays out{{"rows", zeros({tokens, width})}, {"y", in.at("x")}};
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < width; ++j) {
        const bool there = in.at("positions")[t] >= static_cast<double>(j);
        out["rows"][t * (width) + j] = there ? static_cast<double>(t - j) : -1;
        for (std::int64_t i = 0; i < d && there && j > 0 && j <= taps; ++i)
          out["y"][t * d + i] += in.at("taps")[(j - 1) * d + i] * in.at("x")[(t - j) * d + i];
      }
    }
    out["from_cache"] = out["y"];
    return out;
  };
  one.exact = {"rows"};
  one.loss = {{"y", "dy"}};
  one.gradients = {{"x", "dx", "dx0"}, {"taps", "dtaps", "dtaps0"}};
  return one;
}

const bool added = add_cases({
    look_back_case(1, 12, 3),
    look_back_case(7, 11, 1),
    look_back_case(200, 24, 3),
    look_back_case(90, 40, 5),
    look_back_case(700, 16, 2),
});

}  // namespace
}  // namespace some::test
