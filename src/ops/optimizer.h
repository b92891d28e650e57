// AdamW over the flat parameter buffers (spec 5).
#pragma once

#include <array>
#include <cmath>

#include "runtime/op.h"

namespace some {

// Computes norm[0] = L2 norm of the flat gradient; master [1], stays on the device. Summed in a fixed order.
SOME_OP(void, gradient_norm, (Context & ctx, const Tensor& grad, Tensor& norm), (ctx, grad, norm))

struct AdamSettings {
  double lr = 6e-4;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip = 1.0;      // gradients are scaled by min(1, clip / (norm + 1e-6)); 0: no clipping
  std::int64_t step = 1;  // counted from 1, for the bias corrections
  // Master [3], filled with adam_rates beforehand: a step that is captured once in a CUDA graph and replayed many times
  // (tensor/graph.h) must not contain any by-value argument that changes. If empty, lr and step are used.
  Tensor rates;
};

// Returns the values that change from step to step: 1 - lr*weight_decay, lr / (1 - beta1^step), 1 / sqrt(1 -
// beta2^step).
inline std::array<double, 3> adam_rates(const AdamSettings& s) {
  const double step = static_cast<double>(s.step);
  return {1.0 - s.lr * s.weight_decay, s.lr / (1.0 - std::pow(s.beta1, step)),
          1.0 / std::sqrt(1.0 - std::pow(s.beta2, step))};
}

// Computes value *= 1 - lr*weight_decay, then the bias-corrected Adam step. All are flat [P] and master; compute is
// rewritten from value (skipped if it shares value's memory).
SOME_OP(void, adamw_step,
        (Context & ctx, Tensor& value, Tensor& compute, const Tensor& grad, Tensor& first, Tensor& second,
         const Tensor& norm, const AdamSettings& settings),
        (ctx, value, compute, grad, first, second, norm, settings))

}  // namespace some
