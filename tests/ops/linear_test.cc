#include "ops/linear.h"

#include "ops/columns.h"
#include "ops/harness.h"
#include "ops/linear_pair.h"

namespace some::test {
namespace {

double plain_gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

Array plain_affine(const Array& x, const Array& weight, const Array* bias) {
  const std::int64_t rows = x.dim(0), in = x.dim(1), out = weight.dim(0);
  Array y = zeros({rows, out});
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = bias != nullptr ? (*bias)[o] : 0.0;
      for (std::int64_t i = 0; i < in; ++i) sum += x[t * in + i] * weight[o * in + i];
      y[t * out + o] = sum;
    }
  }
  return y;
}

Arrays linear_inputs(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {{"x", normals({rows, in}, "x")},
          {"weight", normals({out, in}, "weight", 1.0 / std::sqrt(static_cast<double>(in)))},
          {"bias", normals({out}, "bias")},
          {"dy", normals({rows, out}, "dy")},
          {"dweight0", normals({out, in}, "dweight0")},
          {"dbias0", normals({out}, "dbias0")},
          {"dx0", normals({rows, in}, "dx0")}};
}

// apart: columns that matrices of activations have in addition on a GPU.
OpCase linear_case(std::int64_t rows, std::int64_t in, std::int64_t out, bool with_bias, Into into,
                   std::int64_t apart = 0) {
  OpCase one;
  one.name = fmt::format("linear_{}x{}x{}{}{}{}", rows, in, out, with_bias ? "_bias" : "",
                         into == Into::add ? "_add" : "", apart > 0 ? "_apart" : "");
  one.inputs = [=] { return linear_inputs(rows, in, out); };
  one.run = [=](Lab& lab, const Arrays& in_) {
    const Param weight = lab.param(in_.at("weight"), in_.at("dweight0"));
    const Param bias = with_bias ? lab.param(in_.at("bias"), in_.at("dbias0")) : Param{};
    const std::int64_t more = lab.context().device.is_cpu() ? 0 : apart;
    const Tensor x = lab.compute(widened(in_.at("x"), in + more)), dy = lab.compute(widened(in_.at("dy"), out + more));
    Tensor y = lab.new_compute({rows, out + more}), y_master = lab.new_master({rows, out});
    linear_forward(lab.context(), x, weight, bias, y);
    linear_forward(lab.context(), x, weight, bias, y_master);
    Tensor dx = into == Into::add ? lab.compute(widened(in_.at("dx0"), in + more)) : lab.new_compute({rows, in + more});
    linear_backward(lab.context(), dy, x, weight, bias, &dx, into);
    // dy in master precision, and dx not needed
    const Param again = lab.param(in_.at("weight"), in_.at("dweight0"));
    linear_backward(lab.context(), lab.master(in_.at("dy")), x, again, Param{}, nullptr, Into::overwrite);
    Arrays results{{"y", narrowed(y, out)},
                   {"y_master", read(y_master)},
                   {"dx", narrowed(dx, in)},
                   {"dweight", read(weight.grad)},
                   {"dweight_master", read(again.grad)}};
    if (with_bias) results["dbias"] = read(bias.grad);
    return results;
  };
  one.reference = [=](const Arrays& in_) {
    const Array y = plain_affine(in_.at("x"), in_.at("weight"), with_bias ? &in_.at("bias") : nullptr);
    return Arrays{{"y", y}, {"y_master", y}};
  };
  one.loss = {{"y", "dy"}};
  one.gradients = {{"x", "dx", into == Into::add ? "dx0" : ""},
                   {"weight", "dweight", "dweight0"},
                   {"weight", "dweight_master", "dweight0"}};
  if (with_bias) one.gradients.push_back({"bias", "dbias", "dbias0"});
  return one;
}

OpCase linear_gelu_case(std::int64_t rows, std::int64_t in, std::int64_t out) {
  OpCase one;
  one.name = fmt::format("linear_gelu_{}x{}x{}", rows, in, out);
  one.inputs = [=] { return linear_inputs(rows, in, out); };
  one.run = [=](Lab& lab, const Arrays& in_) {
    const Param weight = lab.param(in_.at("weight"), in_.at("dweight0")),
                bias = lab.param(in_.at("bias"), in_.at("dbias0"));
    Tensor pre = lab.new_compute({rows, out}), y = lab.new_compute({rows, out});
    linear_gelu_forward(lab.context(), lab.compute(in_.at("x")), weight, bias, pre, y);
    Tensor dy = lab.compute(in_.at("dy"));
    Tensor dx = lab.new_compute({rows, in});
    linear_gelu_backward(lab.context(), pre, dy, lab.compute(in_.at("x")), weight, bias, &dx, Into::overwrite);
    // A layer without a bias gives the same dx.
    Tensor dy_plain = lab.compute(in_.at("dy")), dx_plain = lab.new_compute({rows, in});
    linear_gelu_backward(lab.context(), pre, dy_plain, lab.compute(in_.at("x")), lab.param(in_.at("weight")), Param(),
                         &dx_plain, Into::overwrite);
    return Arrays{{"pre", read(pre)},
                  {"y", read(y)},
                  {"dpre", read(dy)},
                  {"dbias", read(bias.grad)},
                  {"dx", read(dx)},
                  {"dx_plain", read(dx_plain)},
                  {"dweight", read(weight.grad)}};
  };
  one.reference = [=](const Arrays& in_) {
    const Array pre = plain_affine(in_.at("x"), in_.at("weight"), &in_.at("bias"));
    Array y = pre;
    for (double& value : y.values) value = plain_gelu(value);
    return Arrays{{"pre", pre}, {"y", y}};
  };
  one.loss = {{"y", "dy"}};
  one.gradients = {{"bias", "dbias", "dbias0"}, {"weight", "dweight", "dweight0"}, {"x", "dx"}, {"x", "dx_plain"}};
  return one;
}

// Two layers with a shared input; the result is the same as computing one after the other.
OpCase linear_inputs_case(std::int64_t rows, std::int64_t in, std::int64_t first, std::int64_t second, Into into) {
  OpCase one;
  one.name = fmt::format("linear_inputs_{}x{}x{}x{}{}", rows, in, first, second, into == Into::add ? "_add" : "");
  one.inputs = [=] {
    const auto weight = [&](std::int64_t out, const std::string& name) {
      return normals({out, in}, name, 1.0 / std::sqrt(static_cast<double>(in)));
    };
    return Arrays{{"first", weight(first, "first")},
                  {"second", weight(second, "second")},
                  {"dfirst", normals({rows, first}, "dfirst")},
                  {"dsecond", normals({rows, second}, "dsecond")},
                  {"dx0", normals({rows, in}, "dx0")}};
  };
  one.run = [=](Lab& lab, const Arrays& in_) {
    Tensor dx = into == Into::add ? lab.compute(in_.at("dx0")) : lab.new_compute({rows, in});
    linear_inputs_backward(lab.context(), lab.compute(in_.at("dfirst")), lab.param(in_.at("first")),
                           lab.compute(in_.at("dsecond")), lab.param(in_.at("second")), dx, into);
    return Arrays{{"dx", read(dx)}};
  };
  one.reference = [=](const Arrays& in_) {
    Array dx = into == Into::add ? in_.at("dx0") : zeros({rows, in});
    for (const std::string name : {"first", "second"}) {
      const Array &weight = in_.at(name), &dy = in_.at("d" + name);
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t o = 0; o < weight.dim(0); ++o) {
          for (std::int64_t i = 0; i < in; ++i) dx[t * in + i] += dy[t * weight.dim(0) + o] * weight[o * in + i];
        }
      }
    }
    return Arrays{{"dx", dx}};
  };
  return one;
}

OpCase linear_two_case(std::int64_t rows, std::int64_t in, std::int64_t first, std::int64_t second, bool with_bias) {
  OpCase one;
  one.name = fmt::format("linear_two_{}x{}x{}x{}{}", rows, in, first, second, with_bias ? "_bias" : "");
  one.inputs = [=] {
    Arrays inputs = linear_inputs(rows, in, first);
    inputs["other"] = normals({second, in}, "other", 1.0 / std::sqrt(static_cast<double>(in)));
    return inputs;
  };
  one.run = [=](Lab& lab, const Arrays& in_) {
    const Param bias = with_bias ? lab.param(in_.at("bias")) : Param{};
    Tensor pre = lab.new_compute({rows, first}), y = lab.new_compute({rows, first}),
           other = lab.new_compute({rows, second});
    linear_two_forward(lab.context(), lab.compute(in_.at("x")), lab.param(in_.at("weight")), bias, pre, y,
                       lab.param(in_.at("other")), other);
    return Arrays{{"pre", read(pre)}, {"y", read(y)}, {"other", read(other)}};
  };
  one.reference = [=](const Arrays& in_) {
    const Array pre = plain_affine(in_.at("x"), in_.at("weight"), with_bias ? &in_.at("bias") : nullptr);
    Array y = pre;
    for (double& value : y.values) value = plain_gelu(value);
    return Arrays{{"pre", pre}, {"y", y}, {"other", plain_affine(in_.at("x"), in_.at("other"), nullptr)}};
  };
  return one;
}

OpCase linear_after_gelu_case(std::int64_t rows, std::int64_t in, std::int64_t out) {
  OpCase one;
  one.name = fmt::format("linear_after_gelu_{}x{}x{}", rows, in, out);
  one.inputs = [=] {
    Arrays inputs = linear_inputs(rows, in, out);
    for (double& value : inputs.at("x").values) value *= 2;
    return inputs;
  };
  one.run = [=](Lab& lab, const Arrays& in_) {
    const Param weight = lab.param(in_.at("weight"), in_.at("dweight0")),
                bias = lab.param(in_.at("bias"), in_.at("dbias0"));
    Array active = in_.at("x");
    for (double& value : active.values) value = plain_gelu(value);
    const Tensor pre = lab.compute(in_.at("x")), y = lab.compute(active);
    Tensor dpre = lab.new_compute({rows, in});
    linear_after_gelu_backward(lab.context(), lab.compute(in_.at("dy")), y, weight, bias, pre, dpre);
    return Arrays{{"dpre", read(dpre)}, {"dweight", read(weight.grad)}, {"dbias", read(bias.grad)}};
  };
  one.reference = [=](const Arrays& in_) {
    const Array &x = in_.at("x"), &weight = in_.at("weight"), &dy = in_.at("dy");
    Array dpre = zeros({rows, in}), dweight = in_.at("dweight0"), dbias = in_.at("dbias0");
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t o = 0; o < out; ++o) {
        dbias[o] += dy[t * out + o];
        for (std::int64_t i = 0; i < in; ++i) {
          const double at = x[t * in + i], pi = 3.14159265358979323846;
          const double slope =
              0.5 * (1.0 + std::erf(at / std::sqrt(2.0))) + at * std::exp(-0.5 * at * at) / std::sqrt(2.0 * pi);
          dpre[t * in + i] += dy[t * out + o] * weight[o * in + i] * slope;
          dweight[o * in + i] += dy[t * out + o] * plain_gelu(at);
        }
      }
    }
    return Arrays{{"dpre", dpre}, {"dweight", dweight}, {"dbias", dbias}};
  };
  return one;
}

const bool added = add_cases({
    linear_case(1, 12, 11, true, Into::overwrite),
    linear_case(1, 1, 1, false, Into::add),
    linear_case(7, 12, 36, true, Into::add),
    linear_case(130, 33, 17, false, Into::overwrite),
    linear_case(300, 64, 200, true, Into::add),
    linear_case(1100, 48, 40, true, Into::overwrite),
    linear_case(300, 72, 200, true, Into::add, 8),
    linear_case(130, 40, 24, true, Into::overwrite, 8),
    linear_inputs_case(1, 12, 11, 5, Into::add),
    linear_inputs_case(130, 64, 72, 200, Into::overwrite),
    linear_inputs_case(300, 320, 256, 128, Into::add),
    linear_inputs_case(700, 264, 24, 136, Into::add),
    linear_two_case(1, 12, 11, 5, true),
    linear_two_case(130, 64, 72, 200, true),
    linear_two_case(300, 136, 256, 512, true),
    linear_two_case(700, 40, 264, 24, false),
    linear_after_gelu_case(1, 12, 11),
    linear_after_gelu_case(300, 256, 64),
    linear_after_gelu_case(150, 136, 72),
    linear_gelu_case(1, 12, 11),
    linear_gelu_case(65, 24, 96),
    linear_gelu_case(300, 16, 520),
    linear_gelu_case(2100, 16, 72),
});

}  // namespace
}  // namespace some::test
