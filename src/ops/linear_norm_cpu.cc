#include "ops/linear_norm.h"

namespace some::ops::cpu {

void linear_norm_forward(Context& ctx, const Tensor& x, const Param& weight, const Param& bias, const Tensor& residual,
                         const Param& norm_weight, const Param& norm_bias, Tensor& sum, Tensor& y, Tensor& mean,
                         Tensor& rstd) {
  const ArenaScope scope(*ctx.arena);
  Tensor made = ctx.scratch(residual.shape());
  cpu::linear_forward(ctx, x, weight, bias, made);
  cpu::add_norm_forward(ctx, residual, &made, norm_weight, norm_bias, sum, y, mean, rstd);
}

}  // namespace some::ops::cpu
