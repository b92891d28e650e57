#include "ops/head_loss.h"

#include "ops/harness.h"

namespace some::test {
namespace {

OpCase head_case(std::int64_t tokens, std::int64_t d, int vocabulary, bool all_missing, double spread) {
  constexpr double scale = 0.125;
  OpCase one;
  one.name = fmt::format("head_loss_{}x{}_v{}{}_spread{}", tokens, d, vocabulary, all_missing ? "_no_target" : "",
                         static_cast<int>(spread));
  one.inputs = [=] {
    Array targets = whole_numbers({tokens}, "targets", vocabulary);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (all_missing || t % 5 == 3) targets[t] = -1;
    }
    return Arrays{{"h", normals({tokens, d}, "h")},
                  {"weight", normals({vocabulary, d}, "weight", spread / std::sqrt(static_cast<double>(d)))},
                  {"bias", normals({vocabulary}, "bias")},
                  {"dweight0", normals({vocabulary, d}, "dweight0")},
                  {"dbias0", normals({vocabulary}, "dbias0")},
                  {"targets", targets}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Param weight = lab.param(in.at("weight"), in.at("dweight0")),
                bias = lab.param(in.at("bias"), in.at("dbias0"));
    const Tensor h = lab.compute(in.at("h")), targets = lab.whole(in.at("targets"));
    Tensor nll = lab.new_master({tokens}), nll_only = lab.new_master({tokens}), dh = lab.new_compute({tokens, d});
    head_loss(lab.context(), h, weight, bias, targets, scale, nll, &dh);
    head_loss(lab.context(), h, lab.param(in.at("weight")), lab.param(in.at("bias")), targets, scale, nll_only,
              nullptr);
    Array loss = read(nll);
    for (double& value : loss.values) value *= scale;
    return Arrays{{"nll", read(nll)}, {"nll_only", read(nll_only)},   {"loss", loss},
                  {"dh", read(dh)},   {"dweight", read(weight.grad)}, {"dbias", read(bias.grad)}};
  };
  one.reference = [=](const Arrays& in) {
    Array nll = zeros({tokens});
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (in.at("targets")[t] < 0) continue;
      double sum = 0, wanted = 0;
      for (int v = 0; v < vocabulary; ++v) {
        double logit = in.at("bias")[v];
        for (std::int64_t i = 0; i < d; ++i) logit += in.at("h")[t * d + i] * in.at("weight")[v * d + i];
        sum += std::exp(logit);
        if (v == static_cast<int>(in.at("targets")[t])) wanted = logit;
      }
      nll[t] = std::log(sum) - wanted;
    }
    return Arrays{{"nll", nll}, {"nll_only", nll}};
  };
  one.loss = {{"loss", ""}};
  one.gradients = {{"h", "dh"}, {"weight", "dweight", "dweight0"}, {"bias", "dbias", "dbias0"}};
  return one;
}

const bool added =
    add_cases({head_case(1, 12, 11, false, 1), head_case(1, 12, 2, true, 1), head_case(70, 24, 67, false, 1),
               head_case(9, 16, 300, false, 20), head_case(2100, 8, 40, false, 1)});

}  // namespace
}  // namespace some::test
