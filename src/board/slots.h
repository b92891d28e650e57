// View of a run's memory: its slots by key, in the order of insertion.
#pragma once

#include <string>

#include "board/answers.h"

namespace some {

// Returns {texts: [{name, tokens, slots}], in_use, slots, store: data for web/src/view/store.js}; {} without a memory.
// The file keeps nothing of removed slots, and of the tokens merged into a slot only their count and the last one.
std::string slots_of_memory(const Watch& watch, const Request& request);

}  // namespace some
