// Row-wise products for generation on the CPU: each row of the result depends only on its own row of hidden states, not
// on the rest of the batch (kernels/cpu/row_gemm.h). Training and evaluation use faster GEMMs, whose bits depend on the
// number of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/context.h"

namespace some {

class RowProducts {
 public:
  // Registers a bf16 copy of weights (f32, on the CPU), which products then read. The weights must not move or change.
  void add_half(const Tensor& weights);
  // Returns the bf16 copy of the weights at this address; null: none.
  const std::uint16_t* half_of(const void* weights) const;

 private:
  struct Copy {
    const float* begin;
    Tensor values;  // bf16
  };
  std::vector<Copy> copies_;
};

// During its lifetime, products of this context are computed row by row. No effect on a GPU.
class RowProductsScope {
 public:
  RowProductsScope(Context& ctx, const RowProducts& products);
  ~RowProductsScope();
  RowProductsScope(const RowProductsScope&) = delete;
  RowProductsScope& operator=(const RowProductsScope&) = delete;

 private:
  Context& ctx_;
  const RowProducts* before_;
};

const RowProducts* row_products(const Context& ctx);  // null outside of such a scope

// True if layers multiply in bf16 on the CPU (train.precision = "bf16"): operands are rounded on the way into a
// product, sums and everything that is stored are fp32. Routing, keys and memories multiply in fp32. False on a GPU.
bool bf16_products(const Context& ctx);

}  // namespace some
