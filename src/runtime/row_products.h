// Row-wise products for generation: each row of the result depends only on its own row of hidden states, not on the
// rest of the batch (CPU: kernels/cpu/row_gemm.h). Training and evaluation use faster GEMMs, whose bits depend on the
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

  // On a GPU: computes y = x W^T + b, or its GELU. x and weights in bf16, bias in f32 or null, y in bf16 or f32.
  // Returns false if it has no kernel for this shape, which is then multiplied as in evaluation. Null: for no shape.
  using GpuProduct = bool (*)(Context& ctx, const Tensor& x, const Tensor& weights, const Tensor* bias, bool gelu,
                              Tensor& y);
  GpuProduct on_gpu = nullptr;
  // On a GPU: copies keys and values of the rows to the cache and computes attention (attention_cached,
  // ops/attention.h). Returns false if it has no kernel for this shape.
  using GpuAttention = bool (*)(Context& ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions,
                                int heads, Tensor& cache, Tensor& out);
  GpuAttention attention_on_gpu = nullptr;

 private:
  struct Copy {
    const float* begin;
    Tensor values;  // bf16
  };
  std::vector<Copy> copies_;
};

// During its lifetime, products of this context are computed row by row.
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
