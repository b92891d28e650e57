// Template language of the built-in text (internal to the generator).
//
//   {thing}      the value of a slot; {Thing}: capitalized
//   {the thing}  the value with its first word (its article) replaced by "the"
//   [a|b|c]      one of the alternatives, which may be empty and may nest
//   a~           "a" or "an", depending on the next word
//
// The start of a sentence and the first letter after an opening quotation mark are capitalized automatically. After a
// closing quotation mark the template decides, since either a new sentence or "she said" may follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"

namespace some::telling {

// Draws random numbers in sequence from a stream.
class Dice {
 public:
  explicit Dice(RandomStream stream) : stream_(stream) {}
  std::uint32_t below(std::uint32_t bound) { return stream_.below(drawn_++, bound); }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  // Returns `count` different numbers below `bound` (count <= bound), in random order.
  std::vector<std::size_t> several(std::size_t bound, std::size_t count) {
    std::vector<std::size_t> all(bound);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(all[i], all[i + below(static_cast<std::uint32_t>(bound - i))]);
    }
    all.resize(count);
    return all;
  }

 private:
  RandomStream stream_;
  std::uint64_t drawn_ = 0;
};

enum class Gender { female, male };

// Slots that a person sets in addition to its role.
inline constexpr std::string_view person_slots[] = {"he", "him", "his", "hers", "himself", "child"};

class StoryBuilder {
 public:
  explicit StoryBuilder(RandomStream stream) : dice(stream), breadth_(40 + dice.below(100)) {}

  Dice dice;

  // Sets a slot. The value is itself a template, which is expanded once, here: every use of the slot gives the same
  // words.
  void set(std::string_view slot, std::string_view value);
  // Sets the slots {role}, {he}, {him}, {his}, {hers}, {himself} and {child}, all but the first followed by `suffix`.
  void person(std::string_view role, std::string_view suffix, std::string_view name, Gender gender);
  const std::string& get(std::string_view slot) const;
  bool knows(std::string_view slot) const { return find(slot) != nullptr; }

  // Adds one or more sentences to the paragraph.
  void say(std::string_view text);
  // The same with a probability of about `percent`.
  void maybe(std::uint32_t percent, std::string_view text);
  // Starts a new paragraph (after an empty line).
  void paragraph() { break_ = "\n\n"; }
  // Starts a new line.
  void line(std::string_view text);
  // Starts a new line in title case.
  void heading(std::string_view text);

  std::string expand(std::string_view text);
  std::string finish() &&;

 private:
  void expand_into(std::string_view text, std::string& out);
  const std::string* find(std::string_view slot) const;

  std::vector<std::pair<std::string, std::string>> slots_;
  std::string text_;
  std::string_view break_;
  std::uint32_t breadth_;  // in percent: amount of optional text in this document, so that lengths vary
};

// Joins items: "2 eggs", "1 egg", "milk and honey", "an apple, a pear and a plum".
std::string join_list(const std::vector<std::string>& items, std::string_view last = " and ");

// A generated document, with properties that tests check.
struct GeneratedStory {
  std::string text;
  std::string hero;  // empty if the document has none
  std::string plot;  // name of its story
};

}  // namespace some::telling
