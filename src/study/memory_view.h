// What a memory knows, in words: its strongest slots with the passages they come from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rooms.h"
#include "memory/memory.h"
#include "text/tokenizer.h"

namespace some::study {

struct Passage {
  std::string text;         // the name of the text it stands in
  std::int64_t offset = 0;  // the token's number in it
  std::string before, token, after;
};
// The words around a place, `around` tokens on each side.
Passage passage_at(const Memory& memory, const Tokenizer& tokenizer, std::int64_t packed_place, std::int64_t around);
nlohmann::json to_json(const Passage& passage);

// Texts with the tokens read and the slots born there; the strongest slots (most used first); totals.
nlohmann::json describe_memory(const Memory& memory, const Tokenizer& tokenizer, std::size_t strongest);

// The number of the text that a user means by a name, or by a number from 1 on; bad_input where there is none.
std::int64_t text_named(const Memory& memory, const std::string& name);

}  // namespace some::study
