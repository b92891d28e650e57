// Facts that occur in no other text: random statements that are planted in a text and queried later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace some {

struct Fact {
  std::string statement;   // "Runa keeps the silver key in the barn."
  std::string verbatim;    // the statement up to the answer: "Runa keeps the silver key in the"
  std::string reworded;    // the question in other words: "Where is the silver key of Runa? It is in the"
  std::size_t answer = 0;  // index of the answer
};

// Answers are distributed evenly over the facts (within one), so that counting answers does not help to guess.
struct FactSet {
  std::vector<std::string> answers;
  std::vector<Fact> facts;
};

std::int64_t max_facts();
// Returns `count` facts about different things: a pure function of count and seed.
FactSet make_facts(std::int64_t count, std::uint64_t seed);

}  // namespace some
