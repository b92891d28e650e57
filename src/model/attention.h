// Multi-head attention with its projections (spec 2, "Attn").
#pragma once

#include "model/declaration.h"
#include "model/pass.h"
#include "ops/linear.h"
#include "runtime/context.h"

namespace some {

class Attention {
 public:
  struct Tape {
    Tensor input, qkv, lse, mixed, output;
  };
  Attention(const ModelConfig& config, int layer) : config_(&config), layer_(layer) {}
  static void check(const ModelConfig& config);
  void declare(Declaration& declare);

  // In generation, every token attends to its slot of the cache, and only the output is kept.
  Tape forward(Context& ctx, const Pass& pass, const Tensor& x) const;
  // dx is overwritten or added to.
  void backward(Context& ctx, const Pass& pass, const Tape& tape, const Tensor& dy, Tensor& dx, Into into) const;

 private:
  const ModelConfig* config_;
  int layer_;
  Param qkv_weight_, qkv_bias_, out_weight_, out_bias_;
};

}  // namespace some
