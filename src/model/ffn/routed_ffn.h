// Base class of feed-forward blocks with experts (spec 3): a router selects experts for each token, their mixture is
// computed, and optional trained projections precede and follow it.
#pragma once

#include "model/causal_conv.h"
#include "model/ffn/expert_bank.h"
#include "model/ffn/expert_parallel.h"
#include "model/ffn/feed_forward.h"
#include "model/ffn/router.h"

namespace some {

class RoutedFfn : public FeedForward {
 public:
  struct Tape : FeedForward::Tape {
    RouterTape router;
    Tensor states;    // Pass::states
    Tensor conv_out;  // input after the convolution
    Tensor seen;      // input of the experts: x, or its input projection
    DispatchPlan plan;
    ExpertWeights weights;  // gates used in this step
    ExpertTape choices;
    ExpertParallelTape parallel;  // replaces the assignments, and the plan unless the experts modulate
    Tensor mixed;                 // mixture before the output projection
    const RouterTape* routed() const override { return &router; }
  };
  RoutedFfn(const ModelConfig& config, int layer);

  void declare(Declaration& declare) override;
  std::unique_ptr<FeedForward::Tape> forward(Context& ctx, const Pass& pass, const Tensor& x,
                                             const Tensor* previous_query) const override;
  void backward(Schedule& schedule, const Pass& pass, FeedForward::Tape& tape,
                const Gradients& gradients) const override;
  std::unique_ptr<FeedForward::Tape> serve_forward(Context& ctx, const Pass& pass) const override;
  void serve_backward(Context& ctx, FeedForward::Tape& tape) const override;
  Router* router() override { return &router_; }
  ExpertBank* experts() override { return &experts_; }

 protected:
  // Gradients of the mixture.
  struct MixGradients {
    const Tensor& x;
    Tensor dmixed;           // may be overwritten
    Tensor dseen;            // the memory of dx without an input projection, which is ADDED to; otherwise undefined
    ExpertGrads* grads;      // null if the experts' matrices are not trained
    RouterBackward& router;  // dgates is overwritten
    Tensor& dx;              // ADDED to
  };
  virtual std::unique_ptr<Tape> make_tape() const { return std::make_unique<Tape>(); }
  // Declares the parameters between the output projection and the experts.
  virtual void declare_more(Declaration&) {}
  // Computes tape.mixed.
  virtual void mix(Context& ctx, const Pass& pass, Tape& tape) const = 0;
  // Computes all gradients except those of the router, and of dx through an input projection that shares the router's
  // input.
  virtual void mix_backward(Schedule& schedule, const Pass& pass, Tape& tape, MixGradients& gradients) const = 0;
  // Expert parallelism: a pass without tokens of this rank.
  virtual void serve_mix(Context& ctx, const Pass& pass, Tape& tape, const Tensor& no_states) const = 0;
  virtual void serve_mix_backward(Context& ctx, Tape& tape, Tensor& dstates, Tensor& dgates,
                                  ExpertGrads* grads) const = 0;

  bool parallel(const Context& ctx) const { return uses_expert_parallelism(ctx, *config_); }
  // Transforms are applied token by token; only low-rank corrections require routing slots sorted by expert.
  static bool without_plan(const ExpertWeights& weights) { return weights.hadamard && !weights.low1; }
  bool keeps_outputs(Context& ctx, const Pass& pass, const ExpertWeights& weights) const;
  ExpertParallelKeeps parallel_keeps(Context& ctx, const Pass& pass, const ExpertWeights& weights) const;
  // True if the router's first layer and the input projection have the same input, so that one GEMM computes both.
  bool shares_input() const;

  const ModelConfig* config_;
  int layer_;
  Router router_;
  ExpertBank experts_;
  CausalConv conv_;
  Param input_proj_, output_proj_;  // some.input_proj, some.output_proj
};

}  // namespace some
