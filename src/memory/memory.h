// A memory: the store, the history it was built from, and the model it belongs to (spec 8). It records every text it
// has read and in which order. A slot's passage can therefore be shown, and forgetting a text is exact: the remaining
// texts are read again, as if the text had never been read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/context_mixture.h"
#include "memory/contexts.h"
#include "memory/settings.h"
#include "memory/store.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace some {

struct MemoryText {
  std::string name;                  // as given by the user
  std::vector<std::int32_t> tokens;  // the tokens read so far
  std::string file = {};             // hash of the path of its file when it was last read; empty: no file, or unknown
};

// A stretch of a text read in one call: the targets [begin, end), in updates of `window` tokens starting at `begin`,
// with `together` windows per forward pass of the model.
struct ReadSpan {
  std::int64_t text = 0, begin = 0, end = 0, window = 0, together = 0;
  bool operator==(const ReadSpan&) const = default;
};

// One operation that changed the memory. Replaying all of them in order rebuilds the memory.
struct HistoryEntry {
  enum class Kind { read, merge, prune, refine } kind = Kind::read;
  ReadSpan reading;                  // for read
  MemorySettings settings;           // for merge: settings of the other memory
  std::vector<HistoryEntry> others;  // for merge: history of the other memory; this memory has its texts
  std::int64_t min_count = 0;        // for prune: slots with a lower count were emptied
  std::int64_t passes = 0;           // for refine: number of consecutive refinement passes
  bool operator==(const HistoryEntry&) const = default;
};

struct Memory {
  MemorySettings settings;  // window is never 0
  Store store;
  // Only with settings.contexts > 0. The mixture then replaces the weights of the store.
  ContextStore contexts;
  ContextMixture mixture;
  std::string model;      // fingerprint of the model and tokenizer it belongs to
  std::string tokenizer;  // hash of the tokenizer only: enough to decode the tokens of the memory
  std::string run;        // run folder of that model
  std::vector<MemoryText> texts;
  std::vector<HistoryEntry> history;
};

// Stores the identity of the model, its tokenizer and its run folder in the memory.
void bind_to_model(Memory& memory, Model& model, const Tokenizer& tokenizer, const std::string& run);
// Returns a hash over the model's parameters, keys, library and tokenizer.
std::string fingerprint(Model& model, const Tokenizer& tokenizer);
// Throws bad_input unless the memory belongs to the model; `path` is the memory's file, for the message.
void require_model(const Memory& memory, const std::string& path, Model& model, const Tokenizer& tokenizer);

// Returns the window used when the recipe sets 0.
std::int64_t default_window(const ModelConfig& config);
Memory make_memory(Context& ctx, MemorySettings settings, const ModelConfig& config, const Tensor& mean);

// The mixture of a memory that has read nothing; `vocabulary` is that of its model.
ContextMixture make_mixture(const MemorySettings& settings, int vocabulary);

// Returns the number of slots that are not empty.
std::int64_t slots_in_use(const Memory& memory);
// Returns the weight of a memory's slots in a prediction, per beta: the sum of share * mixture weight (Λ · ω).
std::vector<double> mixture_weights(const MemorySettings& settings, const std::vector<double>& shares);

// Returns the weight of each source in predictions in general: the model, the slots for each beta, and the
// contexts of each order if there are any.
std::vector<double> source_weights(const Memory& memory);

// Empties slots with a count below min_count; returns how many. Entries of contexts that were seen less are removed.
std::int64_t prune(Context& ctx, Memory& memory, std::int64_t min_count);
// Merges another memory of the same model into this one. Each of its slots is matched like a query of an update, among
// the slots that hold its main token, and joins the nearest one with all its tokens. Unmatched slots fill empty slots,
// then replace the least used slots as long as those are used less than they are.
void merge(Context& ctx, Memory& memory, const Memory& other);

}  // namespace some
