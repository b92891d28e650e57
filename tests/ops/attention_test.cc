#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/harness.h"
#include "tensor/device.h"

namespace some::test {
namespace {

Sequences pack(Lab& lab, const std::vector<int>& lengths) {
  Sequences sequences;
  Array offsets = zeros({static_cast<std::int64_t>(lengths.size()) + 1});
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    offsets.values[s + 1] = offsets.values[s] + lengths[s];
    sequences.longest = std::max<std::int64_t>(sequences.longest, lengths[s]);
    sequences.tokens += lengths[s];
  }
  sequences.count = static_cast<std::int64_t>(lengths.size());
  sequences.offsets = lab.whole(offsets);
  return sequences;
}

std::int64_t total(const std::vector<int>& lengths) {
  std::int64_t sum = 0;
  for (const int length : lengths) sum += length;
  return sum;
}

OpCase attention_case(const std::string& label, std::vector<int> lengths, std::int64_t d, int heads, bool causal) {
  const std::int64_t tokens = total(lengths);
  OpCase one;
  one.name = fmt::format("attention_{}_d{}_h{}{}", label, d, heads, causal ? "" : "_open");
  one.inputs = [=] { return Arrays{{"qkv", normals({tokens, 3 * d}, "qkv")}, {"dout", normals({tokens, d}, "dout")}}; };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Sequences sequences = pack(lab, lengths);
    const Tensor qkv = lab.compute(in.at("qkv"));
    Tensor out = lab.new_compute({tokens, d}), lse = lab.new_master({heads, tokens}),
           dqkv = lab.new_compute({tokens, 3 * d});
    attention_forward(lab.context(), qkv, sequences, heads, causal, out, lse);
    attention_backward(lab.context(), lab.compute(in.at("dout")), qkv, out, lse, sequences, heads, causal, dqkv);
    return Arrays{{"out", read(out)}, {"lse", read(lse)}, {"dqkv", read(dqkv)}};
  };
  one.reference = [=](const Arrays& in) {
    const Array& qkv = in.at("qkv");
    const std::int64_t size = d / heads;
    Arrays results{{"out", zeros({tokens, d})}, {"lse", zeros({heads, tokens})}};
    std::int64_t begin = 0;
    for (const int length : lengths) {
      for (int h = 0; h < heads; ++h) {
        for (std::int64_t t = begin; t < begin + length; ++t) {
          const std::int64_t last = causal ? t : begin + length - 1;
          std::vector<double> weight;
          double sum = 0;
          for (std::int64_t s = begin; s <= last; ++s) {
            double score = 0;
            for (std::int64_t i = h * size; i < (h + 1) * size; ++i)
              score += qkv[t * 3 * d + i] * qkv[s * 3 * d + d + i];
            weight.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
            sum += weight.back();
          }
          for (std::int64_t s = begin; s <= last; ++s) {
            for (std::int64_t i = h * size; i < (h + 1) * size; ++i) {
              results["out"][t * d + i] +=
                  weight[static_cast<std::size_t>(s - begin)] / sum * qkv[s * 3 * d + 2 * d + i];
            }
          }
          results["lse"][h * tokens + t] = std::log(sum);
        }
      }
      begin += length;
    }
    return results;
  };
  one.loss = {{"out", "dout"}};
  one.gradients = {{"qkv", "dqkv"}};
  return one;
}

OpCase rope_case(std::int64_t tokens, std::int64_t d, int heads) {
  OpCase one;
  one.name = fmt::format("rope_{}x{}_h{}", tokens, d, heads);
  one.inputs = [=] {
    return Arrays{{"qkv", normals({tokens, 3 * d}, "qkv")},
                  {"dqkv", normals({tokens, 3 * d}, "dqkv")},
                  {"positions", whole_numbers({tokens}, "positions", 300)}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Tensor qkv = lab.compute(in.at("qkv")), back = lab.compute(in.at("dqkv"));
    rope(lab.context(), qkv, lab.whole(in.at("positions")), heads, false);
    rope(lab.context(), back, lab.whole(in.at("positions")), heads, true);
    return Arrays{{"turned", read(qkv)}, {"dqkv_turned_back", read(back)}};
  };
  one.reference = [=](const Arrays& in) {
    const std::int64_t size = d / heads;
    Array turned = in.at("qkv");
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t head = 0; head < 2 * heads; ++head) {
        for (std::int64_t i = 0; i < size / 2; ++i) {
          const double angle =
              in.at("positions")[t] * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
          const std::int64_t at = t * 3 * d + head * size + 2 * i;
          const double a = turned[at], b = turned[at + 1];
          turned[at] = a * std::cos(angle) - b * std::sin(angle);
          turned[at + 1] = a * std::sin(angle) + b * std::cos(angle);
        }
      }
    }
    return Arrays{{"turned", turned}};
  };
  one.loss = {{"turned", "dqkv"}};
  one.gradients = {{"qkv", "dqkv_turned_back"}};
  return one;
}

// Sequences passed through the KV cache in steps of the given sizes must give the same result as full attention.
OpCase cached_case(const std::string& label, std::vector<int> lengths, std::int64_t d, int heads, int together) {
  const std::int64_t tokens = total(lengths);
  OpCase one = attention_case(label, lengths, d, heads, true);
  one.name = fmt::format("attention_cached_{}_d{}_h{}_step{}", label, d, heads, together);
  one.run = [=](Lab& lab, const Arrays& in) {
    const auto slots = static_cast<std::int64_t>(lengths.size());
    const std::int64_t capacity = *std::max_element(lengths.begin(), lengths.end()) + 3;
    Tensor cache = lab.new_compute({slots + 1, capacity, 2 * d});
    Array out = zeros({tokens, d});
    for (int step = 0; step < capacity; step += together) {
      // Every sequence that is long enough contributes up to `together` tokens; slots are used in reverse.
      std::vector<std::int64_t> rows;
      Array slot = zeros({0}), position = zeros({0});
      std::int64_t begin = 0;
      for (std::int64_t s = 0; s < slots; ++s) {
        const int length = lengths[static_cast<std::size_t>(s)];
        for (int p = step; p < std::min(step + together, length); ++p) {
          rows.push_back(begin + p);
          slot.values.push_back(static_cast<double>(slots - s));
          position.values.push_back(p);
        }
        begin += length;
      }
      const auto count = static_cast<std::int64_t>(rows.size());
      if (count == 0) break;
      slot.shape = position.shape = Shape{count};
      Array part = zeros({count, 3 * d});
      for (std::int64_t n = 0; n < count; ++n) {
        std::copy_n(in.at("qkv").values.begin() + rows[static_cast<std::size_t>(n)] * 3 * d, 3 * d,
                    part.values.begin() + n * 3 * d);
      }
      Tensor result = lab.new_compute({count, d});
      attention_cached(lab.context(), lab.compute(part), lab.whole(slot), lab.whole(position), heads, cache, result);
      const Array values = read(result);
      for (std::int64_t n = 0; n < count; ++n) {
        std::copy_n(values.values.begin() + n * d, d, out.values.begin() + rows[static_cast<std::size_t>(n)] * d);
      }
    }
    return Arrays{{"out", out}};
  };
  const auto whole = one.reference;
  one.reference = [whole](const Arrays& in) { return Arrays{{"out", whole(in).at("out")}}; };
  one.gradients.clear();
  return one;
}

std::vector<int> many_lengths() {
  std::vector<int> lengths;
  for (int s = 0; s < 40; ++s) lengths.push_back(1 + s * 37 % 150);
  return lengths;
}

const bool added = add_cases({
    attention_case("one_token", {1}, 12, 3, true),
    attention_case("ones", {1, 1, 1}, 8, 2, true),
    attention_case("short", {5, 1, 9, 2}, 12, 2, true),
    attention_case("short", {5, 1, 9, 2}, 12, 2, false),
    attention_case("blocks", {64, 65, 63, 130}, 24, 3, true),
    attention_case("long", {300, 1, 513}, 32, 1, true),
    attention_case("long", {260, 70}, 16, 2, false),
    attention_case("wide", {33, 77}, 128, 2, true),
    attention_case("wide", {129, 3}, 64, 1, false),
    attention_case("packed", {190, 64, 1, 128, 65, 300}, 128, 2, true),
    attention_case("packed", {63, 192, 2, 129}, 128, 2, false),
    attention_case("many", many_lengths(), 64, 1, true),
    rope_case(1, 12, 3),
    rope_case(70, 48, 2),
    rope_case(130, 64, 4),
    cached_case("short", {5, 1, 9}, 12, 2, 1),
    cached_case("prompts", {40, 7, 23}, 32, 4, 16),
    cached_case("whole", {70}, 64, 1, 100),
});

// The result of a sequence is bit-identical whatever else is in the batch. The work exceeds what a GPU can do at a
// time.
void expect_same_in_any_company(const std::string& device, const std::string& precision) {
  if (device == "cuda" && !cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  constexpr std::int64_t d = 512;
  constexpr int heads = 8;
  Lab lab(device, precision);
  const auto run = [&](const std::vector<int>& lengths) {  // a sequence's numbers depend only on its length
    Array qkv = zeros({total(lengths), 3 * d}), dout = zeros({total(lengths), d});
    const auto fill = [&](Array& array, std::int64_t width, const std::string& name) {
      auto at = array.values.begin();
      for (const int length : lengths) {
        const Array part = normals({length, width}, fmt::format("{} {}", name, length));
        at = std::copy(part.values.begin(), part.values.end(), at);
      }
    };
    fill(qkv, 3 * d, "qkv");
    fill(dout, d, "dout");
    const Sequences sequences = pack(lab, lengths);
    const Tensor in = lab.compute(qkv);
    Tensor out = lab.new_compute({total(lengths), d}), lse = lab.new_master({heads, total(lengths)}),
           dqkv = lab.new_compute({total(lengths), 3 * d});
    attention_forward(lab.context(), in, sequences, heads, true, out, lse);
    attention_backward(lab.context(), lab.compute(dout), in, out, lse, sequences, heads, true, dqkv);
    return Arrays{{"out", read(out)}, {"dqkv", read(dqkv)}};
  };
  std::vector<int> company{70, 513, 3, 200, 64};
  for (int s = 0; s < 24; ++s) company.push_back(65 + s * 29 % 140);
  const Arrays together = run(company);
  std::int64_t begin = 0;
  for (const int length : company) {
    for (const auto& [name, alone] : run({length})) {
      const std::int64_t width = alone.dim(1);
      EXPECT_TRUE(
          std::equal(alone.values.begin(), alone.values.end(), together.at(name).values.begin() + begin * width))
          << name << " of the sequence of " << length;
    }
    begin += length;
  }
}

TEST(Attention, SameBitsInAnyCompany) { expect_same_in_any_company("cpu", "fp32"); }
TEST(Attention, SameBitsInAnyCompanyCudaFloat) { expect_same_in_any_company("cuda", "fp32"); }
TEST(Attention, SameBitsInAnyCompanyCudaBfloat16) { expect_same_in_any_company("cuda", "bf16"); }

}  // namespace
}  // namespace some::test
