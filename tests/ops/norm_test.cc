#include "ops/norm.h"

#include "ops/harness.h"

namespace some::test {
namespace {

OpCase norm_case(std::int64_t rows, std::int64_t d, bool with_addend, bool with_extra) {
  OpCase one;
  one.name = fmt::format("norm_{}x{}{}{}", rows, d, with_addend ? "_addend" : "", with_extra ? "_extra" : "");
  one.inputs = [=] {
    return Arrays{{"x", normals({rows, d}, "x")},         {"addend", normals({rows, d}, "addend", 2.0)},
                  {"weight", normals({d}, "weight")},     {"bias", normals({d}, "bias")},
                  {"dy", normals({rows, d}, "dy")},       {"dsum_extra", normals({rows, d}, "extra")},
                  {"dweight0", normals({d}, "dweight0")}, {"dbias0", normals({d}, "dbias0")}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Param weight = lab.param(in.at("weight"), in.at("dweight0")),
                bias = lab.param(in.at("bias"), in.at("dbias0"));
    const Tensor x = lab.compute(in.at("x")), addend = lab.compute(in.at("addend"));
    // Without an addend, the sum may share x's memory.
    Tensor sum = with_addend ? lab.new_compute({rows, d}) : x;
    Tensor y = lab.new_compute({rows, d}), mean = lab.new_master({rows}), rstd = lab.new_master({rows});
    add_norm_forward(lab.context(), x, with_addend ? &addend : nullptr, weight, bias, sum, y, mean, rstd);
    Tensor dy = lab.compute(in.at("dy")), extra = lab.compute(in.at("dsum_extra"));
    Tensor dsum = lab.new_compute({rows, d});
    norm_backward(lab.context(), dy, sum, mean, rstd, weight, bias, with_extra ? &extra : nullptr, dsum);
    Arrays results{{"sum", read(sum)},        {"y", read(y)},       {"mean", read(mean)},
                   {"rstd", read(rstd)},      {"dsum", read(dsum)}, {"dweight", read(weight.grad)},
                   {"dbias", read(bias.grad)}};
    // In place over dy, and over extra; parameters without a gradient.
    const Param plain_weight = lab.param(in.at("weight")), plain_bias = lab.param(in.at("bias"));
    Tensor over = lab.compute(in.at("dy"));
    norm_backward(lab.context(), over, sum, mean, rstd, plain_weight, plain_bias, with_extra ? &extra : nullptr, over);
    results["dsum_over_dy"] = read(over);
    // With a copy, which is written over dy.
    Tensor twin = lab.compute(in.at("dy"));
    norm_backward(lab.context(), twin, sum, mean, rstd, plain_weight, bias, with_extra ? &extra : nullptr, dsum, &twin);
    results["dsum_copy"] = read(twin);
    if (with_extra) {
      norm_backward(lab.context(), dy, sum, mean, rstd, plain_weight, plain_bias, &extra, extra);
      results["dsum_over_extra"] = read(extra);
    }
    return results;
  };
  one.reference = [=](const Arrays& in) {
    Arrays out{{"sum", zeros({rows, d})}, {"y", zeros({rows, d})}, {"mean", zeros({rows})}, {"rstd", zeros({rows})}};
    for (std::int64_t t = 0; t < rows; ++t) {
      double mean = 0, variance = 0;
      for (std::int64_t i = 0; i < d; ++i) {
        out["sum"][t * d + i] = in.at("x")[t * d + i] + (with_addend ? in.at("addend")[t * d + i] : 0.0);
        mean += out["sum"][t * d + i] / static_cast<double>(d);
      }
      for (std::int64_t i = 0; i < d; ++i)
        variance += std::pow(out["sum"][t * d + i] - mean, 2) / static_cast<double>(d);
      out["mean"][t] = mean;
      out["rstd"][t] = 1.0 / std::sqrt(variance + 1e-5);
      for (std::int64_t i = 0; i < d; ++i) {
        out["y"][t * d + i] = (out["sum"][t * d + i] - mean) * out["rstd"][t] * in.at("weight")[i] + in.at("bias")[i];
      }
    }
    return out;
  };
  // `extra` is by definition the gradient that reaches `sum` by another path.
  one.loss = {{"y", "dy"}};
  if (with_extra) one.loss.push_back({"sum", "dsum_extra"});
  one.gradients = {{"x", "dsum"},
                   {"x", "dsum_over_dy"},
                   {"x", "dsum_copy"},
                   {"weight", "dweight", "dweight0"},
                   {"bias", "dbias", "dbias0"}};
  if (with_extra) one.gradients.push_back({"x", "dsum_over_extra"});
  return one;
}

const bool added =
    add_cases({norm_case(1, 12, true, false), norm_case(1, 2, false, true), norm_case(67, 48, true, true),
               norm_case(5, 11, false, false), norm_case(300, 384, true, false), norm_case(9000, 72, true, false),
               norm_case(129, 64, false, true)});

}  // namespace
}  // namespace some::test
