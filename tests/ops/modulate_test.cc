#include "ops/modulate.h"

#include <gtest/gtest.h>

#include "ops/conv.h"
#include "ops/harness.h"

namespace some::test {
namespace {

struct ModulateShape {
  std::int64_t tokens, d, f;
  int experts, k;
  int token_shift = 0;
  bool additive = false, library = true, learning = false;
  int used = 0;  // number of experts that are ever chosen; 0: all
};

constexpr double scale = 2.0;
constexpr std::int64_t length = 6;  // tokens per sequence

double plain_gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

Arrays modulate_inputs(const ModulateShape& s) {
  Array indices = zeros({s.tokens, s.k}), positions = zeros({s.tokens});
  const RandomStream stream = random_stream(7, "choices");
  const int usable = s.used > 0 ? s.used : s.experts;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    positions[t] = static_cast<double>(t % length);
    const auto start = stream.below(static_cast<std::uint64_t>(t), static_cast<std::uint32_t>(usable));
    for (int i = 0; i < s.k; ++i) indices[t * s.k + i] = (static_cast<int>(start) + i) % usable;
  }
  return {{"hidden", normals({s.tokens, s.f}, "hidden")},
          {"x", normals({s.tokens, s.d}, "x")},
          {"positions", positions},
          {"w1", normals({s.experts, s.f, s.d}, "w1", 1.0 / std::sqrt(static_cast<double>(s.d)))},
          {"gates", normals({s.tokens, s.k}, "gates", 0.5)},
          {"indices", indices},
          {"gains", normals({s.experts, s.f}, "gains", 0.25)},
          {"dh", normals({s.tokens, s.f}, "dh")},
          {"dx0", normals({s.tokens, s.d}, "dx0")},
          {"dgains0", normals({s.experts, s.f}, "dgains0")},
          {"dw1_0", normals({s.experts, s.f, s.d}, "dw1_0")}};
}

OpCase modulate_case(ModulateShape s) {
  OpCase one;
  one.name = fmt::format("modulate_t{}_d{}_f{}_e{}_k{}{}{}{}{}{}", s.tokens, s.d, s.f, s.experts, s.k,
                         s.additive ? "_inside" : "", s.token_shift > 0 ? fmt::format("_listen{}", s.token_shift) : "",
                         s.library ? "" : "_gains", s.learning ? "_learning" : "", s.used > 0 ? "_unused" : "");
  one.inputs = [=] { return modulate_inputs(s); };
  one.run = [=](Lab& lab, const Arrays& in) {
    Context& ctx = lab.context();
    Modulation m;
    m.hidden = lab.compute(in.at("hidden"));
    m.states = lab.compute(in.at("x"));
    m.token_shift = s.token_shift;
    if (s.token_shift > 0) {
      m.rows = lab.new_whole({s.tokens, s.token_shift + 2});  // a wider table than is needed
      conv_rows(ctx, lab.whole(in.at("positions")), m.rows);
    }
    if (s.library) m.w1 = lab.compute(in.at("w1"));
    m.routing.indices = lab.whole(in.at("indices"));
    m.routing.gates = lab.master(in.at("gates"));
    m.plan = make_dispatch(ctx, m.routing.indices, s.experts);
    m.gains = lab.param(in.at("gains"), in.at("dgains0"));
    m.scale = scale;
    m.additive = s.additive;
    Tensor pre = s.library ? lab.new_compute({s.tokens * s.k, s.f}) : Tensor(), h = lab.new_compute({s.tokens, s.f});
    modulate_forward(ctx, m, pre, h);
    Tensor dh = lab.compute(in.at("dh")), dhidden = lab.new_compute({s.tokens, s.f}), dx = lab.compute(in.at("dx0")),
           dgates = lab.new_master({s.tokens, s.k});
    ExpertGrads grads;
    if (s.learning) grads.w1 = lab.master(in.at("dw1_0"));
    modulate_backward(ctx, dh, m, pre, dhidden, dx, dgates, s.learning ? &grads : nullptr);
    Arrays results{{"h", read(h)},
                   {"dhidden", read(dhidden)},
                   {"dx", read(dx)},
                   {"dgates", read(dgates)},
                   {"dgains", read(m.gains.grad)}};
    if (s.learning) results["dw1"] = read(grads.w1);
    return results;
  };
  one.reference = [=](const Arrays& in) {
    Array h = zeros({s.tokens, s.f});
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t j = 0; j < s.f; ++j) {
        double v = 0;
        for (std::int64_t i = t * s.k; i < (t + 1) * s.k; ++i) {
          const auto e = static_cast<std::int64_t>(in.at("indices")[i]);
          const std::int64_t back = s.token_shift > 0 ? 1 + e % s.token_shift : 0;
          double activation = s.library ? 0 : 1;
          for (std::int64_t c = 0; c < s.d && s.library && t % length >= back; ++c)
            activation += in.at("w1")[(e * s.f + j) * s.d + c] * in.at("x")[(t - back) * s.d + c];
          v += scale * in.at("gates")[i] * in.at("gains")[e * s.f + j] * activation;
        }
        const double z = in.at("hidden")[t * s.f + j];
        h[t * s.f + j] = s.additive ? plain_gelu(z + v) : plain_gelu(z) * (1 + v);
      }
    }
    return Arrays{{"h", h}};
  };
  one.loss = {{"h", "dh"}};
  one.gradients = {{"hidden", "dhidden"}, {"x", "dx", "dx0"}, {"gates", "dgates"}, {"gains", "dgains", "dgains0"}};
  if (s.learning) one.gradients.push_back({"w1", "dw1", "dw1_0"});
  return one;
}

const bool added = add_cases({
    modulate_case({1, 12, 11, 1, 1}),
    modulate_case({9, 12, 11, 5, 5}),
    modulate_case({70, 16, 24, 7, 2, 0, false, true, false, 4}),
    modulate_case({150, 24, 40, 6, 4}),
    modulate_case({33, 12, 11, 6, 2, 0, true}),
    modulate_case({150, 24, 40, 6, 4, 3, true}),
    modulate_case({40, 12, 11, 6, 3, 2, false}),
    modulate_case({40, 8, 16, 5, 5, 3, true, true, true}),
    modulate_case({60, 16, 24, 4, 2, 0, false, true, true}),
    modulate_case({33, 12, 11, 6, 2, 0, false, false}),
    modulate_case({70, 8, 24, 6, 3, 0, true, false}),
    modulate_case({400, 40, 72, 4, 4, 3, true}),
    modulate_case({130, 64, 96, 8, 4, 0, false}),
    // Sizes that are multiples of 4 but not of 8.
    modulate_case({150, 24, 44, 6, 4}),
    modulate_case({300, 20, 68, 3, 2, 3, true}),
    modulate_case({500, 36, 252, 2, 2}),
});

}  // namespace
}  // namespace some::test
