#include "analysis/pages/memory_view.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "analysis/contamination.h"
#include "core/error.h"
#include "core/escape.h"

namespace some {
namespace {

std::string words(const Tokenizer& tokenizer, const std::vector<std::int32_t>& tokens, std::int64_t begin,
                  std::int64_t end) {
  begin = std::max<std::int64_t>(0, begin);
  end = std::min(end, std::ssize(tokens));
  if (begin >= end) return "";
  return tokenizer.decode(
      std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

// Returns the entries of a slot that hold a token, sorted by decreasing count.
std::vector<std::int64_t> entries_of(const Memory& memory, std::int64_t slot, const Tensor& values,
                                     const std::vector<double>& entry_counts) {
  std::vector<std::int64_t> out;
  for (std::int64_t at = slot; at < values.elements(); at += memory.store.slots()) {
    if (values.data<std::int32_t>()[at] >= 0) out.push_back(at);
  }
  std::stable_sort(out.begin(), out.end(), [&](std::int64_t a, std::int64_t b) {
    return entry_counts[static_cast<std::size_t>(a)] > entry_counts[static_cast<std::size_t>(b)];
  });
  return out;
}

// Returns the entries of the longest contexts that were seen most often, the first among equals.
std::vector<ContextEntry> strongest_contexts(const ContextStore& contexts, std::size_t most) {
  std::vector<ContextEntry> out;
  for (const ContextEntry& entry : contexts.entries()) {
    if (contexts.order_of(entry.node) == contexts.settings().longest) out.push_back(entry);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const ContextEntry& a, const ContextEntry& b) { return a.seen > b.seen; });
  out.resize(std::min(most, out.size()));
  return out;
}

}  // namespace

Passage passage_at(const Memory& memory, const Tokenizer& tokenizer, std::int64_t packed_place, std::int64_t around) {
  const Place place = unpacked(packed_place);
  const MemoryText& text = memory.texts.at(static_cast<std::size_t>(place.text));
  return {text.name, place.offset, words(tokenizer, text.tokens, place.offset - around, place.offset),
          words(tokenizer, text.tokens, place.offset, place.offset + 1),
          words(tokenizer, text.tokens, place.offset + 1, place.offset + 1 + around)};
}

nlohmann::json to_json(const Passage& passage) {
  return {{"text", passage.text},
          {"offset", passage.offset},
          {"before", passage.before},
          {"token", passage.token},
          {"after", passage.after}};
}

MemoryDescription describe_memory(const Memory& memory, const Tokenizer& tokenizer, std::size_t strongest) {
  const std::vector<double> counts = read_vector(memory.store.counts), usage = read_vector(memory.store.usage),
                            entry_counts = read_vector(memory.store.entry_counts_or_totals());
  const auto host = [](const Tensor& tensor) { return tensor.device().is_cpu() ? tensor : tensor.to(Device::cpu); };
  const Tensor born = host(memory.store.born), hit = host(memory.store.hit), values = host(memory.store.values);
  std::vector<std::int64_t> births(memory.texts.size(), 0);
  std::vector<std::size_t> order;
  double all = 0;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    if (!(counts[m] > 0)) continue;
    order.push_back(m);
    all += counts[m];
    ++births[static_cast<std::size_t>(unpacked(born.data<std::int64_t>()[m]).text)];
  }
  MemoryDescription out;
  out.model = memory.model;
  out.run = memory.run;
  out.settings = memory.settings;
  out.slots_in_use = std::ssize(order);
  out.tokens_stored = all;
  const std::vector<double> weights = source_weights(memory);
  const std::size_t kinds = memory.settings.beta.size();
  out.weights.assign(weights.begin() + 1, weights.begin() + 1 + static_cast<std::ptrdiff_t>(kinds));
  for (std::size_t i = 0; i < memory.texts.size(); ++i)
    out.texts.push_back({memory.texts[i].name, std::ssize(memory.texts[i].tokens), births[i]});
  const std::size_t shown = std::min(strongest, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
      [&](std::size_t a, std::size_t b) { return counts[a] != counts[b] ? counts[a] > counts[b] : a < b; });
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t m = order[i];
    std::vector<std::pair<std::string, double>> holding;
    const auto entries = entries_of(memory, static_cast<std::int64_t>(m), values, entry_counts);
    for (const std::int64_t at : entries)
      holding.emplace_back(tokenizer.decode(std::span(values.data<std::int32_t>() + at, 1)),
                           entry_counts[static_cast<std::size_t>(at)]);
    out.strongest.push_back({static_cast<std::int64_t>(m), holding.front().first, counts[m], usage[m],
                             passage_at(memory, tokenizer, born.data<std::int64_t>()[entries.front()], 12),
                             passage_at(memory, tokenizer, hit.data<std::int64_t>()[entries.front()], 12), holding});
  }
  if (memory.settings.contexts > 0) {
    MemoryDescription::ContextsKnown& known = out.contexts.emplace();
    known.entries = memory.contexts.size();
    known.evicted = memory.contexts.evicted();
    known.weights.assign(weights.begin() + 1 + static_cast<std::ptrdiff_t>(kinds), weights.end());
    for (const ContextEntry& entry : strongest_contexts(memory.contexts, strongest)) {
      const std::vector<std::int32_t> context = memory.contexts.tokens_of(entry.node);
      known.strongest.push_back({tokenizer.decode(context), tokenizer.decode(std::span(&entry.token, 1)), entry.seen,
                                 passage_at(memory, tokenizer, entry.born, 12),
                                 passage_at(memory, tokenizer, entry.hit, 12)});
    }
  }
  return out;
}

nlohmann::json to_json(const MemoryDescription& description) {
  nlohmann::json texts = nlohmann::json::array(), slots = nlohmann::json::array();
  for (const MemoryDescription::Text& text : description.texts)
    texts.push_back({{"text", text.name}, {"tokens", text.tokens}, {"slots", text.slots}});
  for (const MemoryDescription::Slot& slot : description.strongest) {
    nlohmann::json holding = nlohmann::json::array();
    for (const auto& [token, tally] : slot.holding) holding.push_back({{"token", token}, {"count", tally}});
    slots.push_back({{"slot", slot.slot},
                     {"token", slot.token},
                     {"count", slot.count},
                     {"holding", holding},
                     {"usage", slot.usage},
                     {"born", to_json(slot.born)},
                     {"hit", to_json(slot.hit)}});
  }
  nlohmann::json out{{"model", description.model},
                     {"run", description.run},
                     {"settings", to_json(description.settings)},
                     {"slots_in_use", description.slots_in_use},
                     {"tokens_stored", description.tokens_stored},
                     {"weights", description.weights},
                     {"texts", texts},
                     {"strongest", slots}};
  if (const auto& known = description.contexts) {
    nlohmann::json contexts = nlohmann::json::array();
    for (const auto& entry : known->strongest)
      contexts.push_back({{"context", entry.context},
                          {"token", entry.token},
                          {"seen", entry.seen},
                          {"born", to_json(entry.born)},
                          {"hit", to_json(entry.hit)}});
    out["contexts"] = {
        {"entries", known->entries}, {"evicted", known->evicted}, {"weights", known->weights}, {"strongest", contexts}};
  }
  return out;
}

std::int64_t text_named(const Memory& memory, const std::string& name) {
  std::vector<std::int64_t> named;
  const auto collect = [&](auto&& is_meant) {
    for (std::size_t i = 0; i < memory.texts.size(); ++i) {
      if (is_meant(memory.texts[i])) named.push_back(static_cast<std::int64_t>(i));
    }
  };
  collect([&](const MemoryText& text) { return text.name == name || text.name == escaped(name); });
  if (const std::string file = file_of(name); named.empty() && !file.empty())
    collect([&](const MemoryText& text) { return text.file == file; });
  // Merging can create duplicate names. A request for a duplicate name must not act on only one of them.
  if (named.size() > 1)
    bad_input(Code::memory_text_unknown,
              "{} texts of the memory are named {}; use the number that 'some memory show' lists", named.size(), name);
  if (named.size() == 1) return named[0];
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size() && number >= 1 && number <= std::ssize(memory.texts))
    return number - 1;
  std::string known;
  for (const MemoryText& text : memory.texts) known += fmt::format("{}{}", known.empty() ? "" : ", ", text.name);
  bad_input(Code::memory_text_unknown, "the memory has no text {}; {}", name,
            known.empty() ? "it has no texts yet" : "its texts: " + known);
}

}  // namespace some
