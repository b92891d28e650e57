// Multi-head attention over unpadded sequences (spec 2, "Attn"). Token t of sequence s attends only to tokens of s and,
// when causal, only to those not after it. The S x S attention weights are never stored.
#pragma once

#include "kernels/attention/sequences.h"
#include "runtime/op.h"

namespace some {

// Computes attention. qkv: [T, 3d] compute: queries, then keys, then values, each split into heads of d/heads columns.
// out: [T, d] compute. lse: [heads, T] master: log-sum-exp of the scaled scores, kept for the backward pass.
SOME_OP(void, attention_forward,
        (Context & ctx, const Tensor& qkv, const Sequences& sequences, int heads, bool causal, Tensor& out,
         Tensor& lse),
        (ctx, qkv, sequences, heads, causal, out, lse))

// Computes dqkv: [T, 3d] compute, overwritten.
SOME_OP(void, attention_backward,
        (Context & ctx, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
         const Sequences& sequences, int heads, bool causal, Tensor& dqkv),
        (ctx, dout, qkv, out, lse, sequences, heads, causal, dqkv))

// Applies rotary position embeddings (RoPE) to the query and key parts of qkv, in place: within each head the pair (2i,
// 2i+1) is rotated by the angle positions[t] * 10000^(-2i/(d/heads)). `inverse` rotates back (the backward pass).
// positions: i32 [T].
SOME_OP(void, rope, (Context & ctx, Tensor& qkv, const Tensor& positions, int heads, bool inverse),
        (ctx, qkv, positions, heads, inverse))

// Computes attention with a KV cache, for generation. Row n of qkv [N, 3d] is a new token of cache slot slots[n] at
// position positions[n]; both are i32 [N]. Its key and value are stored in cache ([slots, capacity, 2d] compute: key
// then value) at that position, and it attends to all positions <= its own in that slot. Rows of one slot must be in
// the order of their positions. out: [N, d].
SOME_OP(void, attention_cached,
        (Context & ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions, int heads, Tensor& cache,
         Tensor& out),
        (ctx, qkv, slots, positions, heads, cache, out))

}  // namespace some
