// Scores and top-k routing in one kernel, for models whose other GEMMs are in bf16.
#pragma once

#include "ops/route.h"

namespace some::cuda {

// True if choose_by_product supports these shapes and is faster: for a few tokens, route_forward's other kernels are.
bool product_serves(const Context& ctx, const Tensor& query, const Tensor& keys, int k);
// Computes the same as route_forward without a given choice.
void choose_by_product(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                       const Tensor& temperature, Routing& routing);
// Computes the queries as well; see query_route_forward.
void make_query_and_choose(Context& ctx, const QueryRoute& route, const RouterEnd* router = nullptr);
// True if the kernel can also compute the raw queries (then `router` is passed, and raw is written).
bool product_takes_router(const Context& ctx, const RouterEnd& router, const Tensor& raw, const Tensor& keys);

}  // namespace some::cuda
