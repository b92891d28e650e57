// Sources of one predicted token: the fractions of its probability from the model, the slots and the contexts of a
// memory, with the passages of the texts that the memory has read. Used by generation, traces, the board and the
// server.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/pages/memory_view.h"
#include "memory/predictions.h"
#include "text/tokenizer.h"

namespace some {

inline constexpr int max_sources = 8;                    // maximum number of passages per token
inline constexpr std::int64_t words_around_source = 12;  // words of a passage on each side of the token

// All shares are fractions of the token's probability.
struct TokenSource {
  double share = 0;
  int context_tokens = -1;  // length of the context; -1: a slot
  std::int64_t seen = 0;    // for contexts: number of times the token followed it
  Passage passage;          // for slots where it was inserted, for contexts where the token last followed it
  bool is_context() const { return context_tokens >= 0; }
};

struct TokenSources {
  double probability = 0;             // of the token
  double slots = 0, contexts = 0;     // of all slots, of all contexts
  std::vector<TokenSource> passages;  // the largest share first
  double memory() const { return slots + contexts; }
  double model() const { return 1 - memory(); }
};

// Finds the passages of a memory, which must not change or be moved during the lifetime of the object.
class SourceFinder {
 public:
  SourceFinder(const Memory& memory, const Tokenizer& tokenizer);
  // Returns at most `most` passages with `around` tokens on each side.
  TokenSources find(const MemoryShares& shares, std::size_t most, std::int64_t around) const;

 private:
  const Memory& memory_;
  const Tokenizer& tokenizer_;
  Tensor born_;
};

// {"share", "slots_share", "contexts_share", "passages"}: `share` is that of slots and contexts together; a passage has
// `kind`, "slot" or "context", and its own `share`.
nlohmann::json to_json(const TokenSources& sources);

}  // namespace some
