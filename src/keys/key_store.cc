// Making the key store's tensors: the same on every device, because they are drawn on the CPU.
#include "keys/key_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "keys/rules.h"

namespace some::keys {
namespace {

template <typename T>
void draw_keys(const RandomStream& stream, int experts, int d_model, T* out) {
  std::vector<double> row(static_cast<std::size_t>(d_model));
  for (std::int64_t e = 0; e < experts; ++e) {
    double square = 0.0;
    for (std::int64_t j = 0; j < d_model; ++j) {
      const double value = stream.normal(static_cast<std::uint64_t>(e * d_model + j));
      row[static_cast<std::size_t>(j)] = value;
      square += value * value;
    }
    const double length = std::max(std::sqrt(square), kSmallestLength);
    for (std::int64_t j = 0; j < d_model; ++j)
      out[e * d_model + j] = static_cast<T>(row[static_cast<std::size_t>(j)] / length);
  }
}

}  // namespace

KeyState make_key_state(Context& ctx, int experts, int d_model, std::uint64_t seed, int layer,
                        const KeySettings& settings) {
  if (experts < 1 || d_model < 1)
    bad_input("a key store needs at least one expert and d_model >= 1; asked for {} and {}", experts, d_model);
  const RandomStream stream = random_stream(seed, fmt::format("layers.{}.keys", layer));
  Tensor keys = Tensor::empty({experts, d_model}, ctx.master);
  if (ctx.master == DType::f64) {
    draw_keys(stream, experts, d_model, keys.data<double>());
  } else {
    draw_keys(stream, experts, d_model, keys.data<float>());
  }
  KeyState state;
  state.keys = ctx.device.is_cpu() ? keys : keys.to(ctx.device);
  state.usage = Tensor::zeros({experts}, ctx.master, ctx.device);
  state.mass = Tensor::zeros({experts}, ctx.master, ctx.device);
  if (settings.key_ema > 0.0) state.average = state.keys.clone();
  state.counts = Tensor::zeros({4}, DType::i64, ctx.device);
  return state;
}

KeySums make_key_sums(Context& ctx, int experts, int top_k, int d_model, bool with_sample) {
  KeySums sums;
  sums.slot_counts = Tensor::empty({experts, top_k}, DType::i32, ctx.device);
  sums.gate_sums = Tensor::empty({experts}, ctx.master, ctx.device);
  sums.query_sums = Tensor::empty({experts, top_k, d_model}, ctx.master, ctx.device);
  sums.together = Tensor::empty({experts, experts}, DType::i32, ctx.device);
  sums.positions = Tensor::empty({1}, DType::i64, ctx.device);
  if (with_sample) {
    sums.sample_priority = Tensor::empty({experts}, DType::i64, ctx.device);
    sums.sample_queries = Tensor::empty({experts, d_model}, ctx.master, ctx.device);
  }
  clear_key_sums(ctx, sums);
  return sums;
}

}  // namespace some::keys
