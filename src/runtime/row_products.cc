#include "runtime/row_products.h"

#include <bit>
#include <functional>

#include "runtime/staging.h"

namespace some {

void RowProducts::add_half(const Tensor& weights) {
  const float* values = weights.data<float>();
  const Copy& copy = copies_.emplace_back(Copy{values, Tensor::empty({weights.elements()}, DType::bf16)});
  auto* const halves = static_cast<std::uint16_t*>(copy.values.raw());
  for (std::int64_t i = 0; i < weights.elements(); ++i) {
    // Rounds to nearest, ties to even. Weights are finite.
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    halves[i] = static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
}

const std::uint16_t* RowProducts::half_of(const void* weights) const {
  const std::less<const void*> before;
  for (const Copy& copy : copies_) {
    if (!before(weights, copy.begin) && before(weights, copy.begin + copy.values.elements()))
      return static_cast<const std::uint16_t*>(copy.values.raw()) + (static_cast<const float*>(weights) - copy.begin);
  }
  return nullptr;
}

RowProductsScope::RowProductsScope(Context& ctx, const RowProducts& products)
    : ctx_(ctx), before_(ctx.staging->row_products) {
  ctx.staging->row_products = &products;
}

RowProductsScope::~RowProductsScope() { ctx_.staging->row_products = before_; }

const RowProducts* row_products(const Context& ctx) { return ctx.staging->row_products; }
bool bf16_products(const Context& ctx) { return ctx.staging->bf16_products; }

}  // namespace some
