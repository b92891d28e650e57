// What a memory knows, in words: its strongest slots with the passages they come from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "text/tokenizer.h"

namespace some {

struct Passage {
  std::string text;         // the name of the text it stands in
  std::int64_t offset = 0;  // the token's number in it
  std::string before, token, after;
};
// The words around a place, `around` tokens on each side.
Passage passage_at(const Memory& memory, const Tokenizer& tokenizer, std::int64_t packed_place, std::int64_t around);
nlohmann::json to_json(const Passage& passage);

struct MemoryDescription {
  struct Text {
    std::string name;
    std::int64_t tokens = 0, slots = 0;  // read; born there
  };
  struct Slot {
    std::int64_t slot = 0;
    std::string token;  // the one it has found most
    double count = 0, usage = 0;
    Passage born, hit;                                    // where that token was first met, and last found
    std::vector<std::pair<std::string, double>> holding;  // all its tokens and how often each, most first
  };
  std::string model, run;
  MemorySettings settings;
  std::int64_t slots_in_use = 0;
  double tokens_held = 0;
  std::vector<double> say;  // what its slots weigh in an answer, of each sharpness
  std::vector<Text> texts;
  std::vector<Slot> strongest;  // those with the highest counts
};
MemoryDescription describe_memory(const Memory& memory, const Tokenizer& tokenizer, std::size_t strongest);
nlohmann::json to_json(const MemoryDescription& description);

// The number of the text that a user means by a name, or by a number from 1 on; bad_input where there is none.
std::int64_t text_named(const Memory& memory, const std::string& name);

}  // namespace some
