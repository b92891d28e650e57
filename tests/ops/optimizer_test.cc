#include "ops/optimizer.h"

#include "ops/harness.h"

namespace some::test {
namespace {

OpCase adam_case(std::int64_t count, double clip, double weight_decay, double gradient_scale) {
  OpCase one;
  one.name = fmt::format("adamw_{}_clip{}_decay{}_grad{}", count, static_cast<int>(clip * 10),
                         static_cast<int>(weight_decay * 10), static_cast<int>(gradient_scale * 100));
  const auto settings_of = [=](std::int64_t step) {
    AdamSettings settings;
    settings.lr = 0.01;
    settings.clip = clip;
    settings.weight_decay = weight_decay;
    settings.step = step;
    return settings;
  };
  one.inputs = [=] {
    return Arrays{{"value", normals({count}, "value")},
                  {"grad1", normals({count}, "grad1", gradient_scale)},
                  {"grad2", normals({count}, "grad2", gradient_scale)}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Tensor value = lab.master(in.at("value")), compute = lab.new_compute({count});
    Tensor first = lab.master(zeros({count})), second = lab.master(zeros({count})), norm = lab.new_master({1});
    Arrays results;
    for (const std::int64_t step : {1, 2}) {
      const Tensor grad = lab.master(in.at(fmt::format("grad{}", step)));
      gradient_norm(lab.context(), grad, norm);
      results[fmt::format("norm{}", step)] = read(norm);
      AdamSettings settings = settings_of(step);
      // The second step reads its rates from memory, and has no separate compute copy, as in a context with a single
      // precision.
      if (step == 2) {
        const std::array<double, 3> rates = adam_rates(settings);
        settings.rates = lab.master({{3}, {rates.begin(), rates.end()}});
        settings.lr = 1e3;
      }
      adamw_step(lab.context(), value, step == 2 && lab.context().compute == lab.context().master ? value : compute,
                 grad, first, second, norm, settings);
      if (step == 1) results["compute"] = read(compute);
    }
    results["value"] = read(value);
    results["first"] = read(first);
    results["second"] = read(second);
    return results;
  };
  one.reference = [=](const Arrays& in) {
    Arrays out{{"value", in.at("value")}, {"first", zeros({count})}, {"second", zeros({count})}};
    for (const int step : {1, 2}) {
      const Array& grad = in.at(fmt::format("grad{}", step));
      double norm = 0;
      for (const double g : grad.values) norm += g * g;
      norm = std::sqrt(norm);
      Array norms = zeros({1});
      norms[0] = norm;
      out[fmt::format("norm{}", step)] = norms;
      const AdamSettings with = settings_of(step);
      const double shrink = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double g = grad[i] * shrink;
        out["first"][i] = with.beta1 * out["first"][i] + (1 - with.beta1) * g;
        out["second"][i] = with.beta2 * out["second"][i] + (1 - with.beta2) * g * g;
        const double m = out["first"][i] / (1 - std::pow(with.beta1, step)),
                     v = out["second"][i] / (1 - std::pow(with.beta2, step));
        out["value"][i] *= 1 - with.lr * with.weight_decay;
        out["value"][i] -= with.lr * m / (std::sqrt(v) + with.eps);
      }
      if (step == 1) out["compute"] = out["value"];
    }
    return out;
  };
  return one;
}

const bool added = add_cases({adam_case(1, 1, 0.1, 1), adam_case(1000, 1, 0.1, 1), adam_case(1003, 0, 0, 1),
                              adam_case(40000, 1, 0.1, 0.01), adam_case(17, 100, 0.5, 1)});

}  // namespace
}  // namespace some::test
