#include "ops/deferred_gradients.h"

#include <gtest/gtest.h>

#include "kernels/reduce/deferred_sums.h"
#include "ops/harness.h"
#include "ops/linear.h"
#include "tensor/device.h"

namespace some::test {
namespace {

struct Matrix {
  std::int64_t out, in;
  bool with_bias;
};

Array plain_outer(const Array& dy, const Array& x, Array start, int times) {
  const std::int64_t rows = x.dim(0), out = dy.dim(1), in = x.dim(1);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t o = 0; o < out; ++o) {
      const double factor = times * dy[t * out + o];
      for (std::int64_t i = 0; i < in; ++i) start[o * in + i] += factor * x[t * in + i];
    }
  }
  return start;
}

Array plain_sums(const Array& dy, Array start, int times) {
  for (std::int64_t i = 0; i < dy.dim(0) * dy.dim(1); ++i) start[i % dy.dim(1)] += times * dy[i];
  return start;
}

std::string numbered(const char* name, std::size_t i) { return fmt::format("{}{}", name, i); }

Arrays held_inputs(std::int64_t rows, const std::vector<Matrix>& matrices) {
  Arrays out;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& one = matrices[i];
    out[numbered("x", i)] = normals({rows, one.in}, numbered("x", i));
    out[numbered("dy", i)] = normals({rows, one.out}, numbered("dy", i));
    out[numbered("dweight0_", i)] = normals({one.out, one.in}, numbered("dweight0_", i));
    out[numbered("dbias0_", i)] = normals({one.out}, numbered("dbias0_", i));
  }
  return out;
}

struct Layers {
  std::vector<Param> weights, biases;
  std::vector<Tensor> x, dy;
  Layers(Lab& lab, const Arrays& in, const std::vector<Matrix>& matrices) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const Array& start = in.at(numbered("dweight0_", i));
      weights.push_back(lab.param(start, start));
      const Array& bias = in.at(numbered("dbias0_", i));
      biases.push_back(matrices[i].with_bias ? lab.param(bias, bias) : Param());
      x.push_back(lab.compute(in.at(numbered("x", i))));
      dy.push_back(lab.compute(in.at(numbered("dy", i))));
    }
  }
  void backward(Context& ctx, std::size_t i) const {
    linear_backward(ctx, dy[i], x[i], weights[i], biases[i], nullptr, Into::overwrite);
  }
};

// twice: the first matrix's gradient is added to again while it is deferred. forked: the gradients are computed on a
// forked context.
OpCase held_case(const std::string& name, std::int64_t rows, std::vector<Matrix> matrices, bool twice,
                 bool forked = false) {
  OpCase one;
  one.name = "held_gradients_" + name;
  one.inputs = [=] { return held_inputs(rows, matrices); };
  one.run = [=](Lab& lab, const Arrays& in) {
    Schedule schedule(lab.context());
    Context& ctx = schedule.deferring();
    const Layers layers(lab, in, matrices), lost(lab, in, matrices);
    {
      const DeferGradients broken_off(schedule);
      lost.backward(ctx, 0);
    }
    DeferSums sums(schedule);
    DeferGradients gradients(schedule);
    for (std::size_t i = 0; i < matrices.size(); ++i) layers.backward(ctx, i);
    if (twice) layers.backward(ctx, 0);
    if (forked)
      gradients.finish(schedule.fork());
    else
      gradients.finish();
    sums.finish();
    schedule.join();
    Arrays out;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      out[numbered("dweight", i)] = read(layers.weights[i].grad);
      if (matrices[i].with_bias) out[numbered("dbias", i)] = read(layers.biases[i].grad);
    }
    return out;
  };
  one.reference = [=](const Arrays& in) {
    Arrays out;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const int times = twice && i == 0 ? 2 : 1;
      const Array& dy = in.at(numbered("dy", i));
      out[numbered("dweight", i)] = plain_outer(dy, in.at(numbered("x", i)), in.at(numbered("dweight0_", i)), times);
      if (matrices[i].with_bias) out[numbered("dbias", i)] = plain_sums(dy, in.at(numbered("dbias0_", i)), times);
    }
    return out;
  };
  one.bf16_tolerance = 1e-4;  // every input is representable in bf16 and sums are fp32
  return one;
}

// More than half as many tiles of 128 x 128 as a large GPU has multiprocessors, and tokens for more stages than the
// ring has, the last of them not full.
std::vector<Matrix> many_tiles() {
  std::vector<Matrix> out(7, {264, 264, true});
  out.push_back({136, 328, false});
  return out;
}

const bool added = add_cases({
    held_case("many_tiles", 499, many_tiles(), false),
    held_case("many_tiles_twice", 61, many_tiles(), true),
    held_case("few_tiles", 130, {{40, 24, true}, {72, 200, false}, {33, 17, true}, {8, 8, true}}, true),
    held_case("forked", 300, {{64, 40, true}, {36, 20, true}, {200, 136, true}, {8, 128, false}}, false, true),
    held_case("more_than_fit_a_launch", 70, std::vector<Matrix>(10, {24, 40, true}), false),
});

TEST(DeferredGradients, FiftyTimesTheSameBits) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  const std::vector<Matrix> matrices = many_tiles();
  const Arrays in = held_inputs(3000, matrices);
  Lab lab("cuda", "bf16");
  const Layers layers(lab, in, matrices);
  Schedule schedule(lab.context());
  const auto start = [&](std::size_t i, const char* name) { return lab.master(in.at(numbered(name, i))); };
  std::vector<std::vector<double>> first;
  for (int repeat = 0; repeat < 50; ++repeat) {
    DeferSums sums(schedule);
    DeferGradients gradients(schedule);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      Tensor weight = layers.weights[i].grad;
      weight.copy_from(start(i, "dweight0_"));
      if (matrices[i].with_bias) {
        Tensor bias = layers.biases[i].grad;
        bias.copy_from(start(i, "dbias0_"));
      }
      layers.backward(schedule.deferring(), i);
    }
    gradients.finish();
    sums.finish();
    std::vector<std::vector<double>> now;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      now.push_back(read(layers.weights[i].grad).values);
      if (matrices[i].with_bias) now.push_back(read(layers.biases[i].grad).values);
    }
    if (repeat == 0) first = now;
    ASSERT_EQ(now, first) << "in repetition " << repeat;
  }
}

}  // namespace
}  // namespace some::test
