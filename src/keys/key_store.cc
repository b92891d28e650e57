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
void draw_keys(const RandomStream& stream, int experts, int query_size, T* out) {
  std::vector<double> row(static_cast<std::size_t>(query_size));
  for (std::int64_t e = 0; e < experts; ++e) {
    double square = 0.0;
    for (std::int64_t j = 0; j < query_size; ++j) {
      const double value = stream.normal(static_cast<std::uint64_t>(e * query_size + j));
      row[static_cast<std::size_t>(j)] = value;
      square += value * value;
    }
    const double length = std::max(std::sqrt(square), kSmallestLength);
    for (std::int64_t j = 0; j < query_size; ++j)
      out[e * query_size + j] = static_cast<T>(row[static_cast<std::size_t>(j)] / length);
  }
}

}  // namespace

KeyState make_key_state(Context& ctx, int experts, int query_size, std::uint64_t seed, int layer,
                        const KeySettings& settings) {
  if (experts < 1 || query_size < 1)
    bad_input("a key store needs at least one expert and queries of at least one number; asked for {} and {}", experts,
              query_size);
  const RandomStream stream = random_stream(seed, fmt::format("layers.{}.keys", layer));
  Tensor keys = Tensor::empty({experts, query_size}, ctx.master);
  if (ctx.master == DType::f64) {
    draw_keys(stream, experts, query_size, keys.data<double>());
  } else {
    draw_keys(stream, experts, query_size, keys.data<float>());
  }
  KeyState state;
  state.keys = ctx.device.is_cpu() ? keys : keys.to(ctx.device);
  state.usage = Tensor::zeros({experts}, ctx.master, ctx.device);
  state.mass = Tensor::zeros({experts}, ctx.master, ctx.device);
  if (settings.key_ema > 0.0) state.average = state.keys.clone();
  state.counts = Tensor::zeros({4}, DType::i64, ctx.device);
  return state;
}

KeySums make_key_sums(Context& ctx, int experts, int top_k, int query_size, bool with_sample) {
  KeySums sums;
  sums.slot_counts = Tensor::empty({experts, top_k}, DType::i32, ctx.device);
  sums.gate_sums = Tensor::empty({experts}, ctx.master, ctx.device);
  sums.query_sums = Tensor::empty({experts, top_k, query_size}, ctx.master, ctx.device);
  sums.together = Tensor::empty({experts, experts}, DType::i32, ctx.device);
  sums.positions = Tensor::empty({1}, DType::i64, ctx.device);
  if (with_sample) {
    sums.sample_priority = Tensor::empty({experts}, DType::i64, ctx.device);
    sums.sample_queries = Tensor::empty({experts, query_size}, ctx.master, ctx.device);
  }
  clear_key_sums(ctx, sums);
  return sums;
}

}  // namespace some::keys
