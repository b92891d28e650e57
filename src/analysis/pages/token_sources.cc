#include "analysis/pages/token_sources.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace some {
namespace {

double rounded(double share) { return std::round(share * 1e6) / 1e6; }

}  // namespace

SourceFinder::SourceFinder(const Memory& memory, const Tokenizer& tokenizer)
    : memory_(memory), tokenizer_(tokenizer), born_(memory.store.born.to(Device::cpu)) {}

TokenSources SourceFinder::find(const MemoryShares& shares, std::size_t most, std::int64_t around) const {
  TokenSources out;
  out.probability = shares.probability;
  out.slots = shares.slots;
  out.contexts = shares.contexts;
  struct Found {
    TokenSource source;
    std::int64_t place;
  };
  std::vector<Found> found;
  for (const SlotContribution& one : shares.of_slots) {
    const std::int64_t place = born_.data<std::int64_t>()[one.entry * memory_.store.slots() + one.slot];
    if (place != no_place) found.push_back({{one.weight, -1, 0, {}}, place});
  }
  for (const ContextContribution& one : shares.of_contexts) {
    if (one.hit >= 0) found.push_back({{one.weight, one.tokens, one.seen, {}}, one.hit});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.source.share > b.source.share; });
  found.resize(std::min(found.size(), most));
  for (Found& one : found) {
    one.source.passage = passage_at(memory_, tokenizer_, one.place, around);
    out.passages.push_back(std::move(one.source));
  }
  return out;
}

nlohmann::json to_json(const TokenSources& sources) {
  nlohmann::json passages = nlohmann::json::array();
  for (const TokenSource& source : sources.passages) {
    nlohmann::json one = to_json(source.passage);
    one["kind"] = source.is_context() ? "context" : "slot";
    one["share"] = rounded(source.share);
    if (source.is_context()) {
      one["context_tokens"] = source.context_tokens;
      one["seen"] = source.seen;
    }
    passages.push_back(std::move(one));
  }
  return {{"share", rounded(sources.memory())},
          {"slots_share", rounded(sources.slots)},
          {"contexts_share", rounded(sources.contexts)},
          {"passages", std::move(passages)}};
}

}  // namespace some
