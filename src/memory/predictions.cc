#include "memory/predictions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "memory/reader.h"

namespace some {

MemoryPredictions::MemoryPredictions(Context& ctx, const Memory& memory,
                                     std::vector<std::vector<double>> memory_weights)
    : ctx_(ctx), memory_(memory), mixture_(std::move(memory_weights)) {
  const Tensor values = memory.store.values.to(Device::cpu);
  values_.assign(values.data<std::int32_t>(), values.data<std::int32_t>() + values.elements());
  slots_ = static_cast<std::size_t>(memory.store.slots());
  parts_ = read_vector(memory.store.entry_counts_or_totals());
  const std::vector<double> counts = read_vector(memory.store.counts);
  for (std::size_t at = 0; at < parts_.size(); ++at) parts_[at] /= std::max(counts[at % slots_], 1.0);
}

std::vector<std::vector<double>> MemoryPredictions::sources(std::span<const std::int32_t> texts,
                                                            std::span<const std::vector<std::int32_t>> before) const {
  std::vector<std::vector<double>> out;
  for (std::size_t r = 0; memory_.settings.contexts > 0 && r < texts.size(); ++r) {
    const ContextMixture& mixture = context_mixtures_[static_cast<std::size_t>(texts[r])];
    std::vector<double>& own = out.emplace_back(static_cast<std::size_t>(mixture.sources()));
    mixture.weights(mixture_context(memory_.contexts.find(before[r]), before[r]), own);
  }
  return out;
}

std::vector<double> MemoryPredictions::weights(const Tensor& states, std::span<const std::int32_t> texts,
                                               std::span<const std::vector<double>> sources) {
  const ArenaScope scope(*ctx_.arena);
  const auto rows = states.dim(0), beta_count = static_cast<std::int64_t>(memory_.settings.beta.size());
  Tensor memory_weights = Tensor::empty({rows, beta_count}, DType::f64);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    if (!sources.empty()) {
      std::copy_n(sources[row].begin() + 1, beta_count, memory_weights.data<double>() + r * beta_count);
      continue;
    }
    const std::vector<double>& own = mixture_[static_cast<std::size_t>(texts[row])];
    std::copy(own.begin(), own.end(), memory_weights.data<double>() + r * beta_count);
  }
  Tensor queries = ctx_.scratch({rows, states.dim(1)}, ctx_.master);
  make_queries(ctx_, states, memory_.store.mean, queries);
  Tensor out = ctx_.scratch({rows, std::max<std::int64_t>(1, memory_.store.reach)}, ctx_.master);
  slot_weights(ctx_, memory_.store, memory_.settings, queries, memory_weights.to(ctx_.master).to(ctx_.device), out);
  return read_vector(out);
}

void MemoryPredictions::mix(const Tensor& states, std::span<const std::int32_t> texts, std::vector<double>& logits,
                            std::span<const std::vector<std::int32_t>> before) {
  const auto rows = static_cast<std::size_t>(states.dim(0)), reach = static_cast<std::size_t>(memory_.store.reach);
  const bool counts = memory_.settings.contexts > 0;
  if (rows == 0 || (reach == 0 && !counts)) return;
  const std::size_t vocabulary = logits.size() / rows;
  const std::vector<std::vector<double>> of_sources = sources(texts, before);
  const std::vector<double> weight = reach > 0 ? weights(states, texts, of_sources) : std::vector<double>();
  std::vector<double> memory_prob(vocabulary), orders;
  for (std::size_t r = 0; r < rows; ++r) {
    std::fill(memory_prob.begin(), memory_prob.end(), 0.0);
    double memory_weight = 0;
    for (std::size_t m = 0; m < reach; ++m) {
      if (values_[m] < 0 || weight[r * reach + m] == 0) continue;
      memory_weight += weight[r * reach + m];
      for (std::size_t at = m; at < values_.size(); at += slots_) {
        if (values_[at] >= 0) memory_prob[static_cast<std::size_t>(values_[at])] += parts_[at] * weight[r * reach + m];
      }
    }
    if (counts) {
      const ContextMatch match = memory_.contexts.find(before[r]);
      memory_.contexts.distributions(match, orders);
      const std::size_t count = orders.size() / vocabulary, first = of_sources[r].size() - count - 1;
      const double follower = of_sources[r].back();
      if (match.certain) {
        memory_weight += follower;
        memory_prob[static_cast<std::size_t>(match.follower)] += follower;
      }
      for (std::size_t k = 0; k < count; ++k) {
        const double own = of_sources[r][first + k] + (k + 1 == count && !match.certain ? follower : 0);
        memory_weight += own;
        for (std::size_t v = 0; v < vocabulary; ++v) memory_prob[v] += own * orders[k * vocabulary + v];
      }
    }
    double* row = logits.data() + r * vocabulary;
    const double highest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v] - highest);
    for (std::size_t v = 0; v < vocabulary; ++v) {
      const double both = (1 - memory_weight) * std::exp(row[v] - highest) / sum + memory_prob[v];
      row[v] = std::log(std::max(both, 1e-300));
    }
  }
}

std::vector<ContextContribution> MemoryPredictions::contexts_of(std::int32_t text, std::span<const std::int32_t> before,
                                                                std::int32_t value) const {
  if (memory_.settings.contexts == 0) return {};
  return context_contributions(memory_, context_mixtures_[static_cast<std::size_t>(text)], before, value);
}

std::vector<ContextContribution> context_contributions(const Memory& memory, const ContextMixture& mixture,
                                                       std::span<const std::int32_t> before, std::int32_t value) {
  std::vector<ContextContribution> out;
  if (memory.settings.contexts == 0) return out;
  const ContextMatch match = memory.contexts.find(before);
  std::vector<double> sources(static_cast<std::size_t>(mixture.sources()));
  mixture.weights(mixture_context(match, before), sources);
  const auto orders = static_cast<std::size_t>(memory.contexts.settings().orders());
  std::array<ContextTerm, max_orders> terms;
  memory.contexts.terms(match, value, terms);
  double* weights = sources.data() + sources.size() - orders - 1;
  const double follower = sources.back();
  if (!match.certain) weights[orders - 1] += follower;
  // passed: the fraction of an order's own contribution that reaches the predictions of itself and of the longer
  // orders.
  double passed = 0;
  for (std::size_t k = orders; k-- > 0;) {
    passed += weights[k];
    if (const ContextEntry* entry = terms[k].entry; entry != nullptr) {
      const bool only = match.certain && static_cast<int>(k) == match.longest;
      out.push_back(
          {static_cast<int>(k), passed * terms[k].own + (only ? follower : 0), entry->seen, entry->born, entry->hit});
    }
    passed *= terms[k].back;
  }
  return out;
}

std::vector<std::vector<SlotContribution>> MemoryPredictions::parts_of(
    const Tensor& states, std::span<const std::int32_t> texts, std::int32_t value, std::size_t most,
    std::span<const std::vector<std::int32_t>> before) {
  const auto rows = static_cast<std::size_t>(states.dim(0)), reach = static_cast<std::size_t>(memory_.store.reach);
  std::vector<std::vector<SlotContribution>> out(rows);
  if (reach == 0) return out;
  const std::vector<double> weight = weights(states, texts, sources(texts, before));
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

void MemoryShares::limit() {
  const double all = total();
  if (!(all > 1)) return;
  slots /= all;
  contexts /= all;
}

MemoryShares MemoryPredictions::shares_of(const Tensor& state, std::int32_t text,
                                          const std::vector<std::int32_t>& before, std::int32_t value,
                                          double probability, std::size_t most) {
  MemoryShares out;
  out.probability = probability;
  if (!(probability > 0)) return out;
  const std::array<std::int32_t, 1> texts{text};
  out.of_slots = parts_of(state, texts, value, std::numeric_limits<std::size_t>::max(), std::span(&before, 1)).front();
  out.of_contexts = contexts_of(text, before, value);
  for (SlotContribution& one : out.of_slots) out.slots += one.weight /= probability;
  for (ContextContribution& one : out.of_contexts) out.contexts += one.weight /= probability;
  out.limit();
  out.of_slots.resize(std::min(out.of_slots.size(), most));
  return out;
}

namespace {

MemoryReader reader_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens) {
  MemoryReader reader(model, &memory, false);
  if (tokens.size() > 1)
    reader.read(tokens,
                {0, 1, std::ssize(tokens), memory.settings.window, windows_at_once(model.context(), model.config())},
                {});
  return reader;
}

}  // namespace

std::vector<double> mixture_weights_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens) {
  return reader_after(model, memory, tokens).shares();
}

ContextMixture context_mixture_after(Model& model, Memory& memory, std::span<const std::int32_t> tokens) {
  return reader_after(model, memory, tokens).mixture();
}

void mix_losses(Context& ctx, const Memory& memory, const Batch& batch, std::int64_t first_row, const Tensor& states,
                const Tensor& targets, MixtureState& mixture, Tensor& nll) {
  constexpr std::int64_t rows_at_once = 512;
  const bool counts = memory.settings.contexts > 0;
  const ArenaScope scope(*ctx.arena);
  Tensor queries = ctx.scratch(states.shape(), ctx.master);
  make_queries(ctx, states, memory.store.mean, queries);
  std::vector<Rows> windows;
  for (std::int64_t first = 0; first < nll.dim(0); first += rows_at_once)
    windows.push_back({first, std::min(nll.dim(0), first + rows_at_once)});
  std::vector<Matches> found = make_matches(ctx, memory.store, memory.settings, queries, windows);
  std::vector<double> losses = counts ? read_vector(nll) : std::vector<double>();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto [first, last] = windows[i];
    const Tensor wanted = targets.rows(first, last);
    search(ctx, memory.store, memory.settings, queries.rows(first, last), wanted, found[i]);
    if (!counts) {
      Tensor own = nll.rows(first, last);
      mix(ctx, memory.settings, found[i], wanted, mixture.shares, own);
      continue;
    }
    const std::vector<double> target_prob = read_vector(found[i].target_prob);
    std::vector<double> of_states(memory.settings.beta.size());
    for (std::int64_t row = first; row < last; ++row) {
      const auto at = static_cast<std::size_t>(first_row + row);
      if (batch.targets[at] < 0) continue;
      for (std::size_t s = 0; s < of_states.size(); ++s)
        of_states[s] = target_prob[s * static_cast<std::size_t>(last - first) + static_cast<std::size_t>(row - first)];
      const std::size_t begin = at - static_cast<std::size_t>(batch.positions[at]);
      const auto before = context_before(std::span(batch.tokens).subspan(begin, at + 1 - begin),
                                         static_cast<std::int64_t>(at + 1 - begin), memory.contexts.settings().longest,
                                         memory.settings.border);
      double& loss = losses[static_cast<std::size_t>(row)];
      loss = mix_position(memory.contexts, mixture.contexts, before, batch.targets[at], loss, of_states);
    }
  }
  if (!counts) return;
  Tensor host = Tensor::empty(nll.shape(), DType::f64);
  std::copy(losses.begin(), losses.end(), host.data<double>());
  nll.copy_from(host.to(ctx.master));
}

}  // namespace some
