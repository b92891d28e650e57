#include "model/attention.h"

#include <cmath>

#include "core/error.h"
#include "ops/attention.h"

namespace some {

void Attention::check(const ModelConfig& config) {
  if (config.d_model % config.heads != 0) {
    bad_input(Code::setting_out_of_range, "{} = {}: must divide model.d_model = {}", "model.heads", config.heads,
              config.d_model);
  }
  const int head_size = config.d_model / config.heads;
  if (config.position == Position::rope && head_size % 2 != 0) {
    bad_input(Code::setting_out_of_range,
              "{} = \"rope\": rotates pairs, so model.d_model / model.heads = {} must be even", "model.position",
              head_size);
  }
}

void Attention::declare(Declaration& declare) {
  const std::int64_t d = config_->d_model;
  declare.linear(qkv_weight_, qkv_bias_, "attn.qkv", 3 * d, d,
                 {Initial::Kind::uniform, std::sqrt(6.0 / (4.0 * static_cast<double>(d)))}, {Initial::Kind::zero});
  declare.linear(out_weight_, out_bias_, "attn.out", d, d, uniform(d), {Initial::Kind::zero});
}

Attention::Tape Attention::forward(Context& ctx, const Pass& pass, const Tensor& x) const {
  const std::int64_t tokens = x.dim(0), d = config_->d_model;
  Tape tape;
  tape.input = x;
  tape.qkv = ctx.scratch({tokens, 3 * d});
  if (!pass.generates()) tape.lse = ctx.scratch({config_->heads, tokens}, ctx.master);
  tape.mixed = ctx.scratch({tokens, d});
  tape.output = ctx.scratch({tokens, d});
  linear_forward(ctx, x, qkv_weight_, qkv_bias_, tape.qkv);
  if (config_->position == Position::rope) rope(ctx, tape.qkv, pass.positions, config_->heads, false);
  if (pass.generates()) {
    Tensor cache = pass.cache[static_cast<std::size_t>(layer_)];
    attention_cached(ctx, tape.qkv, pass.slots, pass.positions, config_->heads, cache, tape.mixed);
  } else {
    attention_forward(ctx, tape.qkv, pass.sequences, config_->heads, config_->causal, tape.mixed, tape.lse);
  }
  linear_forward(ctx, tape.mixed, out_weight_, out_bias_, tape.output);
  return tape;
}

void Attention::backward(Context& ctx, const Pass& pass, const Tape& tape, const Tensor& dy, Tensor& dx,
                         Into into) const {
  Tensor dmixed = ctx.scratch(tape.mixed.shape());
  Tensor dqkv = ctx.scratch(tape.qkv.shape());
  linear_backward(ctx, dy, tape.mixed, out_weight_, out_bias_, &dmixed, Into::overwrite);
  attention_backward(ctx, dmixed, tape.qkv, tape.mixed, tape.lse, pass.sequences, config_->heads, config_->causal,
                     dqkv);
  if (config_->position == Position::rope) rope(ctx, dqkv, pass.positions, config_->heads, true);
  linear_backward(ctx, dqkv, tape.input, qkv_weight_, qkv_bias_, &dx, into);
}

}  // namespace some
