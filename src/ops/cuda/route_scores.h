// Scores and choice of experts in one kernel, for models whose other products are in bf16.
#pragma once

#include "ops/route.h"

namespace some::cuda {

// Whether choose_by_product supports these shapes and is worth it: a few tokens are faster without it.
bool product_serves(const Context& ctx, const Tensor& query, const Tensor& keys, int k);
// Computes what route_forward does when no choice is given.
void choose_by_product(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                       const Tensor& temperature, Routing& routing);
// The same for queries that are made on the way; see query_route_forward.
void make_query_and_choose(Context& ctx, const QueryRoute& route, const RouterEnd* router = nullptr);
// Whether it can make what the queries are made of, too (the router is given then, and raw is written).
bool product_takes_router(const Context& ctx, const RouterEnd& router, const Tensor& raw, const Tensor& keys);

}  // namespace some::cuda
