// Creates the tensors of the key store. They are drawn on the CPU, so that all devices start from the same bits.
#include "keys/key_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/elementwise.h"

namespace some {
namespace {

template <typename T>
void draw_keys(const RandomStream& stream, const RandomStream& centers, int experts, int query_size, int partitions,
               T* out) {
  std::vector<double> row(static_cast<std::size_t>(query_size));
  std::int64_t partition = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (partitions > 1 && e == partition_begin(partition + 1, experts, partitions)) ++partition;
    double square = 0.0;
    for (std::int64_t j = 0; j < query_size; ++j) {
      double value = stream.normal(static_cast<std::uint64_t>(e * query_size + j));
      if (partitions > 1) value += centers.normal(static_cast<std::uint64_t>(partition * query_size + j));
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
                        const KeySettings& settings, int partitions) {
  if (experts < 1 || query_size < 1)
    bad_input(Code::shape_mismatch, "a key store requires at least one expert and one query dimension; got {} and {}",
              experts, query_size);
  const RandomStream stream = random_stream(seed, fmt::format("layers.{}.keys", layer)),
                     centers = random_stream(seed, fmt::format("layers.{}.key_partitions", layer));
  Tensor keys = Tensor::empty({experts, query_size}, ctx.master);
  if (ctx.master == DType::f64) {
    draw_keys(stream, centers, experts, query_size, partitions, keys.data<double>());
  } else {
    draw_keys(stream, centers, experts, query_size, partitions, keys.data<float>());
  }
  KeyState state;
  state.keys = ctx.device.is_cpu() ? keys : keys.to(ctx.device);
  state.usage = Tensor::zeros({experts}, ctx.master, ctx.device);
  state.mass = Tensor::zeros({experts}, ctx.master, ctx.device);
  state.counts = Tensor::zeros({4}, DType::i64, ctx.device);
  fit_key_state(settings, state);
  return state;
}

void fit_key_state(const KeySettings& settings, KeyState& state) {
  Rules::each([&]<typename R>() {
    R::make_state(static_cast<const typename R::Settings&>(settings), state.keys,
                  static_cast<typename R::State&>(state));
  });
}

void visit_key_state(KeyState& state, const std::function<void(const std::string& name, Tensor& tensor)>& visit) {
  visit("keys", state.keys);
  visit("usage", state.usage);
  visit("mass", state.mass);
  Rules::each([&]<typename R>() { R::tensors(static_cast<typename R::State&>(state), visit); });
  visit("key_counts", state.counts);
}

KeySums make_key_sums(Context& ctx, int experts, int top_k, int query_size, const Needs& needs) {
  KeySums sums;
  sums.slot_counts = Tensor::empty({experts, top_k}, DType::i32, ctx.device);
  sums.gate_sums = Tensor::empty({experts}, ctx.master, ctx.device);
  sums.positions = Tensor::empty({1}, DType::i64, ctx.device);
  if (needs.query_sums) sums.query_sums = Tensor::empty({experts, top_k, query_size}, ctx.master, ctx.device);
  if (needs.together) sums.together = Tensor::empty({experts, experts}, DType::i32, ctx.device);
  if (needs.sample) {
    sums.sample_priority = Tensor::empty({experts}, DType::i64, ctx.device);
    sums.sample_queries = Tensor::empty({experts, query_size}, ctx.master, ctx.device);
  }
  clear_key_sums(ctx, sums);
  return sums;
}

std::vector<Tensor> additive_sums(const KeySums& sums) {
  std::vector<Tensor> out;
  for (const Tensor& one : {sums.slot_counts, sums.gate_sums, sums.positions, sums.query_sums, sums.together}) {
    if (one) out.push_back(one);
  }
  return out;
}

void merge_key_sums(Context& ctx, std::span<const KeySums> earlier, std::span<KeySums> sums) {
  for (std::size_t l = 0; l < sums.size(); ++l) {
    const std::vector<Tensor> from = additive_sums(earlier[l]);
    std::vector<Tensor> into = additive_sums(sums[l]);
    for (std::size_t i = 0; i < into.size(); ++i) add_into(ctx, from.at(i), into[i]);
    if (sums[l].sample_priority) merge_samples(ctx, earlier[l], sums[l]);
  }
}

double key_store_bytes(int experts, int top_k, int query_size, const KeySettings& settings) {
  const double e = experts, row = 4.0 * query_size;
  const Needs needs = needs_of(settings);
  double bytes = e * row;
  if (settings.key_ema > 0) bytes += e * row;
  if (settings.balance_rate > 0) bytes += e * 4;
  if (needs.query_sums) bytes += e * top_k * row;
  if (needs.together) bytes += e * e * 4;
  if (needs.sample) bytes += e * row;
  return bytes;
}

void check_key_choices(std::span<const LayerChoices> layers, const Tensor* targets) {
  for (const LayerChoices& layer : layers) {
    const LayerChoices& first = layers[0];
    const Routing& routing = layer.routing;
    const KeySums& sums = *layer.sums;
    const Needs& needs = layer.plan.needs;
    const std::int64_t rows = layer.query.dim(0), size = layer.query.dim(1);
    if (layer.query.shape() != first.query.shape() || routing.indices.shape() != first.routing.indices.shape() ||
        sums.slot_counts.shape() != first.sums->slot_counts.shape() || !(needs == first.plan.needs))
      failed(Code::shape_mismatch, "layers with different shapes or rules cannot sum their keys together");
    if (routing.indices.dim(0) != rows || routing.indices.dim(1) > sums.slot_counts.dim(1) ||
        routing.gates.shape() != routing.indices.shape() || (targets != nullptr && targets->elements() != rows) ||
        (needs.query_sums && sums.query_sums && sums.query_sums.dim(2) != size)) {
      failed(Code::shape_mismatch, "key sums {} do not match queries {} with assignments {} and gates {}",
             sums.slot_counts.shape().text(), layer.query.shape().text(), routing.indices.shape().text(),
             routing.gates.shape().text());
    }
    if ((needs.query_sums && !sums.query_sums) || (needs.together && !sums.together) ||
        (needs.sample && !sums.sample_priority))
      failed(Code::internal, "these key sums lack a sum that a rule of the key update requires");
  }
}

}  // namespace some
