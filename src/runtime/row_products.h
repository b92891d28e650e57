// How hidden states and weights are multiplied while text is generated: each row of the result depends only on its own
// row of states, whatever else is in the batch (CPU: kernels/cpu/row_gemm.h). Training and evaluation use faster
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

  // On a GPU: computes y = x W^T + b, or its GELU. x and weights in bf16, bias in f32 or null, y in bf16 or f32.
  // Returns false if it has no kernel for this shape, which is then multiplied as in evaluation. Null: the same for
  // all.
  using GpuProduct = bool (*)(Context& ctx, const Tensor& x, const Tensor& weights, const Tensor* bias, bool gelu,
                              Tensor& y);
  GpuProduct on_gpu = nullptr;
  // On a GPU: keys and values of the rows go to their places in the cache, and rows attend to their slots (as
  // attention_cached, ops/attention.h). Also false or null.
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

// While it exists, products of this context are computed row by row.
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
