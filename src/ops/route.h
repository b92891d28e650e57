// Top-k routing: from router output to chosen experts and gates (spec 3.2 - 3.4). Everything here is in master
// precision on every device.
#pragma once

#include "core/random.h"
#include "ops/linear.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Computes queries: q = normalize(raw) or, with ground > 0 and a previous query, q = normalize(normalize(raw) + ground
// * previous). raw, previous, query: [T, d] master; norms: [T, 2] master, the two lengths that were divided by (the
// second is 1 without grounding).
SOME_OP(void, query_forward,
        (Context & ctx, const Tensor& raw, const Tensor* previous, double ground, Tensor& query, Tensor& norms),
        (ctx, raw, previous, ground, query, norms))
// Computes draw = gradient with respect to raw, in master precision (it may share dquery's memory) or compute precision
// (which the following GEMMs read); dprevious (master, may be null) is ADDED to.
SOME_OP(void, query_backward,
        (Context & ctx, const Tensor& dquery, const Tensor& raw, const Tensor& query, const Tensor& norms,
         double ground, Tensor& draw, Tensor* dprevious),
        (ctx, dquery, raw, query, norms, ground, draw, dprevious))

struct Routing {
  Tensor indices;  // i32 [T, k], best first (by score plus bias); ties go to the lower expert
  Tensor scores;   // master [T, k]
  Tensor gates;    // master [T, k] = softmax(scores / temperature)
  // Number of routing slots per expert in each block of 64 tokens, i32 [blocks, E]. query_route_forward fills it for
  // make_dispatch if the GPU has computed it anyway; otherwise empty.
  Tensor counts{};
};

// Chooses the experts and computes scores and gates. keys: [E, d] master; bias: [E] master, added to the scores only
// for the choice (null: none); temperature: [1] master (on the device, because it may be learned). choice_given:
// routing.indices is already filled in (hash routing); only scores and gates are computed.
SOME_OP(void, route_forward,
        (Context & ctx, const Tensor& query, const Tensor& keys, const Tensor* bias, const Tensor& temperature,
         bool choice_given, Routing& routing),
        (ctx, query, keys, bias, temperature, choice_given, routing))

// Partitions of the keys (spec 3.3): partition p of `count` holds the keys from partition_begin(p) on, and a query
// searches the `probe` partitions with the highest mean score.
struct KeyPartitions {
  int count = 0, probe = 0;
  bool searches_all() const { return count <= 1 || probe >= count; }
  bool operator==(const KeyPartitions&) const = default;
};
SOME_HD inline std::int64_t partition_begin(std::int64_t partition, std::int64_t experts, std::int64_t count) {
  return partition * experts / count;
}
// A bias of this or less keeps an expert from being chosen. It does not count in the mean of its partition.
inline constexpr double never_chosen = -1e30;

// Like route_forward without a given choice, but searches partitions only. partitions.probe may be partitions.count.
SOME_OP(void, route_partitions_forward,
        (Context & ctx, const Tensor& query, const Tensor& keys, const Tensor* bias, const Tensor& temperature,
         const KeyPartitions& partitions, Routing& routing),
        (ctx, query, keys, bias, temperature, partitions, routing))

// Arguments and results from the query network's output to the gates. Tensors as in query_forward and route_forward.
struct QueryRoute {
  Tensor raw{};
  const Tensor* previous = nullptr;
  double ground = 0;
  Tensor keys{};
  const Tensor* bias = nullptr;
  const Tensor* log_temperature = nullptr;  // unless null, temperature is set to its exponential
  bool choice_given = false;
  KeyPartitions partitions{};
  // Results.
  Tensor query{}, norms{}, temperature{};
  Routing& routing;
};
// Fuses query_forward and route_forward. May allocate routing.counts from the context's arena.
SOME_OP(void, query_route_forward, (Context & ctx, const QueryRoute& route), (ctx, route))

// Fuses linear_forward and query_route_forward: raw = y W^T + b is computed first, and also written. y: [T, in]
// compute.
struct RouterOutputLayer {
  const Tensor& y;
  const Param &weight, &bias;
};
SOME_OP(void, router_route_forward, (Context & ctx, const RouterOutputLayer& router, const QueryRoute& route),
        (ctx, router, route))

// Chooses by hash routing: k distinct experts for token id v, in random order, by a fixed hash of (seed, layer, v).
SOME_OP(void, hash_routing,
        (Context & ctx, const Tensor& tokens, int experts, std::uint64_t seed, int layer, Tensor& indices),
        (ctx, tokens, experts, seed, layer, indices))

// Computes dquery [T, d] = sum_i dscore_i * keys[index_i]. If dlog_temperature ([1] master) is not null, the gradient
// of the temperature's logarithm is added to it.
SOME_OP(void, route_backward,
        (Context & ctx, const Tensor& dgates, const Routing& routing, const Tensor& keys, const Tensor& temperature,
         Tensor& dquery, Tensor* dlog_temperature),
        (ctx, dgates, routing, keys, temperature, dquery, dlog_temperature))

// Tensors as in route_backward and query_backward.
struct RouteQueryBackward {
  const Tensor& dgates;
  const Routing& routing;
  const Tensor &keys, &temperature, &raw, &query, &norms;
  double ground = 0;
  Tensor& draw;
  Tensor* dprevious = nullptr;
  Tensor* dlog_temperature = nullptr;
};
// Fuses route_backward and query_backward, for queries whose only gradient comes from the gates.
SOME_OP(void, route_query_backward, (Context & ctx, const RouteQueryBackward& in), (ctx, in))

// Adds the load-balancing loss (spec 5): loss = coefficient * E * sum_e f_e * p_e over the positions with targets[t] >=
// 0 (all if targets is null), where f_e is the fraction of routing slots assigned to e, and p_e the mean of softmax(all
// scores / temperature). Adds the gradient through p to dquery and the loss to loss[0] (master [1]).
SOME_OP(void, balance_loss,
        (Context & ctx, const Tensor& query, const Tensor& keys, const Tensor& temperature, const Tensor& indices,
         const Tensor* targets, double coefficient, Tensor& dquery, Tensor& loss),
        (ctx, query, keys, temperature, indices, targets, coefficient, dquery, loss))

// Adds a loss that keeps the mean gate entropy (nats) over the same positions in [low, high]: loss = coefficient *
// distance^2 of the mean entropy from the band, added to loss[0]; its gradient is added to dgates.
SOME_OP(void, entropy_band_loss,
        (Context & ctx, const Tensor& gates, const Tensor* targets, double low, double high, double coefficient,
         Tensor& dgates, Tensor& loss),
        (ctx, gates, targets, low, high, coefficient, dgates, loss))

}  // namespace some
