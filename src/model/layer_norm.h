// Layer norm, optionally fused with a residual sum (ops/norm.h).
#pragma once

#include <string>

#include "model/declaration.h"
#include "ops/norm.h"
#include "runtime/context.h"

namespace some {

class LayerNorm {
 public:
  struct Tape {
    Tensor sum, y, mean, rstd;
  };
  void declare(Declaration& declare, const std::string& name) { declare.norm(weight_, bias_, name); }

  // addend may be null.
  Tape forward(Context& ctx, const Tensor& x, const Tensor* addend) const {
    Tape tape;
    tape.sum = addend != nullptr ? ctx.scratch(x.shape()) : x;
    tape.y = ctx.scratch(x.shape());
    tape.mean = ctx.scratch({x.dim(0)}, ctx.master);
    tape.rstd = ctx.scratch({x.dim(0)}, ctx.master);
    add_norm_forward(ctx, x, addend, weight_, bias_, tape.sum, tape.y, tape.mean, tape.rstd);
    return tape;
  }
  // extra, dsum and copy as in norm_backward (ops/norm.h).
  void backward(Context& ctx, const Tape& tape, const Tensor& dy, const Tensor* extra, Tensor& dsum,
                Tensor* copy = nullptr) const {
    norm_backward(ctx, dy, tape.sum, tape.mean, tape.rstd, weight_, bias_, extra, dsum, copy);
  }

 private:
  Param weight_, bias_;
};

}  // namespace some
