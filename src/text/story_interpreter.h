// Executes the statements of a story (text/story_script.h) and evaluates the amounts in them. Internal to the
// generator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/story_script.h"

namespace some::telling {

// Returns the text without spaces at both ends.
std::string_view trimmed(std::string_view text);
bool is_name(std::string_view text);

// Evaluates amounts: "2 to 4", "180 to 260 step 20", "(people + 1) / 2". Names are slots, whose values `value` returns.
class Amount {
 public:
  Amount(std::string_view text, std::function<std::int64_t(std::string_view)> value)
      : rest_(text), value_(std::move(value)) {}

  // Returns a random amount; without a random generator, the lowest one.
  std::int64_t draw(Dice* dice);
  bool wrong() const { return wrong_; }

 private:
  bool take(std::string_view word);
  std::int64_t sum();
  std::int64_t product();
  std::int64_t single();

  std::string_view rest_;
  std::function<std::int64_t(std::string_view)> value_;
  bool wrong_ = false;
};

class ScriptInterpreter {
 public:
  explicit ScriptInterpreter(RandomStream stream) : t(stream) {}

  void tell(const std::vector<Statement>& statements);
  StoryBuilder t;

 private:
  void tell(const Statement& s);
  const Row*& row(int number);
  std::vector<std::string>& list(int number);
  std::string expand(const Template& text);
  std::string value_of(const Template& text);
  bool hold(const std::vector<Condition>& conditions);

  std::vector<const Row*> rows_;
  std::vector<std::vector<std::string>> lists_;
};

}  // namespace some::telling
