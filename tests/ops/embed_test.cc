#include "ops/embed.h"

#include "ops/harness.h"

namespace some::test {
namespace {

OpCase embed_case(std::int64_t tokens, std::int64_t d, int vocabulary, bool sinusoidal) {
  OpCase one;
  one.name = fmt::format("embed_{}x{}_v{}{}", tokens, d, vocabulary, sinusoidal ? "" : "_no_positions");
  one.inputs = [=] {
    return Arrays{{"tokens", whole_numbers({tokens}, "tokens", vocabulary)},
                  {"positions", whole_numbers({tokens}, "positions", 200)},
                  {"embed", normals({vocabulary, d}, "embed")},
                  {"dembed0", normals({vocabulary, d}, "dembed0")},
                  {"dout", normals({tokens, d}, "dout")}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    const Param embed = lab.param(in.at("embed"), in.at("dembed0"));
    const Tensor ids = lab.whole(in.at("tokens"));
    Tensor out = lab.new_compute({tokens, d});
    embed_forward(lab.context(), ids, lab.whole(in.at("positions")), embed, sinusoidal, out);
    embed_backward(lab.context(), ids, order_tokens(lab.context(), ids, embed), lab.compute(in.at("dout")), embed);
    return Arrays{{"out", read(out)}, {"dembed", read(embed.grad)}};
  };
  one.reference = [=](const Arrays& in) {
    Array out = zeros({tokens, d});
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < d; ++i) {
        const double angle =
            in.at("positions")[t] * std::pow(10000.0, -static_cast<double>(i / 2 * 2) / static_cast<double>(d));
        out[t * d + i] =
            std::sqrt(static_cast<double>(d)) * in.at("embed")[static_cast<std::int64_t>(in.at("tokens")[t]) * d + i] +
            (sinusoidal ? (i % 2 == 0 ? std::sin(angle) : std::cos(angle)) : 0.0);
      }
    }
    return Arrays{{"out", out}};
  };
  one.loss = {{"out", "dout"}};
  one.gradients = {{"embed", "dembed", "dembed0"}};
  return one;
}

const bool added = add_cases({embed_case(1, 12, 5, true), embed_case(40, 11, 7, true), embed_case(500, 130, 3, true),
                              embed_case(70, 64, 100, false), embed_case(9, 8, 1, true)});

}  // namespace
}  // namespace some::test
