#include "ops/head_loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

// Limit on the number of logits that exist at once (32 MB in float), and bounds on the number of rows: enough for fast
// GEMMs.
constexpr std::int64_t largest_chunk = std::int64_t{8} << 20, fewest_rows = 128, max_rows = 2048;

// Returns the nll of one token. If `differentiate`, replaces its logits by the gradient of scale * nll.
template <typename T>
T cross_entropy(T* logits, std::int64_t vocabulary, std::int64_t target, T scale, bool differentiate) {
  const T highest = largest(logits, vocabulary), wanted = logits[target];
  const T sum = exp_sum(logits, vocabulary, highest);
  if (differentiate) {
    const T factor = scale / sum;
#pragma omp simd
    for (std::int64_t v = 0; v < vocabulary; ++v) logits[v] *= factor;
    logits[target] -= scale;
  }
  return std::log(sum) + highest - wanted;
}

template <typename T>
void loss_of(Context& ctx, const Tensor& h, const Param& weight, const Param& bias, const Tensor& targets,
             const LossScale& scale, Tensor& nll, Tensor* dh) {
  const std::int64_t tokens = h.dim(0), d = h.dim(1), vocabulary = weight.compute.dim(0);
  const std::int64_t rows_at_once = std::clamp(largest_chunk / vocabulary, fewest_rows, max_rows);
  const std::int32_t* target = targets.data<std::int32_t>();
  const T* w = weight.compute.data<T>();
  const T* b = bias ? bias.value.data<T>() : nullptr;
  T* losses = nll.data<T>();
  const T factor = scale.tensor ? scale.tensor.data<T>()[0] : static_cast<T>(scale.value);
  ArenaScope scope(*ctx.arena);
  T* logits = ctx.scratch({std::min(tokens, rows_at_once), vocabulary}).template data<T>();
  for (std::int64_t first = 0; first < tokens; first += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, tokens - first);
    const T* states = h.data<T>() + first * d;
    gemm_then(*ctx.threads,
              in_precision(
                  ctx, Product<T>{false, true, rows, vocabulary, d, T(1), states, d, w, d, T(0), logits, vocabulary}),
              [&](const Tile& tile) {
                if (b == nullptr) return;
                for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) {
                  add_scaled(T(1), b + tile.column_begin, logits + row * vocabulary + tile.column_begin,
                             tile.column_end - tile.column_begin);
                }
              });
    parallel_chunks(*ctx.threads, rows, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int32_t wanted = target[first + row];
        if (wanted >= vocabulary)
          failed(Code::token_out_of_range, "target {} is outside the vocabulary of {}", wanted, vocabulary);
        T* line = logits + row * vocabulary;
        if (wanted < 0) {
          losses[first + row] = T(0);
          if (dh != nullptr) std::fill_n(line, vocabulary, T(0));
        } else {
          losses[first + row] = cross_entropy(line, vocabulary, wanted, factor, dh != nullptr);
        }
      }
    });
    if (dh == nullptr) continue;
    gemm(*ctx.threads, in_precision(ctx, Product<T>{false, false, rows, d, vocabulary, T(1), logits, vocabulary, w, d,
                                                    T(0), dh->data<T>() + first * d, d}));
    if (weight.grad) {
      gemm(*ctx.threads, in_precision(ctx, Product<T>{true, false, vocabulary, d, rows, T(1), logits, vocabulary,
                                                      states, d, T(1), weight.grad.data<T>(), d}));
    }
    if (bias && bias.grad) add_column_sums(ctx, logits, rows, vocabulary, bias.grad.data<T>());
  }
}

}  // namespace

void head_loss(Context& ctx, const Tensor& h, const Param& weight, const Param& bias, const Tensor& targets,
               const LossScale& scale, Tensor& nll, Tensor* dh, Schedule*) {
  if (h.dim(0) == 0) return;
  with_precision(ctx, [&](auto zero) { loss_of<decltype(zero)>(ctx, h, weight, bias, targets, scale, nll, dh); });
}

}  // namespace some::cpu
