#include "ops/experts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/harness.h"
#include "ops/router_backward.h"
#include "runtime/schedule.h"

namespace some::test {
namespace {

enum class Choice { spread, all_one, skip_first };  // skip_first: expert 0 has no tokens

struct ExpertsShape {
  std::int64_t tokens, d, f;
  int experts, k;
  Choice choice = Choice::spread;
  bool features = false, learning = false;
  bool kept = false;      // stores the outputs for the backward pass, if the device supports it
  std::int64_t rank = 0;  // rank of a trained low-rank correction; 0: none
};

double plain_gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

Array choices_of(const ExpertsShape& s) {
  Array indices = zeros({s.tokens, s.k});
  const RandomStream stream = random_stream(7, "choices");
  const int first = s.choice == Choice::skip_first ? 1 : 0, usable = s.experts - first;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    // Distinct experts: a random start, then consecutive experts.
    const int start =
        s.choice == Choice::all_one
            ? 0
            : static_cast<int>(stream.below(static_cast<std::uint64_t>(t), static_cast<std::uint32_t>(usable)));
    for (int i = 0; i < s.k; ++i) indices[t * s.k + i] = first + (start + i) % usable;
  }
  return indices;
}

Arrays expert_inputs(const ExpertsShape& s) {
  const std::int64_t width = s.features ? s.f : s.d;
  Array gates = normals({s.tokens, s.k}, "gates");
  Arrays inputs{{"x", normals({s.tokens, s.d}, "x")},
                {"w1", normals({s.experts, s.f, s.d}, "w1", 1.0 / std::sqrt(static_cast<double>(s.d)))},
                {"gates", gates},
                {"indices", choices_of(s)},
                {"dy", normals({s.tokens, width}, "dy")},
                {"dx0", normals({s.tokens, s.d}, "dx0")}};
  if (!s.features) inputs["w2"] = normals({s.experts, s.d, s.f}, "w2", 1.0 / std::sqrt(static_cast<double>(s.f)));
  if (s.learning) inputs["dw1_0"] = normals({s.experts, s.f, s.d}, "dw1_0");
  if (s.learning && !s.features) inputs["dw2_0"] = normals({s.experts, s.d, s.f}, "dw2_0");
  if (s.rank > 0) {
    const auto factors = [&](const std::string& name, std::int64_t out, std::int64_t in) {
      inputs[name + "a"] = normals({s.experts, s.rank, in}, name + "a", 1.0 / std::sqrt(static_cast<double>(in)));
      inputs[name + "b"] = normals({s.experts, out, s.rank}, name + "b", 1.0 / std::sqrt(static_cast<double>(s.rank)));
      inputs["d" + name + "a_0"] = normals({s.experts, s.rank, in}, "d" + name + "a_0");
      inputs["d" + name + "b_0"] = normals({s.experts, out, s.rank}, "d" + name + "b_0");
    };
    factors("low1", s.f, s.d);
    factors("low2", s.d, s.f);
  }
  return inputs;
}

// Returns the effective matrix of an expert, with its correction merged in; no operation ever materializes it.
Array effective(const ExpertsShape& s, const Arrays& in, const std::string& matrix, const std::string& correction) {
  Array merged = in.at(matrix);
  if (s.rank == 0) return merged;
  const Array& a = in.at(correction + "a");
  const Array& b = in.at(correction + "b");
  const std::int64_t out = b.dim(1), inputs = a.dim(2);
  for (std::int64_t row = 0; row < s.experts * out; ++row) {
    for (std::int64_t i = 0; i < inputs; ++i) {
      for (std::int64_t r = 0; r < s.rank; ++r)
        merged[row * inputs + i] += b[row * s.rank + r] * a[(row / out * s.rank + r) * inputs + i];
    }
  }
  return merged;
}

// Returns the last layer of an mlp router that chose the experts, where only the gates' gradient is propagated.
RouterBackward some_router(Lab& lab, const ExpertsShape& s, const Tensor& dgates) {
  constexpr std::int64_t size = 16, hidden = 24;
  Context& ctx = lab.context();
  RouterBackward router;
  router.raw = lab.master(normals({s.tokens, size}, "raw"));
  router.query = lab.new_master({s.tokens, size});
  router.norms = lab.new_master({s.tokens, 2});
  query_forward(ctx, router.raw, nullptr, 0, router.query, router.norms);
  router.keys = lab.master(normals({s.experts, size}, "keys"));
  router.temperature = lab.new_master({1});
  fill(ctx, 0.7, router.temperature);
  router.routing = {lab.whole(choices_of(s)), lab.new_master({s.tokens, s.k}), lab.new_master({s.tokens, s.k})};
  route_forward(ctx, router.query, router.keys, nullptr, router.temperature, true, router.routing);
  router.weight = lab.param(normals({size, hidden}, "router_weight"), zeros({size, hidden}));
  router.bias = lab.param(normals({size}, "router_bias"), zeros({size}));
  router.pre = lab.compute(normals({s.tokens, hidden}, "router_pre"));
  router.act = lab.compute(normals({s.tokens, hidden}, "router_act"));
  router.dgates = dgates;
  router.draw = lab.new_compute({s.tokens, size});
  router.dpre = lab.new_compute({s.tokens, hidden});
  return router;
}

OpCase experts_case(ExpertsShape s) {
  OpCase one;
  one.name = fmt::format("experts_t{}_d{}_f{}_e{}_k{}{}{}{}{}", s.tokens, s.d, s.f, s.experts, s.k,
                         s.choice == Choice::all_one      ? "_all_one"
                         : s.choice == Choice::skip_first ? "_unused"
                                                          : "",
                         s.features ? "_features" : "",
                         s.learning ? "_learning"
                         : s.kept   ? "_kept"
                                    : "",
                         s.rank > 0 ? fmt::format("_lora{}", s.rank) : "");
  const std::int64_t width = s.features ? s.f : s.d;
  one.inputs = [=] { return expert_inputs(s); };
  one.run = [=](Lab& lab, const Arrays& in) {
    Context& ctx = lab.context();
    const DispatchPlan plan = make_dispatch(ctx, lab.whole(in.at("indices")), s.experts);
    ExpertWeights weights;
    weights.w1 = lab.compute(in.at("w1"));
    if (!s.features) weights.w2 = lab.compute(in.at("w2"));
    const Tensor x = lab.compute(in.at("x")), gates = lab.master(in.at("gates"));
    ExpertTape tape;
    tape.pre = lab.new_compute({s.tokens * s.k, s.f});
    if (s.rank > 0) {
      const auto factors = [&](const std::string& name) {
        return LowRank{lab.param(in.at(name + "a"), in.at("d" + name + "a_0")),
                       lab.param(in.at(name + "b"), in.at("d" + name + "b_0"))};
      };
      weights.low1 = factors("low1");
      tape.low1 = lab.new_compute({s.tokens * s.k, s.rank});
      if (!s.features) {
        weights.low2 = factors("low2");
        tape.low2 = lab.new_compute({s.tokens * s.k, s.rank});
      }
    }
    Tensor y = lab.new_compute({s.tokens, width});
    const bool kept = s.kept && experts_keep_outputs(ctx, weights);
    EXPECT_EQ(kept, s.kept && ctx.compute == DType::bf16) << "or this case tests nothing of its own";
    if (kept) tape.outputs = lab.new_compute({s.tokens * s.k, s.d});
    experts_forward(ctx, x, weights, plan, gates, tape, y);
    Arrays results{
        {"order", read(plan.order)}, {"place", read(plan.place)}, {"offsets", read(plan.offsets)}, {"y", read(y)}};
    if (!s.kept) results["pre"] = read(tape.pre);
    Tensor dx = lab.compute(in.at("dx0")), dgates = lab.new_master({s.tokens, s.k});
    ExpertGrads grads;
    if (s.learning) {
      grads.w1 = lab.master(in.at("dw1_0"));
      if (!s.features) grads.w2 = lab.master(in.at("dw2_0"));
    }
    {  // overwrites dx; frozen experts; a new tape, because a tape serves only one backward pass
      ExpertWeights frozen = weights;
      frozen.low1.a.grad = frozen.low1.b.grad = frozen.low2.a.grad = frozen.low2.b.grad = Tensor();
      ExpertTape again;
      again.pre = lab.new_compute(tape.pre.shape());
      if (kept) again.outputs = lab.new_compute(tape.outputs.shape());
      if (tape.low1) again.low1 = lab.new_compute(tape.low1.shape());
      if (tape.low2) again.low2 = lab.new_compute(tape.low2.shape());
      Tensor y_again = lab.new_compute({s.tokens, width}), dx_alone = lab.new_compute({s.tokens, s.d}),
             dgates_again = lab.new_master({s.tokens, s.k});
      experts_forward(ctx, x, frozen, plan, gates, again, y_again);
      experts_backward(
          ctx, {lab.compute(in.at("dy")), x, frozen, plan, gates, again, dx_alone, Into::overwrite, dgates_again});
      results["dx_alone"] = read(dx_alone);
    }
    // A router whose backward pass a GPU computes concurrently gets the same gradients as one computed afterwards.
    RouterBackward concurrently = some_router(lab, s, dgates), afterwards = some_router(lab, s, dgates);
    EXPECT_TRUE(concurrently.independent());
    Schedule schedule(ctx);
    experts_backward(ctx, {lab.compute(in.at("dy")), x, weights, plan, gates, tape, dx, Into::add, dgates,
                           s.learning ? &grads : nullptr, &concurrently, &schedule});
    EXPECT_EQ(concurrently.done, ctx.device.is_cuda());
    for (RouterBackward* const router : {&concurrently, &afterwards}) router_backward(ctx, *router);
    EXPECT_EQ(read(concurrently.draw).values, read(afterwards.draw).values);
    EXPECT_EQ(read(concurrently.dpre).values, read(afterwards.dpre).values);
    EXPECT_EQ(read(concurrently.weight.grad).values, read(afterwards.weight.grad).values);
    results["dx"] = read(dx);
    results["dgates"] = read(dgates);
    if (s.learning) results["dw1"] = read(grads.w1);
    if (s.learning && !s.features) results["dw2"] = read(grads.w2);
    if (s.rank > 0) {
      results["dlow1a"] = read(weights.low1.a.grad);
      results["dlow1b"] = read(weights.low1.b.grad);
    }
    if (s.rank > 0 && !s.features) {
      results["dlow2a"] = read(weights.low2.a.grad);
      results["dlow2b"] = read(weights.low2.b.grad);
    }
    return results;
  };
  one.reference = [=](const Arrays& in) {
    const std::int64_t choices = s.tokens * s.k;
    const Array w1 = effective(s, in, "w1", "low1"), w2 = s.features ? Array() : effective(s, in, "w2", "low2");
    const Array &x = in.at("x"), &indices = in.at("indices");
    Arrays out{{"order", zeros({choices})},
               {"place", zeros({choices})},
               {"offsets", zeros({s.experts + 1})},
               {"y", zeros({s.tokens, width})}};
    if (!s.kept) out["pre"] = zeros({choices, s.f});
    std::int64_t next = 0;
    for (int e = 0; e < s.experts; ++e) {
      for (std::int64_t choice = 0; choice < choices; ++choice) {
        if (static_cast<int>(indices[choice]) != e) continue;
        out["order"][next] = static_cast<double>(choice);
        out["place"][choice] = static_cast<double>(next);
        const std::int64_t t = choice / s.k;
        for (std::int64_t j = 0; j < s.f; ++j) {
          double sum = 0;
          for (std::int64_t i = 0; i < s.d; ++i) sum += w1[(e * s.f + j) * s.d + i] * x[t * s.d + i];
          if (!s.kept) out["pre"][next * s.f + j] = sum;
          const double hidden = in.at("gates")[choice] * plain_gelu(sum);
          if (s.features) {
            out["y"][t * s.f + j] += hidden;
          } else {
            for (std::int64_t i = 0; i < s.d; ++i) out["y"][t * s.d + i] += hidden * w2[(e * s.d + i) * s.f + j];
          }
        }
        ++next;
      }
      out["offsets"][e + 1] = static_cast<double>(next);
    }
    return out;
  };
  one.exact = {"order", "place", "offsets"};
  one.loss = {{"y", "dy"}};
  // Large cases test the GPU against the CPU; finite differences on the CPU are only for small cases.
  if (s.experts * s.f * s.d > 1 << 19) return one;
  one.gradients = {{"x", "dx", "dx0"}, {"x", "dx_alone"}, {"gates", "dgates"}};
  if (s.learning) one.gradients.push_back({"w1", "dw1", "dw1_0"});
  if (s.learning && !s.features) one.gradients.push_back({"w2", "dw2", "dw2_0"});
  for (const std::string name : {"low1a", "low1b", "low2a", "low2b"}) {
    if (s.rank > 0 && !(s.features && name[3] == '2')) one.gradients.push_back({name, "d" + name, "d" + name + "_0"});
  }
  return one;
}

OpCase sum_case(std::int64_t tokens, std::int64_t width, std::int64_t k) {
  OpCase one;
  one.name = fmt::format("sum_choices_{}x{}_k{}", tokens, width, k);
  const std::int64_t rows = tokens * k + 3;
  one.inputs = [=] {
    return Arrays{{"rows", normals({rows, width}, "rows")},
                  {"gates", normals({tokens, k}, "gates")},
                  {"y", normals({tokens, width}, "y")},
                  {"place", whole_numbers({tokens, k}, "place", static_cast<int>(rows))}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Tensor given = lab.compute(in.at("rows")), gates = lab.master(in.at("gates")),
                 place = lab.whole(in.at("place"));
    Tensor weighted = lab.new_compute({tokens, width}), added = lab.compute(in.at("y"));
    combine_rows(lab.context(), given, place, &gates, Into::overwrite, weighted);
    combine_rows(lab.context(), given, place, nullptr, Into::add, added);
    return Arrays{{"weighted", read(weighted)}, {"added", read(added)}};
  };
  one.reference = [=](const Arrays& in) {
    Array weighted = zeros({tokens, width}), added = in.at("y");
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
        const auto from = static_cast<std::int64_t>(in.at("place")[i]) * width;
        for (std::int64_t c = 0; c < width; ++c) {
          weighted[t * width + c] += in.at("gates")[i] * in.at("rows")[from + c];
          added[t * width + c] += in.at("rows")[from + c];
        }
      }
    }
    return Arrays{{"weighted", weighted}, {"added", added}};
  };
  return one;
}

const bool added = add_cases({
    sum_case(1, 5, 1),
    sum_case(40, 24, 6),
    experts_case({1, 12, 11, 1, 1}),
    experts_case({1, 12, 11, 5, 5}),
    experts_case({9, 12, 11, 4, 1}),
    experts_case({33, 12, 11, 6, 2, Choice::skip_first}),
    experts_case({70, 16, 24, 3, 3, Choice::spread, false, true}),
    experts_case({300, 24, 40, 5, 2, Choice::all_one}),
    experts_case({600, 8, 16, 2, 1, Choice::all_one, false, true}),
    experts_case({40, 64, 96, 8, 4}),
    experts_case({1, 12, 11, 3, 1, Choice::spread, true}),
    experts_case({50, 12, 11, 6, 3, Choice::skip_first, true, true}),
    experts_case({33, 16, 32, 4, 4, Choice::spread, true}),
    experts_case({33, 12, 11, 6, 2, Choice::skip_first, false, true}),
    experts_case({33, 12, 11, 6, 2, Choice::skip_first, false, false, true}),
    experts_case({70, 24, 40, 5, 3, Choice::spread, false, false, true}),
    experts_case({130, 64, 96, 8, 4, Choice::spread, false, false, true}),
    experts_case({300, 72, 200, 4, 4, Choice::skip_first, false, false, true}),
    experts_case({150, 40, 36, 7, 6, Choice::spread, false, false, true}),
    experts_case({1, 12, 11, 1, 1, Choice::spread, false, false, false, 1}),
    experts_case({50, 12, 11, 6, 3, Choice::skip_first, true, false, false, 3}),
    experts_case({33, 12, 11, 6, 2, Choice::skip_first, false, false, false, 3}),
    experts_case({900, 8, 16, 2, 1, Choice::all_one, false, false, false, 2}),
    experts_case({600, 16, 24, 3, 2, Choice::spread, false, true, false, 2}),
    experts_case({130, 64, 96, 8, 4, Choice::spread, true, false, false, 2}),
    experts_case({130, 64, 96, 8, 4, Choice::spread, false, false, false, 2}),
    experts_case({300, 72, 200, 4, 4, Choice::skip_first, true, false, false, 8}),
    experts_case({300, 72, 200, 4, 4, Choice::skip_first, false, false, false, 8}),
    experts_case({300, 20, 140, 3, 2, Choice::spread}),  // multiples of 4 but not of 8
    experts_case({140, 40, 136, 3, 2, Choice::spread, false, false, false, 11}),
    experts_case({140, 40, 136, 3, 2, Choice::spread, true, false, false, 4}),
    experts_case({100, 416, 264, 2, 1, Choice::all_one, true}),
    experts_case({70, 64, 1024, 5, 4, Choice::skip_first, true}),
    experts_case({150, 40, 136, 7, 6, Choice::spread, true}),
    // More tiles than multiprocessors, for tiles of 256 columns forward or backward.
    experts_case({100, 24, 256, 140, 4, Choice::spread, true}),
    experts_case({700, 72, 512, 62, 1, Choice::all_one, true}),
    experts_case({100, 256, 24, 140, 4, Choice::spread, true}),
    experts_case({700, 256, 72, 130, 1, Choice::all_one, true}),
    experts_case({70, 512, 72, 5, 4, Choice::skip_first, true}),
    experts_case({20, 8, 1040, 2, 2, Choice::spread, true}),
    // Several tiles per block, some with rows for only one half.
    experts_case({160, 24, 512, 200, 4, Choice::spread, true}),
    experts_case({200, 1024, 24, 140, 4, Choice::spread, true}),
    experts_case({4400, 24, 256, 280, 4, Choice::spread, true}),
    experts_case({4400, 256, 24, 280, 4, Choice::spread, true}),
    // The same with a correction; also experts without rows, more steps than stages, and more ranks than such tiles
    // support.
    experts_case({4400, 24, 256, 280, 4, Choice::skip_first, true, false, false, 2}),
    experts_case({4400, 256, 24, 280, 4, Choice::skip_first, true, false, false, 2}),
    experts_case({160, 24, 512, 200, 4, Choice::spread, true, false, false, 1}),
    experts_case({700, 72, 512, 62, 1, Choice::all_one, true, false, false, 2}),
    experts_case({40, 200, 512, 66, 3, Choice::skip_first, true, false, false, 4}),
    experts_case({100, 72, 512, 70, 4, Choice::spread, true, false, false, 3}),
    experts_case({60, 24, 256, 140, 4, Choice::skip_first, true, false, false, 8}),
    experts_case({60, 24, 256, 140, 4, Choice::spread, true, false, false, 9}),
    experts_case({200, 1024, 24, 140, 4, Choice::spread, true, false, false, 2}),
    experts_case({700, 256, 72, 130, 1, Choice::all_one, true, false, false, 1}),
    experts_case({40, 256, 200, 132, 3, Choice::skip_first, true, false, false, 8}),
    experts_case({60, 256, 24, 140, 4, Choice::spread, true, false, false, 5}),
    experts_case({60, 256, 24, 140, 4, Choice::spread, true, false, false, 4}),
    experts_case({60, 256, 24, 140, 4, Choice::skip_first, true, false, false, 9}),
});

TEST(Dispatch, RefusesAnExpertThatDoesNotExist) {
  auto context = make_context("cpu", "fp32");
  Tensor indices = Tensor::zeros({2, 1}, DType::i32);
  indices.data<std::int32_t>()[1] = 3;
  EXPECT_THROW(make_dispatch(*context, indices, 3), Error);
}

}  // namespace
}  // namespace some::test
