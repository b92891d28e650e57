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

  // In generation, every token attends to its slot of the KV cache, and the tape keeps only the output.
  Tape forward(Context& ctx, const Pass& pass, const Tensor& x) const;
  // Overwrites dx or adds to it.
  void backward(Context& ctx, const Pass& pass, const Tape& tape, const Tensor& dy, Tensor& dx, Into into) const;

 private:
  const ModelConfig* config_;
  int layer_;
  Param qkv_weight_, qkv_bias_, out_weight_, out_bias_;
};

}  // namespace some
