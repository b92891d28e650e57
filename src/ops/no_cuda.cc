// Stands in for the CUDA operations in a build without a CUDA compiler: every one fails with the same clear error, so
// that callers have no conditionals.
#include "kernels/reduce/deferred_sums.h"
#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/deferred_gradients.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/linear_pair.h"
#include "ops/modulate.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/route.h"
#include "tensor/device.h"

namespace some::cuda {
namespace {
[[noreturn]] void refuse() { failed("{}", unavailable_reason_text()); }
}  // namespace

void linear_forward(Context&, const Tensor&, const Param&, const Param&, Tensor&) { refuse(); }
void linear_gelu_forward(Context&, const Tensor&, const Param&, const Param&, Tensor&, Tensor&) { refuse(); }
void linear_two_forward(Context&, const Tensor&, const Param&, const Param&, Tensor&, Tensor&, const Param&, Tensor&) {
  refuse();
}
void linear_after_gelu_backward(Context&, const Tensor&, const Tensor&, const Param&, const Param&, const Tensor&,
                                Tensor&) {
  refuse();
}
void linear_backward(Context&, const Tensor&, const Tensor&, const Param&, const Param&, Tensor*, Into) { refuse(); }
void linear_inputs_backward(Context&, const Tensor&, const Param&, const Tensor&, const Param&, Tensor&, Into) {
  refuse();
}
void linear_gelu_backward(Context&, const Tensor&, Tensor&, const Tensor&, const Param&, const Param&, Tensor*, Into) {
  refuse();
}

void add_norm_forward(Context&, const Tensor&, const Tensor*, const Param&, const Param&, Tensor&, Tensor&, Tensor&,
                      Tensor&) {
  refuse();
}
void defer_sums(Context&) { refuse(); }
void finish_sums(Context&) { refuse(); }
void drop_sums(Context&) { refuse(); }
void defer_gradients(Context&) { refuse(); }
void finish_gradients(Context&) { refuse(); }
void drop_gradients(Context&) { refuse(); }

void norm_backward(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Param&, const Param&,
                   const Tensor*, Tensor&, Tensor*) {
  refuse();
}

void attention_forward(Context&, const Tensor&, const Sequences&, int, bool, Tensor&, Tensor&) { refuse(); }
void attention_backward(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Sequences&, int,
                        bool, Tensor&) {
  refuse();
}
void rope(Context&, Tensor&, const Tensor&, int, bool) { refuse(); }
void attention_cached(Context&, const Tensor&, const Tensor&, const Tensor&, int, Tensor&, Tensor&) { refuse(); }

void embed_forward(Context&, const Tensor&, const Tensor&, const Param&, bool, Tensor&) { refuse(); }
TokenOrder order_tokens(Context&, const Tensor&, const Param&) { refuse(); }
void embed_backward(Context&, const Tensor&, const TokenOrder&, const Tensor&, const Param&) { refuse(); }

void query_forward(Context&, const Tensor&, const Tensor*, double, Tensor&, Tensor&) { refuse(); }
void query_backward(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, Tensor&, Tensor*) {
  refuse();
}
void route_forward(Context&, const Tensor&, const Tensor&, const Tensor*, const Tensor&, bool, Routing&) { refuse(); }
void router_route_forward(Context&, const RouterEnd&, Tensor&, const Tensor*, double, Tensor&, Tensor&, const Tensor&,
                          const Tensor*, const Tensor*, Tensor&, bool, Routing&) {
  refuse();
}
void query_route_forward(Context&, const Tensor&, const Tensor*, double, Tensor&, Tensor&, const Tensor&, const Tensor*,
                         const Tensor*, Tensor&, bool, Routing&) {
  refuse();
}
void conv_rows(Context&, const Tensor&, Tensor&) { refuse(); }
void conv_forward(Context&, const Tensor&, const Tensor&, const Param&, Tensor&) { refuse(); }
void conv_backward(Context&, const Tensor&, const Tensor&, const Tensor&, const Param&, Tensor&) { refuse(); }
void scatter_rows(Context&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void sum_choices(Context&, const Tensor&, const Tensor&, const Tensor*, Into, Tensor&) { refuse(); }
void modulate_experts_forward(Context&, const Modulation&, Tensor&) { refuse(); }
void modulate_experts_backward(Context&, const Modulation&, const Tensor&, Tensor&, ExpertGrads*) { refuse(); }
void scatter_add_states(Context&, const Modulation&, const Tensor&, Tensor&) { refuse(); }
void modulate_forward(Context&, const Modulation&, Tensor&, Tensor&) { refuse(); }
void modulate_backward(Context&, Tensor&, const Modulation&, Tensor&, Tensor&, Tensor&, Tensor&, ExpertGrads*) {
  refuse();
}
void random_choice(Context&, const Tensor&, int, std::uint64_t, int, Tensor&) { refuse(); }
void route_backward(Context&, const Tensor&, const Routing&, const Tensor&, const Tensor&, Tensor&, Tensor*) {
  refuse();
}
void route_query_backward(Context&, const Tensor&, const Routing&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, const Tensor&, double, Tensor&, Tensor*, Tensor*) {
  refuse();
}
void balance_loss(Context&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor*, double, Tensor&,
                  Tensor&) {
  refuse();
}
void entropy_band_loss(Context&, const Tensor&, const Tensor*, double, double, double, Tensor&, Tensor&) { refuse(); }

DispatchPlan make_dispatch(Context&, const Tensor&, int, const Tensor&) { refuse(); }
bool experts_keep_outputs(Context&, const ExpertWeights&) { refuse(); }
void experts_forward(Context&, const Tensor&, const ExpertWeights&, const DispatchPlan&, const Tensor&, ExpertTape&,
                     Tensor&) {
  refuse();
}
void experts_backward(Context&, const Tensor&, const Tensor&, const ExpertWeights&, const DispatchPlan&, const Tensor&,
                      ExpertTape&, Tensor&, Into, Tensor&, ExpertGrads*, const std::function<void()>&) {
  refuse();
}

void head_loss(Context&, const Tensor&, const Param&, const Param&, const Tensor&, double, Tensor&, Tensor*) {
  refuse();
}

void gradient_norm(Context&, const Tensor&, Tensor&) { refuse(); }
void adamw_step(Context&, Tensor&, Tensor&, const Tensor&, Tensor&, Tensor&, const Tensor&, const AdamSettings&) {
  refuse();
}

void add_into(Context&, const Tensor&, Tensor&) { refuse(); }
void convert(Context&, const Tensor&, Tensor&) { refuse(); }
void fill(Context&, double, Tensor&) { refuse(); }
void fill_each(Context&, std::span<const double>, Tensor&) { refuse(); }
void sum_all(Context&, const Tensor&, Tensor&) { refuse(); }
void gather_rows(Context&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void exponential(Context&, const Tensor&, Tensor&) { refuse(); }
void multiply_add(Context&, const Tensor&, const Tensor&, Tensor&) { refuse(); }
void add_counts(Context&, std::span<const Tensor>, std::span<const Tensor>) { refuse(); }

}  // namespace some::cuda
