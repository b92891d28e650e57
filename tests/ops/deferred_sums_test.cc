#include "kernels/reduce/deferred_sums.h"

#include "ops/harness.h"
#include "ops/linear.h"

namespace some::test {
namespace {

// More bias gradients than one launch takes, one bias that is added to twice, one that is summed after deferred sums
// that were never finished, and one on the context that defers nothing.
OpCase held_case(std::int64_t rows, std::int64_t out) {
  constexpr int biases = 100, twice = 3;
  OpCase one;
  one.name = fmt::format("held_sums_{}x{}", rows, out);
  one.inputs = [=] {
    return Arrays{{"x", normals({rows, 8}, "x")},
                  {"weight", normals({out, 8}, "weight")},
                  {"dy", normals({rows, out}, "dy")},
                  {"dbias0", normals({out}, "dbias0")}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Schedule schedule(lab.context());
    Context& ctx = schedule.deferring();
    const Param weight = lab.param(in.at("weight"));
    const Tensor x = lab.compute(in.at("x")), dy = lab.compute(in.at("dy"));
    std::vector<Param> all;
    for (int i = 0; i < biases; ++i) all.push_back(lab.param(in.at("dbias0"), in.at("dbias0")));
    const Param lost = lab.param(in.at("dbias0"), in.at("dbias0"));
    const Param alone = lab.param(in.at("dbias0"), in.at("dbias0")),
                in_order = lab.param(in.at("dbias0"), in.at("dbias0"));
    const auto add_to = [&](const Param& bias) { linear_backward(ctx, dy, x, weight, bias, nullptr, Into::overwrite); };
    {
      const DeferSums broken_off(schedule);
      add_to(lost);
    }
    add_to(alone);  // not deferred
    DeferSums sums(schedule);
    for (const Param& bias : all) add_to(bias);
    add_to(all[twice]);
    linear_backward(schedule.main(), dy, x, weight, in_order, nullptr, Into::overwrite);
    const Array complete = read(in_order.grad);  // before finish()
    sums.finish();
    return Arrays{{"first", read(all.front().grad)},
                  {"twice", read(all[twice].grad)},
                  {"last", read(all.back().grad)},
                  {"alone", read(alone.grad)},
                  {"in_order", complete}};
  };
  one.reference = [=](const Arrays& in) {
    Array once = in.at("dbias0"), again = in.at("dbias0");
    for (std::int64_t i = 0; i < rows * out; ++i) {
      once[i % out] += in.at("dy")[i];
      again[i % out] += 2 * in.at("dy")[i];
    }
    return Arrays{{"first", once}, {"twice", again}, {"last", once}, {"alone", once}, {"in_order", once}};
  };
  return one;
}

const bool added = add_cases({held_case(300, 40), held_case(7, 3), held_case(300, 1)});

}  // namespace
}  // namespace some::test
