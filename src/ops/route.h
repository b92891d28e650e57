// From router output to chosen experts and gates (spec 3.2 - 3.4). Everything here is in master precision on every
// device.
#pragma once

#include "ops/linear.h"
#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Queries: q = normalize(raw), and with ground > 0 and a previous query, q = normalize(normalize(raw) + ground *
// previous). raw, previous, query: [T, d] master; norms: [T, 2] master, the two lengths divided by (the second 1
// without grounding).
SOME_OP(void, query_forward,
        (Context & ctx, const Tensor& raw, const Tensor* previous, double ground, Tensor& query, Tensor& norms),
        (ctx, raw, previous, ground, query, norms))
// draw = gradient with respect to raw, in master precision (it may share dquery's memory) or compute precision (what
// the products after it read); dprevious (master, may be null) is ADDED to.
SOME_OP(void, query_backward,
        (Context & ctx, const Tensor& dquery, const Tensor& raw, const Tensor& query, const Tensor& norms,
         double ground, Tensor& draw, Tensor* dprevious),
        (ctx, dquery, raw, query, norms, ground, draw, dprevious))

struct Routing {
  Tensor indices;  // i32 [T, k], best first (by score and bias); equal ones go to the lower expert
  Tensor scores;   // master [T, k]
  Tensor gates;    // master [T, k] = softmax(scores / temperature)
  // How many choices of each block of 64 tokens fell on each expert, i32 [blocks, E]. query_route_forward leaves them
  // for make_dispatch where the GPU has them anyway; otherwise empty.
  Tensor counts{};
};

// keys: [E, d] master; bias: [E] master, added to the scores for the choice alone (null: none); temperature: [1] master
// (on the device, because it may be learnt).
// choice_given: routing.indices is already filled in (the random-routing control); only scores and gates are computed.
SOME_OP(void, route_forward,
        (Context & ctx, const Tensor& query, const Tensor& keys, const Tensor* bias, const Tensor& temperature,
         bool choice_given, Routing& routing),
        (ctx, query, keys, bias, temperature, choice_given, routing))

// From the query network's output to the gates. Tensors as in query_forward and route_forward.
struct QueryRoute {
  Tensor raw;
  const Tensor* previous = nullptr;
  double ground = 0;
  Tensor keys;
  const Tensor* bias = nullptr;
  const Tensor* log_temperature = nullptr;  // unless null, temperature is set to its exponential
  bool choice_given = false;
  // Results.
  Tensor query, norms, temperature;
  Routing& routing;
};
// query_forward and route_forward in one. May take memory for routing.counts from the context's arena.
SOME_OP(void, query_route_forward, (Context & ctx, const QueryRoute& route), (ctx, route))

// linear_forward and query_route_forward in one: raw = y W^T + b first. y: [T, in] compute; raw is written, too.
struct RouterEnd {
  const Tensor& y;
  const Param &weight, &bias;
};
SOME_OP(void, router_route_forward, (Context & ctx, const RouterEnd& router, const QueryRoute& route),
        (ctx, router, route))

// The control of random routing: k distinct experts for token id v, in random order, by a fixed hash of (seed, layer,
// v).
SOME_OP(void, random_choice,
        (Context & ctx, const Tensor& tokens, int experts, std::uint64_t seed, int layer, Tensor& indices),
        (ctx, tokens, experts, seed, layer, indices))

// dquery [T, d] = sum_i dscore_i * keys[index_i]; dlog_temperature ([1] master), the gradient of the temperature's
// logarithm, is added to when not null.
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
// route_backward and query_backward in one, for queries with no other gradient than the gates'.
SOME_OP(void, route_query_backward, (Context & ctx, const RouteQueryBackward& in), (ctx, in))

// Load balancing (spec 5): loss = coefficient * E * sum_e f_e * p_e over the positions with targets[t] >= 0 (all when
// targets is null), f_e the share of choices that fell on e, p_e the mean of softmax(all scores / temperature). Adds
// the gradient through p to dquery and the loss to loss[0] (master [1]).
SOME_OP(void, balance_loss,
        (Context & ctx, const Tensor& query, const Tensor& keys, const Tensor& temperature, const Tensor& indices,
         const Tensor* targets, double coefficient, Tensor& dquery, Tensor& loss),
        (ctx, query, keys, temperature, indices, targets, coefficient, dquery, loss))

// Keeps the mean gate entropy (nats) over the same positions inside [low, high]: loss = coefficient * distance^2 of the
// mean entropy from the band, added to loss[0]; its gradient is added to dgates.
SOME_OP(void, entropy_band_loss,
        (Context & ctx, const Tensor& gates, const Tensor* targets, double low, double high, double coefficient,
         Tensor& dgates, Tensor& loss),
        (ctx, gates, targets, low, high, coefficient, dgates, loss))

}  // namespace some
