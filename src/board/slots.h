// The memory of a run as the board shows it: its slots by their keys, in the order in which they were born.
#pragma once

#include <string>

#include "board/answers.h"

namespace some {

// {texts: [{name, tokens, slots}], in_use, slots, store: what web/src/view/store.js draws}; {} without a memory. Of
// slots that went nothing is left in the file, and of the tokens that merged into a slot only their number and the
// last.
std::string slots_of_memory(const Watch& watch, const Request& request);

}  // namespace some
