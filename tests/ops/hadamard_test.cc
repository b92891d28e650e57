#include "ops/hadamard.h"

#include <gtest/gtest.h>

#include <bit>

#include "ops/columns.h"
#include "ops/conv.h"
#include "ops/harness.h"
#include "runtime/schedule.h"

namespace some::test {
namespace {

enum class Form { features, published, modulated };

struct HadamardShape {
  std::int64_t tokens;
  int d, f, experts, k;
  Form form = Form::features;
  int transforms = 1;
  bool cached = true;
  int token_shift = 0;
  bool additive = false;
  int used = 0;  // number of experts that are ever chosen; 0: all
};

constexpr double scale = 2.0;
constexpr std::int64_t length = 6;  // tokens per sequence

double plain_gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }

HadamardSizes sizes_of(const HadamardShape& s) { return {s.d, s.f, s.transforms}; }

Tensor words_of(const Context& ctx, const HadamardShape& s, const RandomStream& stream) {
  const auto count = static_cast<std::int64_t>(sizes_of(s).words_per_expert()) * s.experts;
  const Tensor words = Tensor::empty({count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i)
    words.data<std::int64_t>()[i] = static_cast<std::int64_t>(stream.bits64(static_cast<std::uint64_t>(i)));
  return words.to(ctx.device);
}

HadamardExperts experts_of(const Context& ctx, const HadamardShape& s) {
  HadamardExperts out;
  out.experts = s.experts;
  out.sizes = sizes_of(s);
  out.has_w2 = s.form == Form::published;
  out.stream1 = random_stream(3, "down");
  out.stream2 = random_stream(3, "up");
  if (s.cached) {
    out.cached1 = words_of(ctx, s, out.stream1);
    out.cached2 = words_of(ctx, s, out.stream2);
  }
  return out;
}

// w1 [E, f, d], or w2 transposed, by the definition: matrices multiplied with each other, factors of spec 3.
Array plain_matrix(const HadamardShape& s, const RandomStream& stream, int inputs) {
  const HadamardSizes sizes = sizes_of(s);
  const std::int64_t size = sizes.size();
  const auto hadamard = [&](std::int64_t i, std::int64_t j) {
    return (std::popcount(static_cast<std::uint64_t>(i & j)) % 2 == 0 ? 1 : -1) / std::sqrt(static_cast<double>(size));
  };
  Array out = zeros({s.experts, s.f, s.d});
  for (std::int64_t e = 0; e < s.experts; ++e) {
    for (int b = 0; b < sizes.blocks(); ++b) {
      std::vector<double> block(static_cast<std::size_t>(size * size));
      for (int m = 0; m < s.transforms; ++m) {
        const auto first = static_cast<std::uint64_t>(((e * sizes.blocks() + b) * s.transforms + m) * sizes.words());
        std::vector<double> signs(static_cast<std::size_t>(size)), next(block.size());
        for (std::int64_t c = 0; c < size; ++c) {
          const std::uint64_t word = stream.bits64(first + static_cast<std::uint64_t>(c / 64));
          signs[static_cast<std::size_t>(c)] = (word >> (c % 64) & 1) != 0 ? -1 : 1;
        }
        for (std::int64_t i = 0; i < size; ++i) {
          double* row = next.data() + i * size;
          for (std::int64_t c = 0; c < size; ++c) {
            const double number = hadamard(i, c) * signs[static_cast<std::size_t>(c)];
            if (m == 0) {
              row[c] = number;
              continue;
            }
            for (std::int64_t j = 0; j < size; ++j) row[j] += number * block[static_cast<std::size_t>(c * size + j)];
          }
        }
        std::swap(block, next);
      }
      for (std::int64_t i = 0; i < size && b * size + i < s.f; ++i) {
        for (std::int64_t j = 0; j < s.d; ++j)
          out[(e * s.f + b * size + i) * s.d + j] =
              std::sqrt(static_cast<double>(size) / (3.0 * inputs)) * block[static_cast<std::size_t>(i * size + j)];
      }
    }
  }
  return out;
}

Arrays hadamard_inputs(const HadamardShape& s) {
  Array indices = zeros({s.tokens, s.k}), positions = zeros({s.tokens});
  const RandomStream stream = random_stream(7, "choices");
  const int usable = s.used > 0 ? s.used : s.experts;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    positions[t] = static_cast<double>(t % length);
    const auto start = stream.below(static_cast<std::uint64_t>(t), static_cast<std::uint32_t>(usable));
    for (int i = 0; i < s.k; ++i) indices[t * s.k + i] = (static_cast<int>(start) + i) % usable;
  }
  const std::int64_t width = s.form == Form::published ? s.d : s.f;
  return {{"hidden", normals({s.tokens, s.f}, "hidden")},
          {"x", normals({s.tokens, s.d}, "x")},
          {"positions", positions},
          {"gates", normals({s.tokens, s.k}, "gates", 0.5)},
          {"indices", indices},
          {"gains", normals({s.experts, s.f}, "gains", 0.25)},
          {"dy", normals({s.tokens, width}, "dy")},
          {"dx0", normals({s.tokens, s.d}, "dx0")},
          {"dgains0", normals({s.experts, s.f}, "dgains0")}};
}

Arrays run_experts(const HadamardShape& s, Lab& lab, const Arrays& in) {
  Context& ctx = lab.context();
  const HadamardExperts experts = experts_of(ctx, s);
  const Tensor x = lab.compute(in.at("x")), indices = lab.whole(in.at("indices")), gates = lab.master(in.at("gates")),
               dy = lab.compute(in.at("dy"));
  Tensor y = lab.new_compute({s.tokens, s.form == Form::published ? s.d : s.f}), dx = lab.compute(in.at("dx0")),
         dx_alone = lab.new_compute({s.tokens, s.d}), dgates = lab.new_master({s.tokens, s.k}),
         dgates_again = lab.new_master({s.tokens, s.k});
  hadamard_experts_forward(ctx, x, experts, indices, gates, y);
  hadamard_experts_backward(ctx, {dy, x, experts, indices, gates, dx_alone, Into::overwrite, dgates_again});
  hadamard_experts_backward(ctx, {lab.compute(in.at("dy")), x, experts, indices, gates, dx, Into::add, dgates});
  EXPECT_EQ(read(dgates).values, read(dgates_again).values);
  return {{"y", read(y)}, {"dx", read(dx)}, {"dx_alone", read(dx_alone)}, {"dgates", read(dgates)}};
}

Arrays run_modulated(const HadamardShape& s, Lab& lab, const Arrays& in) {
  Context& ctx = lab.context();
  const std::int64_t width = hadamard_modulate_width(ctx, experts_of(ctx, s));
  EXPECT_GE(width, s.f);
  Modulation m;
  m.hidden = lab.compute(widened(in.at("hidden"), width));
  m.states = lab.compute(in.at("x"));
  m.token_shift = s.token_shift;
  if (s.token_shift > 0) {
    m.rows = lab.new_whole({s.tokens, s.token_shift + 2});  // a wider table than is needed
    conv_rows(ctx, lab.whole(in.at("positions")), m.rows);
  }
  m.routing.indices = lab.whole(in.at("indices"));
  m.routing.gates = lab.master(in.at("gates"));
  m.gains = lab.param(in.at("gains"), in.at("dgains0"));
  m.scale = scale;
  m.additive = s.additive;
  m.hadamard = experts_of(ctx, s);
  Tensor none, v = lab.new_compute({s.tokens, width}), y = lab.new_compute({s.tokens, width}),
               again = lab.new_compute({s.tokens, width});
  hadamard_modulate_forward(ctx, m, v, y);
  hadamard_modulate_forward(ctx, m, none, again);
  EXPECT_EQ(narrowed(y, s.f).values, narrowed(again, s.f).values);
  const auto backward = [&](const Tensor& kept) {
    if (m.gains.grad) m.gains.grad = lab.master(in.at("dgains0"));
    Tensor dh = lab.compute(widened(in.at("dy"), width)), dhidden = lab.new_compute({s.tokens, width}),
           dx = lab.compute(in.at("dx0")), dgates = lab.new_master({s.tokens, s.k});
    Schedule schedule(ctx);
    m.plan = kept ? hadamard_modulate_plan(schedule.fork(), m) : DispatchPlan();
    hadamard_modulate_backward(ctx, dh, m, kept, dhidden, dx, dgates, kept ? &schedule : nullptr);
    schedule.join();
    Arrays results{{"y", narrowed(y, s.f)},
                   {"v", narrowed(v, s.f)},
                   {"dhidden", narrowed(dhidden, s.f)},
                   {"dx", read(dx)},
                   {"dgates", read(dgates)}};
    if (s.additive && !ctx.device.is_cpu()) {  // what a GPU keeps is z + V
      Array& modulation = results.at("v");
      for (std::size_t i = 0; i < modulation.values.size(); ++i) modulation.values[i] -= in.at("hidden").values[i];
    }
    if (m.gains.grad) results["dgains"] = read(m.gains.grad);
    return results;
  };
  const Arrays recomputed = backward(Tensor());
  Arrays results = backward(v);
  // A kept row of bf16 is rounded; the CPU recomputes the same bits.
  if (ctx.device.is_cpu()) {
    for (const auto& [name, values] : recomputed) EXPECT_EQ(values.values, results.at(name).values) << name;
  }
  m.gains.grad = Tensor();
  EXPECT_EQ(backward(v).at("dx").values, results.at("dx").values) << "frozen gains";
  return results;
}

Arrays plain_hadamard(const HadamardShape& s, const Arrays& in) {
  const Array w1 = plain_matrix(s, random_stream(3, "down"), s.d),
              w2 = s.form == Form::published ? plain_matrix(s, random_stream(3, "up"), s.f) : Array();
  const std::int64_t width = s.form == Form::published ? s.d : s.f;
  Array y = zeros({s.tokens, width}), v = zeros({s.tokens, s.f});
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t i = t * s.k; i < (t + 1) * s.k; ++i) {
      const auto e = static_cast<std::int64_t>(in.at("indices")[i]);
      const double gate = in.at("gates")[i];
      const std::int64_t back = s.token_shift > 0 ? 1 + e % s.token_shift : 0;
      for (std::int64_t j = 0; j < s.f; ++j) {
        double activation = 0;
        for (std::int64_t c = 0; c < s.d && t % length >= back; ++c)
          activation += w1[(e * s.f + j) * s.d + c] * in.at("x")[(t - back) * s.d + c];
        switch (s.form) {
          case Form::features: y[t * s.f + j] += gate * plain_gelu(activation); break;
          case Form::published:
            for (std::int64_t c = 0; c < s.d; ++c)
              y[t * s.d + c] += gate * w2[(e * s.f + j) * s.d + c] * plain_gelu(activation);
            break;
          case Form::modulated: v[t * s.f + j] += scale * gate * in.at("gains")[e * s.f + j] * activation; break;
        }
      }
    }
  }
  if (s.form != Form::modulated) return {{"y", y}};
  for (std::int64_t j = 0; j < s.tokens * s.f; ++j) {
    const double z = in.at("hidden")[j];
    y[j] = s.additive ? plain_gelu(z + v[j]) : plain_gelu(z) * (1 + v[j]);
  }
  return {{"y", y}, {"v", v}};
}

OpCase hadamard_case(HadamardShape s) {
  OpCase one;
  one.name = fmt::format("hadamard_t{}_d{}_f{}_e{}_k{}_n{}{}{}{}{}", s.tokens, s.d, s.f, s.experts, s.k, s.transforms,
                         s.form == Form::features    ? "_features"
                         : s.form == Form::published ? "_published"
                         : s.additive                ? "_additive"
                                                     : "_modulated",
                         s.token_shift > 0 ? fmt::format("_shift{}", s.token_shift) : "", s.cached ? "" : "_uncached",
                         s.used > 0 ? "_unused" : "");
  one.inputs = [=] { return hadamard_inputs(s); };
  one.run = [=](Lab& lab, const Arrays& in) {
    return s.form == Form::modulated ? run_modulated(s, lab, in) : run_experts(s, lab, in);
  };
  one.reference = [=](const Arrays& in) { return plain_hadamard(s, in); };
  one.loss = {{"y", "dy"}};
  if (s.tokens * s.f * s.d > 1 << 18) return one;  // finite differences only for small cases
  one.gradients = {{"x", "dx", "dx0"}, {"gates", "dgates"}};
  if (s.form == Form::modulated) {
    one.gradients.push_back({"hidden", "dhidden"});
    one.gradients.push_back({"gains", "dgains", "dgains0"});
  } else {
    one.gradients.push_back({"x", "dx_alone"});
  }
  return one;
}

const bool added = add_cases({
    // One token; sizes that are not powers of two; rows cut within a block, in the first and in the last one.
    hadamard_case({1, 1, 1, 1, 1}),
    hadamard_case({1, 12, 11, 1, 1, Form::published}),
    hadamard_case({9, 12, 5, 5, 5, Form::features, 1, false}),
    hadamard_case({33, 12, 40, 6, 2, Form::published, 1, false}),
    hadamard_case({21, 16, 16, 4, 3, Form::published, 2}),
    hadamard_case({13, 20, 70, 4, 2, Form::features, 3, false}),
    hadamard_case({13, 20, 70, 4, 2, Form::published, 3}),
    hadamard_case({40, 64, 64, 7, 2, Form::features, 1, true, 0, false, 4}),
    hadamard_case({20, 100, 130, 5, 4, Form::published, 2, false}),
    hadamard_case({70, 256, 300, 4, 2, Form::published}),
    hadamard_case({70, 512, 512, 6, 4, Form::features, 1, false}),
    hadamard_case({9, 1500, 600, 2, 2, Form::published}),
    // P = 512, for which a GPU has specialized kernels: rows that fill their blocks and rows that do not.
    hadamard_case({40, 512, 1024, 3, 2, Form::published, 1, false}),
    hadamard_case({40, 400, 1000, 3, 2, Form::published}),
    hadamard_case({40, 320, 700, 3, 3, Form::features}),
    hadamard_case({61, 512, 976, 4, 3, Form::modulated, 1, true, 3, true}),
    hadamard_case({61, 512, 968, 4, 2, Form::modulated, 1, false}),
    hadamard_case({300, 320, 600, 3, 2, Form::modulated, 1, true, 2, true}),
    // Modulated; experts without tokens, token shift over the starts of sequences, several blocks of slots per expert.
    hadamard_case({1, 12, 11, 1, 1, Form::modulated}),
    hadamard_case({33, 12, 40, 6, 2, Form::modulated, 1, false, 0, true}),
    hadamard_case({70, 16, 24, 7, 2, Form::modulated, 1, true, 0, false, 4}),
    hadamard_case({40, 12, 11, 6, 3, Form::modulated, 2, false, 2}),
    hadamard_case({150, 24, 40, 6, 4, Form::modulated, 1, true, 3, true}),
    hadamard_case({60, 64, 72, 5, 2, Form::modulated, 3, true, 3}),
    hadamard_case({400, 100, 128, 4, 4, Form::modulated, 1, false, 3}),
    hadamard_case({130, 512, 512, 4, 2, Form::modulated, 1, true, 3}),
    hadamard_case({9, 1500, 700, 2, 2, Form::modulated, 1, false}),
});

// LoRA on top of transforms equals LoRA on top of the same matrices, written out.
TEST(Hadamard, ExpertsWithCorrections) {
  for (const bool features : {false, true}) {
    HadamardShape s{50, 24, 40, 5, 2, features ? Form::features : Form::published, 2};
    Lab lab("cpu", "f64", 2);
    Context& ctx = lab.context();
    const Arrays in = hadamard_inputs(s);
    const std::int64_t width = features ? s.f : s.d, rank = 3;
    ExpertWeights dense, transforms;
    dense.w1 = lab.compute(plain_matrix(s, random_stream(3, "down"), s.d));
    if (!features) {
      const Array rows = plain_matrix(s, random_stream(3, "up"), s.f);
      Array columns = zeros({s.experts, s.d, s.f});
      for (std::int64_t e = 0; e < s.experts; ++e) {
        for (std::int64_t j = 0; j < s.f; ++j) {
          for (std::int64_t c = 0; c < s.d; ++c) columns[(e * s.d + c) * s.f + j] = rows[(e * s.f + j) * s.d + c];
        }
      }
      dense.w2 = lab.compute(columns);
    }
    transforms.hadamard = experts_of(ctx, s);
    const DispatchPlan plan = make_dispatch(ctx, lab.whole(in.at("indices")), s.experts);
    const auto run = [&](ExpertWeights weights) {
      const auto factors = [&](std::int64_t out, std::int64_t inputs, const std::string& name) {
        const Shape a{s.experts, rank, inputs}, b{s.experts, out, rank};
        return LowRank{lab.param(normals(a, name + "a", 0.3), zeros(a)),
                       lab.param(normals(b, name + "b", 0.3), zeros(b))};
      };
      weights.low1 = factors(s.f, s.d, "low1");
      ExpertTape tape;
      tape.pre = lab.new_compute({s.tokens * s.k, s.f});
      tape.low1 = lab.new_compute({s.tokens * s.k, rank});
      if (!features) {
        weights.low2 = factors(s.d, s.f, "low2");
        tape.low2 = lab.new_compute({s.tokens * s.k, rank});
      }
      const Tensor x = lab.compute(in.at("x")), gates = lab.master(in.at("gates"));
      Tensor y = lab.new_compute({s.tokens, width}), dx = lab.new_compute({s.tokens, s.d}),
             dgates = lab.new_master({s.tokens, s.k});
      experts_forward(ctx, x, weights, plan, gates, tape, y);
      experts_backward(ctx, {lab.compute(in.at("dy")), x, weights, plan, gates, tape, dx, Into::overwrite, dgates});
      Arrays out{{"y", read(y)},
                 {"dx", read(dx)},
                 {"dgates", read(dgates)},
                 {"da", read(weights.low1.a.grad)},
                 {"db", read(weights.low1.b.grad)}};
      if (!features) out["da2"] = read(weights.low2.a.grad);
      return out;
    };
    const Arrays expected = run(dense), actual = run(transforms);
    for (const auto& [name, values] : expected) EXPECT_LT(difference(values, actual.at(name)), 1e-12) << name;
  }
}

}  // namespace
}  // namespace some::test
