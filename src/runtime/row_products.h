// How the CPU multiplies hidden states and weights while text is generated: each row of the result depends only on its
// own row of states, whatever else is in the batch (kernels/cpu/row_gemm.h). Training and evaluation use faster
// products of many rows, whose bits depend on the number of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/context.h"

namespace some {

class RowProducts {
 public:
  // Keeps a bf16 copy of weights (f32, on the CPU), which products read instead of them. The weights must stay where
  // they are and must not change.
  void add_half(const Tensor& weights);
  // The bf16 copy of the weights that begin at this address; null: none.
  const std::uint16_t* half_of(const void* weights) const;

 private:
  struct Copy {
    const float* begin;
    Tensor values;  // bf16
  };
  std::vector<Copy> copies_;
};

// While it exists, products of this context are computed row by row. It has no effect on a GPU.
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

const RowProducts* row_products(const Context& ctx);  // null outside of a scope

}  // namespace some
