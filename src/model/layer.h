// One block of the transformer: attention and the SoME (or dense) layer, forward and backward (spec 2, 3).
#pragma once

#include <optional>
#include <vector>

#include "experts/library.h"
#include "keys/key_store.h"
#include "model/config.h"
#include "model/expert_parallel.h"
#include "ops/attention.h"
#include "ops/experts.h"
#include "ops/modulate.h"
#include "ops/route.h"
#include "runtime/context.h"
#include "tensor/param.h"

namespace some {

// What one layer owns. Which parts are present depends on the configuration (model/declaration.cc).
struct Layer {
  int index = 0;
  Param qkv_weight, qkv_bias, out_weight, out_bias;
  Param norm1_weight, norm1_bias, norm2_weight, norm2_bias;
  // ffn = "some"
  Param router_weight[2], router_bias[2];  // the second pair only for router = "mlp"
  Param input_proj, output_proj;
  Param hidden_weight, hidden_bias, gains;  // readout = "modulated"
  Param log_temperature;                    // temperature = "learned"
  // The experts' matrices. Frozen ones have only `compute`, which is the library, or this rank's part of it; without w2
  // for readout = "features".
  Param w1, w2;
  Param lora_w1_a, lora_w1_b, lora_w2_a, lora_w2_b;
  std::uint64_t library_hash = 0;  // of all experts
  std::optional<Block> held;       // the experts that this rank computes with; nothing: all
  KeyState keys;
  // ffn = "dense"
  Param dense_weight[2], dense_bias[2];
  Param conv;  // of a block that sees the tokens before
};

// One SoME layer's intermediate results: what the backward pass, the key update and the studies read.
struct SomeTape {
  Tensor router_pre, router_act;  // mlp only
  Tensor raw, query, norms;
  Tensor temperature;  // [1] master
  Routing routing;
  Tensor looked;  // what a block that looks back reads: x with a share of the states before; otherwise x
  Tensor seen;    // what the experts see: x, or what the read-in makes of it
  DispatchPlan plan;
  ExpertWeights experts;  // the weights used in this step
  ExpertTape choices;
  ExpertParallelTape spread;  // experts over ranks: in place of the plan (but of a modulated layer) and the choices
  Modulation modulation;      // readout = "modulated"
  Tensor mixed;               // the experts' sum before the readout; the output itself without one
  Tensor output;
};

struct AttentionTape {
  Tensor qkv, lse, mixed, output;
};

struct DenseTape {
  Tensor looked;  // as above
  Tensor pre, act, output;
};

struct NormTape {
  Tensor sum, y, mean, rstd;
};

// Settings of one pass that are the same for every layer.
struct Pass {
  bool training = false;
  int top_k = 0;                        // may be below the configured one (topk_warmup)
  Tensor fixed_temperature;             // [1] master
  const Tensor* tokens = nullptr;       // for random routing
  const Tensor* taking_part = nullptr;  // targets when padding is not counted; null: every position
  Tensor past;                          // rows of the states before (ops/conv.h), where a block looks back
  std::vector<Tensor> kept_states;      // generation: each layer's, at whose rows `past` points
  Tensor places;                        // and where in them the new ones go, i32 [T]
  Tensor auxiliary_loss;                // [1] master, training only
  double auxiliary_share =
      1;  // this micro-batch's share of the step: a coefficient means the same however the step is cut
};

SomeTape some_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, const Tensor& x,
                      const Tensor* previous_query);

// What a backward pass takes from the arena its caller gives back: the gradients of matrices may still need it
// (ops/deferred_gradients.h).

// dy: gradient of the layer's output (without the residual). dx: [T, d] compute, ADDED to. dquery_above: what the layer
// above sends back through grounding; dquery_below: what goes to the layer below, ADDED to (null: nothing).
void some_backward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, SomeTape& tape,
                   const Tensor& x, const Tensor& dy, const Tensor* dquery_above, Tensor* dquery_below, Tensor& dx);

// Whether the layers' experts are shared out among ranks.
inline bool expert_parallel(const Context& ctx, const ModelConfig& config) {
  return !ctx.expert_group.alone() && config.ffn == Ffn::some && config.use_library;
}
// The same passes for the tokens of other ranks alone: what they want of the experts that are here.
SomeTape some_serve_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass);
void some_serve_backward(Context& ctx, const ModelConfig& config, const Layer& layer, SomeTape& tape);

DenseTape dense_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Pass& pass, const Tensor& x);
void dense_backward(Context& ctx, const Layer& layer, const Pass& pass, DenseTape& tape, const Tensor& x,
                    const Tensor& dy, Tensor& dx);

AttentionTape attention_layer_forward(Context& ctx, const ModelConfig& config, const Layer& layer, const Tensor& x,
                                      const Tensor& positions, const Sequences& sequences);
// The output for new tokens of several sequences, each at its position of a slot of the cache (generation).
Tensor attention_layer_cached(Context& ctx, const ModelConfig& config, const Layer& layer, const Tensor& x,
                              const Tensor& slots, const Tensor& positions, Tensor& cache);
// dx is overwritten or added to.
void attention_layer_backward(Context& ctx, const ModelConfig& config, const Layer& layer, const AttentionTape& tape,
                              const Tensor& x, const Tensor& positions, const Sequences& sequences, const Tensor& dy,
                              Tensor& dx, bool add);

NormTape norm_layer_forward(Context& ctx, const Tensor& x, const Tensor* addend, const Param& weight,
                            const Param& bias);

}  // namespace some
