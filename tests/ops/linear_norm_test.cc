#include "ops/linear_norm.h"

#include "ops/harness.h"

namespace some::ops::test {
namespace {

OpCase linear_norm_case(std::int64_t rows, std::int64_t in, std::int64_t d, bool with_bias) {
  OpCase one;
  one.name = fmt::format("linear_norm_{}x{}x{}{}", rows, in, d, with_bias ? "_bias" : "");
  one.inputs = [=] {
    return Arrays{{"x", normals({rows, in}, "x")},
                  {"weight", normals({d, in}, "weight", 1.0 / std::sqrt(static_cast<double>(in)))},
                  {"bias", normals({d}, "bias")},
                  {"residual", normals({rows, d}, "residual")},
                  {"norm_weight", normals({d}, "norm_weight")},
                  {"norm_bias", normals({d}, "norm_bias")}};
  };
  one.run = [=](Lab& lab, const Arrays& in_) {
    const Param bias = with_bias ? lab.param(in_.at("bias")) : Param();
    Tensor sum = lab.new_compute({rows, d}), y = lab.new_compute({rows, d}), mean = lab.new_master({rows}),
           rstd = lab.new_master({rows});
    linear_norm_forward(lab.context(), lab.compute(in_.at("x")), lab.param(in_.at("weight")), bias,
                        lab.compute(in_.at("residual")), lab.param(in_.at("norm_weight")),
                        lab.param(in_.at("norm_bias")), sum, y, mean, rstd);
    return Arrays{{"sum", read(sum)}, {"y", read(y)}, {"mean", read(mean)}, {"rstd", read(rstd)}};
  };
  one.reference = [=](const Arrays& in_) {
    Arrays out{{"sum", in_.at("residual")}, {"y", zeros({rows, d})}, {"mean", zeros({rows})}, {"rstd", zeros({rows})}};
    for (std::int64_t t = 0; t < rows; ++t) {
      double mean = 0, square = 0;
      for (std::int64_t o = 0; o < d; ++o) {
        double& sum = out["sum"][t * d + o];
        if (with_bias) sum += in_.at("bias")[o];
        for (std::int64_t i = 0; i < in; ++i) sum += in_.at("x")[t * in + i] * in_.at("weight")[o * in + i];
        mean += sum / static_cast<double>(d);
      }
      for (std::int64_t o = 0; o < d; ++o) square += std::pow(out["sum"][t * d + o] - mean, 2);
      const double rstd = 1 / std::sqrt(square / static_cast<double>(d) + 1e-5);
      for (std::int64_t o = 0; o < d; ++o)
        out["y"][t * d + o] = (out["sum"][t * d + o] - mean) * rstd * in_.at("norm_weight")[o] + in_.at("norm_bias")[o];
      out["mean"][t] = mean;
      out["rstd"][t] = rstd;
    }
    return out;
  };
  return one;
}

const bool added = add_cases({
    linear_norm_case(1, 12, 11, true),
    linear_norm_case(70, 24, 40, false),
    // Enough rows and columns for one kernel: columns that do not fill it, more steps than stages, more tiles than a
    // GPU has multiprocessors, rows that do not fill the last.
    linear_norm_case(2100, 72, 264, true),
    linear_norm_case(2049, 264, 272, false),
    linear_norm_case(9001, 16, 512, true),
});

}  // namespace
}  // namespace some::ops::test
