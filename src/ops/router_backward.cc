#include "ops/router_backward.h"

#include "ops/elementwise.h"
#include "ops/linear_pair.h"

namespace some {

void router_backward(Context& ctx, RouterBackward& router) {
  if (router.done) return;
  router.done = true;
  const AuxiliaryLosses& auxiliary = router.auxiliary;
  Tensor loss = auxiliary.loss;
  Tensor* const dlog_temperature = router.dlog_temperature ? &router.dlog_temperature : nullptr;
  if (auxiliary.has_entropy_band()) {
    entropy_band_loss(ctx, router.routing.gates, auxiliary.targets, auxiliary.entropy_low, auxiliary.entropy_high,
                      auxiliary.entropy_coefficient * auxiliary.share, router.dgates, loss);
  }
  if (router.gates_only()) {
    route_query_backward(ctx, {router.dgates, router.routing, router.keys, router.temperature, router.raw, router.query,
                               router.norms, router.ground, router.draw, router.dprevious, dlog_temperature});
  } else {
    Tensor dquery = ctx.scratch(router.query.shape(), ctx.master);
    route_backward(ctx, router.dgates, router.routing, router.keys, router.temperature, dquery, dlog_temperature);
    if (auxiliary.balance > 0) {
      balance_loss(ctx, router.query, router.keys, router.temperature, router.routing.indices, auxiliary.targets,
                   auxiliary.balance * auxiliary.share, dquery, loss);
    }
    if (router.dquery != nullptr) add_into(ctx, *router.dquery, dquery);
    router.draw = ctx.compute == ctx.master ? dquery : ctx.scratch(dquery.shape());  // in place if possible
    query_backward(ctx, dquery, router.raw, router.query, router.norms, router.ground, router.draw, router.dprevious);
  }
  if (router.weight)
    linear_after_gelu_backward(ctx, router.draw, router.act, router.weight, router.bias, router.pre, router.dpre);
}

}  // namespace some
