// The small template language in which the built-in text is written (internal to the generator).
//
//   {thing}      the value of a slot; {Thing} the same with a capital
//   {the thing}  "the" and the value without its first word, which is its article
//   [a|b|c]      one of the alternatives, which may be empty and may nest
//   a~           "a" or "an", as the next word asks
//
// A capital is set by itself at the start of a sentence and after an opening quotation mark; after a closing
// quotation mark the template decides, since a new sentence or "she said" may follow.
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

// Draws one after another from a named stream.
class Dice {
 public:
  explicit Dice(RandomStream stream) : stream_(stream) {}
  std::uint32_t below(std::uint32_t bound) { return stream_.below(drawn_++, bound); }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  // `count` different numbers below `bound` (count <= bound), in random order.
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

// What a person sets besides its role.
inline constexpr std::string_view person_slots[] = {"he", "him", "his", "hers", "himself", "child"};

class Telling {
 public:
  explicit Telling(RandomStream stream) : dice(stream), breadth_(40 + dice.below(100)) {}

  Dice dice;

  // The value is itself a template, expanded once, now: the same words come wherever the slot stands.
  void set(std::string_view slot, std::string_view value);
  // Slots {role}, {he}, {him}, {his}, {hers}, {himself}, {child}, each with `suffix` after it except the first.
  void person(std::string_view role, std::string_view suffix, std::string_view name, Gender gender);
  const std::string& get(std::string_view slot) const;
  bool knows(std::string_view slot) const { return find(slot) != nullptr; }

  // Adds one or more sentences to the paragraph.
  void say(std::string_view text);
  // The same in about `percent` of the tellings.
  void maybe(std::uint32_t percent, std::string_view text);
  // Starts a new paragraph (an empty line), or a new line.
  void paragraph() { break_ = "\n\n"; }
  void line(std::string_view text);
  // A line in title case.
  void heading(std::string_view text);

  std::string expand(std::string_view text);
  std::string finish() &&;

 private:
  void expand_into(std::string_view text, std::string& out);
  const std::string* find(std::string_view slot) const;

  std::vector<std::pair<std::string, std::string>> slots_;
  std::string text_;
  std::string_view break_;
  std::uint32_t breadth_;  // in percent: how much of the optional text this telling keeps, so that lengths vary
};

// "2 eggs", "1 egg", "milk and honey", "an apple, a pear and a plum".
std::string join_list(const std::vector<std::string>& items, std::string_view last = " and ");

// A piece, and what the tests hold it to.
struct Tale {
  std::string text;
  std::string hero;  // empty where the piece has none
  std::string plot;  // the story that was told
};

}  // namespace some::telling
