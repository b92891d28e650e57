#include "ops/elementwise.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "ops/harness.h"
#include "tensor/device.h"

namespace some::test {
namespace {

OpCase elementwise_case(std::int64_t rows, std::int64_t columns) {
  OpCase one;
  one.name = fmt::format("elementwise_{}x{}", rows, columns);
  one.inputs = [=] {
    Array chosen = whole_numbers({7}, "rows", static_cast<int>(rows));
    chosen[3] = -1;  // -1: a row of zeros
    return Arrays{{"x", normals({rows, columns}, "x")},
                  {"y", normals({rows, columns}, "y")},
                  {"z", normals({rows, columns}, "z")},
                  {"rows", chosen}};
  };
  one.run = [=](Lab& lab, const Arrays& in) {
    Context& ctx = lab.context();
    Arrays out;
    Tensor sum_master = lab.master(in.at("y")), sum_compute = lab.compute(in.at("y"));
    add_into(ctx, lab.compute(in.at("x")), sum_master);
    add_into(ctx, lab.master(in.at("x")), sum_compute);
    out["sum_master"] = read(sum_master);
    out["sum_compute"] = read(sum_compute);
    Tensor to_master = lab.new_master({rows, columns}), to_compute = lab.new_compute({rows, columns});
    convert(ctx, lab.compute(in.at("x")), to_master);
    convert(ctx, lab.master(in.at("x")), to_compute);
    out["to_master"] = read(to_master);
    out["to_compute"] = read(to_compute);
    Tensor filled = lab.new_compute({rows, columns});
    fill(ctx, 1.5, filled);
    out["filled"] = read(filled);
    Tensor each = lab.new_master({3});
    fill_each(ctx, std::array{0.5, -2.0, 3.0}, each);
    out["each"] = read(each);
    Tensor total = lab.new_master({1});
    sum_all(ctx, lab.master(in.at("x")), total);
    out["total"] = read(total);
    Tensor gathered = lab.new_compute({7, columns}), gathered_master = lab.new_master({7, columns});
    gather_rows(ctx, lab.compute(in.at("x")), lab.whole(in.at("rows")), gathered);
    gather_rows(ctx, lab.master(in.at("x")), lab.whole(in.at("rows")), gathered_master);
    out["gathered"] = read(gathered);
    out["gathered_master"] = read(gathered_master);
    Tensor powers = lab.new_master({rows, columns});
    exponential(ctx, lab.master(in.at("x")), powers);
    out["powers"] = read(powers);
    Tensor products = lab.master(in.at("y"));
    multiply_add(ctx, lab.master(in.at("x")), lab.master(in.at("z")), products);
    out["products"] = read(products);
    return out;
  };
  one.reference = [=](const Arrays& in) {
    const Array &x = in.at("x"), &y = in.at("y"), &z = in.at("z");
    Array sum = y, powers = x, products = y, filled = x, each = zeros({3}), total = zeros({1}),
          gathered = zeros({7, columns});
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      sum.values[i] += x.values[i];
      powers.values[i] = std::exp(x.values[i]);
      products.values[i] += x.values[i] * z.values[i];
      filled.values[i] = 1.5;
      total[0] += x.values[i];
    }
    each.values = {0.5, -2.0, 3.0};
    for (std::int64_t i = 0; i < 7; ++i) {
      for (std::int64_t c = 0; c < columns && in.at("rows")[i] >= 0; ++c)
        gathered[i * columns + c] = x[static_cast<std::int64_t>(in.at("rows")[i]) * columns + c];
    }
    return Arrays{{"sum_master", sum}, {"sum_compute", sum},   {"to_master", x},
                  {"to_compute", x},   {"filled", filled},     {"each", each},
                  {"total", total},    {"gathered", gathered}, {"gathered_master", gathered},
                  {"powers", powers},  {"products", products}};
  };
  return one;
}

const bool added = add_cases({elementwise_case(1, 1), elementwise_case(33, 11), elementwise_case(300, 128)});

void check_counts(const std::string& device) {
  auto context = make_context(device, "fp32");
  Tensor counts = Tensor::empty({3, 2}, DType::i32), total = Tensor::zeros({3}, DType::i64);
  std::iota(counts.data<std::int32_t>(), counts.data<std::int32_t>() + 6, 1);
  total.data<std::int64_t>()[1] = std::int64_t{1} << 40;
  Tensor on_device = total.to(context->device);
  add_counts(*context, counts.to(context->device), on_device);
  const Tensor result = on_device.to(Device::cpu);
  EXPECT_EQ(result.data<std::int64_t>()[0], 3);
  EXPECT_EQ(result.data<std::int64_t>()[1], (std::int64_t{1} << 40) + 7);
  EXPECT_EQ(result.data<std::int64_t>()[2], 11);
}

TEST(AddCounts, Cpu) { check_counts("cpu"); }
TEST(AddCounts, Cuda) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU: " << cuda::unavailable_reason_text();
  check_counts("cuda");
}

}  // namespace
}  // namespace some::test
