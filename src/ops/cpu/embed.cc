#include "ops/embed.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/math.h"
#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

void check_tokens(const std::int32_t* tokens, std::int64_t count, std::int64_t vocabulary) {
  for (std::int64_t t = 0; t < count; ++t) {
    if (tokens[t] < 0 || tokens[t] >= vocabulary) {
      failed(Code::token_out_of_range, "token {} at position {} is outside the vocabulary of {}", tokens[t], t,
             vocabulary);
    }
  }
}

// Fills the table of sinusoidal position encodings: PE[p, 2i] = sin(p * 10000^(-2i/d)), PE[p, 2i+1] = cos(the same)
// (spec 2).
template <typename T>
void fill_positions(Context& ctx, T* table, std::int64_t count, std::int64_t d) {
  parallel_chunks(*ctx.threads, count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < d; i += 2) {
      const double rate = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(d));
      for (std::int64_t p = begin; p < end; ++p) {
        table[p * d + i] = static_cast<T>(std::sin(static_cast<double>(p) * rate));
        if (i + 1 < d) table[p * d + i + 1] = static_cast<T>(std::cos(static_cast<double>(p) * rate));
      }
    }
  });
}

template <typename T>
void forward(Context& ctx, const Tensor& tokens, const Tensor& positions, const Param& embed, bool sinusoidal,
             Tensor& out) {
  const std::int64_t count = tokens.elements(), d = embed.value.dim(1);
  if (count == 0) return;
  const std::int32_t* token = tokens.data<std::int32_t>();
  const std::int32_t* position = positions.data<std::int32_t>();
  check_tokens(token, count, embed.value.dim(0));
  const T* table = embed.compute.data<T>();
  T* result = out.data<T>();
  const T scale = static_cast<T>(std::sqrt(static_cast<double>(d)));
  ArenaScope scope(*ctx.arena);
  T* encoding = nullptr;
  if (sinusoidal) {
    const std::int64_t longest = *std::max_element(position, position + count) + 1;
    encoding = ctx.scratch({longest, d}).template data<T>();
    fill_positions(ctx, encoding, longest, d);
  }
  parallel_chunks(*ctx.threads, count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* row = table + token[t] * d;
      T* target = result + t * d;
      for (std::int64_t i = 0; i < d; ++i) target[i] = scale * row[i];
      if (encoding != nullptr) add_scaled(T(1), encoding + position[t] * d, target, d);
    }
  });
}

// The work is split by columns: each piece goes through all tokens in order, so no two pieces add to the same number.
template <typename T>
void backward(Context& ctx, const Tensor& tokens, const Tensor& dout, const Param& embed) {
  const std::int64_t count = tokens.elements(), d = embed.value.dim(1);
  const std::int32_t* token = tokens.data<std::int32_t>();
  check_tokens(token, count, embed.value.dim(0));
  const T* gradient = dout.data<T>();
  T* target = embed.grad.data<T>();
  const T scale = static_cast<T>(std::sqrt(static_cast<double>(d)));
  parallel_chunks(*ctx.threads, d, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < count; ++t) {
      add_scaled(scale, gradient + t * d + begin, target + token[t] * d + begin, end - begin);
    }
  });
}

}  // namespace

void embed_forward(Context& ctx, const Tensor& tokens, const Tensor& positions, const Param& embed, bool sinusoidal,
                   Tensor& out) {
  with_precision(ctx, [&](auto zero) { forward<decltype(zero)>(ctx, tokens, positions, embed, sinusoidal, out); });
}

TokenOrder order_tokens(Context&, const Tensor&, const Param&) { return {}; }

void embed_backward(Context& ctx, const Tensor& tokens, const TokenOrder&, const Tensor& dout, const Param& embed) {
  if (!embed.grad) return;
  with_precision(ctx, [&](auto zero) { backward<decltype(zero)>(ctx, tokens, dout, embed); });
}

}  // namespace some::cpu
