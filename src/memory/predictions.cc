#include "memory/predictions.h"

#include <algorithm>
#include <cmath>

#include "memory/reader.h"

namespace some {

MemoryPredictions::MemoryPredictions(Context& ctx, const Memory& memory, std::vector<std::vector<double>> say)
    : ctx_(ctx), memory_(memory), mixture_(std::move(say)) {
  const Tensor values = memory.store.values.to(Device::cpu);
  values_.assign(values.data<std::int32_t>(), values.data<std::int32_t>() + values.elements());
  slots_ = static_cast<std::size_t>(memory.store.slots());
  parts_ = read_vector(memory.store.entry_counts_or_totals());
  const std::vector<double> counts = read_vector(memory.store.counts);
  for (std::size_t at = 0; at < parts_.size(); ++at) parts_[at] /= std::max(counts[at % slots_], 1.0);
}

std::vector<double> MemoryPredictions::weights(const Tensor& states, std::span<const std::int32_t> texts) {
  const ArenaScope scope(*ctx_.arena);
  const auto rows = states.dim(0), kinds = static_cast<std::int64_t>(memory_.settings.sharpness.size());
  Tensor say = Tensor::empty({rows, kinds}, DType::f64);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::vector<double>& own = mixture_[static_cast<std::size_t>(texts[static_cast<std::size_t>(r)])];
    std::copy(own.begin(), own.end(), say.data<double>() + r * kinds);
  }
  Tensor queries = ctx_.scratch({rows, states.dim(1)}, ctx_.master);
  make_queries(ctx_, states, memory_.store.mean, queries);
  Tensor out = ctx_.scratch({rows, std::max<std::int64_t>(1, memory_.store.reach)}, ctx_.master);
  slot_weights(ctx_, memory_.store, memory_.settings, queries, say.to(ctx_.master).to(ctx_.device), out);
  return read_vector(out);
}

void MemoryPredictions::mix(const Tensor& states, std::span<const std::int32_t> texts, std::vector<double>& logits) {
  const auto rows = static_cast<std::size_t>(states.dim(0)), reach = static_cast<std::size_t>(memory_.store.reach);
  if (rows == 0 || reach == 0) return;
  const std::size_t vocabulary = logits.size() / rows;
  const std::vector<double> weight = weights(states, texts);
  std::vector<double> said(vocabulary);
  for (std::size_t r = 0; r < rows; ++r) {
    std::fill(said.begin(), said.end(), 0.0);
    double heard = 0;
    for (std::size_t m = 0; m < reach; ++m) {
      if (values_[m] < 0 || weight[r * reach + m] == 0) continue;
      heard += weight[r * reach + m];
      for (std::size_t at = m; at < values_.size(); at += slots_) {
        if (values_[at] >= 0) said[static_cast<std::size_t>(values_[at])] += parts_[at] * weight[r * reach + m];
      }
    }
    double* row = logits.data() + r * vocabulary;
    const double highest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v] - highest);
    for (std::size_t v = 0; v < vocabulary; ++v) {
      const double both = (1 - heard) * std::exp(row[v] - highest) / sum + said[v];
      row[v] = std::log(std::max(both, 1e-300));
    }
  }
}

std::vector<std::vector<SlotContribution>> MemoryPredictions::parts_of(const Tensor& states,
                                                                       std::span<const std::int32_t> texts,
                                                                       std::int32_t value, std::size_t most) {
  const auto rows = static_cast<std::size_t>(states.dim(0)), reach = static_cast<std::size_t>(memory_.store.reach);
  std::vector<std::vector<SlotContribution>> out(rows);
  if (reach == 0) return out;
  const std::vector<double> weight = weights(states, texts);
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<SlotContribution>& own = out[r];
    for (std::size_t m = 0; m < reach; ++m) {
      for (std::size_t at = m; at < values_.size(); at += slots_) {
        if (values_[at] == value)
          own.push_back({static_cast<std::int32_t>(m), static_cast<std::int32_t>(at / slots_),
                         parts_[at] * weight[r * reach + m]});
      }
    }
    const std::size_t kept = std::min(most, own.size());
    std::partial_sort(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(kept), own.end(),
                      [](const SlotContribution& a, const SlotContribution& b) {
                        return a.weight != b.weight ? a.weight > b.weight : a.slot < b.slot;
                      });
    own.resize(kept);
  }
  return out;
}

std::vector<double> mixture_weights_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens) {
  MemoryReader reader(model, &memory, false);
  if (tokens.size() > 1)
    reader.read(tokens,
                {0, 1, std::ssize(tokens), memory.settings.window, windows_at_once(model.context(), model.config())},
                {});
  return reader.shares();
}

void mix_losses(Context& ctx, const Memory& memory, const Tensor& states, const Tensor& targets, Tensor& shares,
                Tensor& nll) {
  constexpr std::int64_t rows_at_once = 512;
  const ArenaScope scope(*ctx.arena);
  Tensor queries = ctx.scratch(states.shape(), ctx.master);
  make_queries(ctx, states, memory.store.mean, queries);
  std::vector<Rows> windows;
  for (std::int64_t first = 0; first < nll.dim(0); first += rows_at_once)
    windows.push_back({first, std::min(nll.dim(0), first + rows_at_once)});
  std::vector<Matches> found = make_matches(ctx, memory.store, memory.settings, queries, windows);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto [first, last] = windows[i];
    const Tensor wanted = targets.rows(first, last);
    search(ctx, memory.store, memory.settings, queries.rows(first, last), wanted, found[i]);
    Tensor losses = nll.rows(first, last);
    mix(ctx, memory.settings, found[i], wanted, shares, losses);
  }
}

}  // namespace some
