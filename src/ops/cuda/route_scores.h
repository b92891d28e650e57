// Scores and top-k routing in one kernel, for models whose other GEMMs are in bf16.
#pragma once

#include "ops/route.h"

namespace some::cuda {

// True if route_on_tensor_cores supports these shapes and is faster: for a few tokens, route_forward's other kernels
// are.
bool supports_tensor_core_routing(const Context& ctx, const Tensor& query, const Tensor& keys, int k);
// Computes the same as route_forward without a given choice.
void route_on_tensor_cores(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                           const Tensor& temperature, Routing& routing);
// Computes the queries as well; see query_route_forward.
void query_route_on_tensor_cores(Context& ctx, const QueryRoute& route, const RouterOutputLayer* router = nullptr);
// True if the kernel can also compute the raw queries (then `router` is passed, and raw is written).
bool can_fuse_router_layer(const Context& ctx, const RouterOutputLayer& router, const Tensor& raw, const Tensor& keys);

}  // namespace some::cuda
