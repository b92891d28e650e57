// Token embedding with positions (spec 2, "Input").
#pragma once

#include "runtime/op.h"
#include "tensor/param.h"

namespace some {

// Computes out[t] = sqrt(d) * embed[tokens[t]] + PE[positions[t]] (the second term only when `sinusoidal`). tokens,
// positions: i32 [T]; out: [T, d] compute.
SOME_OP(void, embed_forward,
        (Context & ctx, const Tensor& tokens, const Tensor& positions, const Param& embed, bool sinusoidal,
         Tensor& out),
        (ctx, tokens, positions, embed, sinusoidal, out))

// Tokens sorted by id, and the position in the batch that each came from; the sort is stable. Only a GPU needs it: on
// the CPU both are empty. In the context's arena.
struct TokenOrder {
  Tensor ids, places;  // i32 [T]
};
SOME_OP(TokenOrder, order_tokens, (Context & ctx, const Tensor& tokens, const Param& embed), (ctx, tokens, embed))

// Computes embed.grad[v] += sqrt(d) * sum of dout[t] over the t with tokens[t] == v, in the order of t. order: from
// order_tokens for the same tokens.
SOME_OP(void, embed_backward,
        (Context & ctx, const Tensor& tokens, const TokenOrder& order, const Tensor& dout, const Param& embed),
        (ctx, tokens, order, dout, embed))

}  // namespace some
