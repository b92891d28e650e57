// Readable description of a memory: its strongest slots with the passages they come from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "text/tokenizer.h"

namespace some {

struct Passage {
  std::string text;         // name of the text that contains it
  std::int64_t offset = 0;  // index of the token in this text
  std::string before, token, after;
};
// Returns the text around a position, `around` tokens on each side.
Passage passage_at(const Memory& memory, const Tokenizer& tokenizer, std::int64_t packed_place, std::int64_t around);
nlohmann::json to_json(const Passage& passage);

struct MemoryDescription {
  struct Text {
    std::string name;
    std::int64_t tokens = 0, slots = 0;  // tokens read; slots inserted from this text
  };
  struct Slot {
    std::int64_t slot = 0;
    std::string token;  // the token with the highest count
    double count = 0, usage = 0;
    Passage born, hit;                                    // where that token was inserted and last matched
    std::vector<std::pair<std::string, double>> holding;  // all its tokens with their counts, highest first
  };
  std::string model, run;
  MemorySettings settings;
  std::int64_t slots_in_use = 0;
  double tokens_stored = 0;
  std::vector<double> weights;  // mixture weight of the slots' predictions for each inverse temperature
  std::vector<Text> texts;
  std::vector<Slot> strongest;  // slots with the highest counts
  // Set for a memory with contexts.
  struct ContextsKnown {
    std::int64_t entries = 0, evicted = 0;
    std::vector<double> weights;  // mixture weight of each order, then of the single follower
    struct Entry {
      std::string context, token;
      std::int64_t seen = 0;
      Passage born, hit;  // where the token first and last followed the context
    };
    std::vector<Entry> strongest;  // the longest contexts with the tokens that followed them most often
  };
  std::optional<ContextsKnown> contexts;
};
MemoryDescription describe_memory(const Memory& memory, const Tokenizer& tokenizer, std::size_t strongest);
nlohmann::json to_json(const MemoryDescription& description);

// Returns the index of a text given by name or by its number (from 1). Throws (bad_input) if it is not found.
std::int64_t text_named(const Memory& memory, const std::string& name);

}  // namespace some
