// Backward pass from the gates of the chosen experts to the router's layers (spec 3.1 - 3.4, 5): the gates' own
// gradient and auxiliary losses, the query, and the second layer of an mlp router.
#pragma once

#include "ops/route.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

struct AuxiliaryLosses {
  double balance = 0;                          // coefficient of balance_loss; 0: none
  double entropy_low = -1, entropy_high = -1;  // for entropy_band_loss; none if both are negative
  double entropy_coefficient = 0;
  double share = 1;                 // factor on both coefficients: the micro-batch's fraction of the step
  const Tensor* targets = nullptr;  // for both losses; null: every position counts
  Tensor loss;                      // [1] master, added to
  bool has_entropy_band() const { return entropy_low >= 0 || entropy_high >= 0; }
};

struct RouterBackward {
  // From the forward pass.
  Tensor raw, query, norms;
  Routing routing;
  Tensor keys, temperature;
  double ground = 0;
  // The second layer of an mlp router; without weight, raw is the output of a linear router.
  Param weight, bias;
  Tensor pre, act;

  AuxiliaryLosses auxiliary;
  const Tensor* dquery = nullptr;  // gradient that reaches the query by other paths; null: none
  Tensor dgates;                   // [T, k] master: gradient of the gates; auxiliary losses are added to it

  // Results. draw has the shape of raw, dpre that of pre; both compute. draw is allocated here unless only the gates'
  // gradient reaches the query.
  Tensor draw, dpre;
  Tensor* dprevious = nullptr;  // master: gradient of the query that this one is grounded in, ADDED to
  Tensor dlog_temperature;      // [1] master, ADDED to; empty: not needed
  bool done = false;

  // True if only the gates' gradient reaches the query.
  bool gates_only() const { return auxiliary.balance <= 0 && dquery == nullptr; }
  // True if all results follow from dgates as left by the experts' backward pass, and use nothing else that the latter
  // writes, so that both may run concurrently.
  bool independent() const { return gates_only() && !auxiliary.has_entropy_band() && static_cast<bool>(weight); }
};

// Fills in draw (and dpre with an mlp router) and adds to the other results, once: does nothing if `done` is set.
void router_backward(Context& ctx, RouterBackward& router);

}  // namespace some
