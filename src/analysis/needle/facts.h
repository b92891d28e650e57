// Facts that no other text contains: statements from a seed, to be planted in a text and asked for later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace some {

struct Fact {
  std::string statement;   // "Runa keeps the silver key in the barn."
  std::string verbatim;    // its beginning up to the answer: "Runa keeps the silver key in the"
  std::string reworded;    // other words for the same question: "Where is the silver key of Runa? It is in the"
  std::size_t answer = 0;  // its index among the answers
};

// Every answer belongs to equally many facts (or one more), so that counting answers does not help to guess.
struct FactSet {
  std::vector<std::string> answers;
  std::vector<Fact> facts;
};

std::int64_t max_facts();
// Returns `count` facts about different things: a pure function of count and seed.
FactSet make_facts(std::int64_t count, std::uint64_t seed);

}  // namespace some
