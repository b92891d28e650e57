#include "text/story_interpreter.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace some::telling {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::ranges::all_of(text, [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; });
}

std::int64_t Amount::draw(Dice* dice) {
  const std::int64_t low = sum();
  std::int64_t count = 1, step = 1;
  const bool drawn = take("to");
  if (drawn) count = sum() - low + 1;
  if (take("step")) step = sum();
  wrong_ = wrong_ || !trimmed(rest_).empty() || count < 1 || step < 1;
  if (wrong_ || !drawn || dice == nullptr) return low;
  return low + step * dice->below(static_cast<std::uint32_t>((count - 1) / step + 1));
}

bool Amount::take(std::string_view word) {
  rest_ = trimmed(rest_);
  if (!rest_.starts_with(word)) return false;
  rest_.remove_prefix(word.size());
  return true;
}

std::int64_t Amount::sum() {
  std::int64_t value = product();
  while (take("+")) value += product();
  return value;
}

std::int64_t Amount::product() {
  std::int64_t value = single();
  for (;;) {
    if (take("*")) {
      value *= single();
    } else if (take("/")) {
      const std::int64_t by = single();
      wrong_ = wrong_ || by == 0;
      value /= std::max<std::int64_t>(by, 1);
    } else {
      return value;
    }
  }
}

std::int64_t Amount::single() {
  if (take("(")) {
    const std::int64_t value = sum();
    wrong_ = !take(")") || wrong_;
    return value;
  }
  const std::size_t size = std::min(rest_.find_first_of(" +*/()"), rest_.size());
  const std::string word(rest_.substr(0, size));
  rest_.remove_prefix(size);
  if (is_name(word)) return value_(word);
  wrong_ = wrong_ || word.empty() || word.size() > 9 || word.find_first_not_of("0123456789") != std::string::npos;
  return wrong_ ? 0 : std::stoll(word);
}

void ScriptInterpreter::tell(const std::vector<Statement>& statements) {
  for (const Statement& statement : statements) tell(statement);
}

void ScriptInterpreter::tell(const Statement& s) {
  switch (s.act) {
    case Statement::Act::say: {
      const std::string text = expand(s.text);
      s.maybe ? t.maybe(static_cast<std::uint32_t>(s.percent), text) : t.say(text);
      break;
    }
    case Statement::Act::line: t.line(expand(s.text)); break;
    case Statement::Act::heading: t.heading(expand(s.text)); break;
    case Statement::Act::paragraph: t.paragraph(); break;
    case Statement::Act::set: t.set(s.slot, expand(s.text)); break;
    case Statement::Act::person: {
      const std::string gender = expand(s.gender);
      if (gender != "female" && gender != "male")
        failed(Code::internal, "internal error: built-in text, '{}' is neither female nor male; please report it",
               gender);
      t.person(s.slot, s.suffix, expand(s.text), gender == "female" ? Gender::female : Gender::male);
      break;
    }
    case Statement::Act::text: row(s.rows[0]) = &s.words; break;
    case Statement::Act::draw:
      do {
        const std::vector<std::size_t> drawn = t.dice.several(s.table->rows.size(), s.rows.size());
        for (std::size_t i = 0; i < s.rows.size(); ++i) row(s.rows[i]) = &s.table->rows[drawn[i]];
      } while (!hold(s.conditions));
      break;
    case Statement::Act::choice:
      tell((s.conditions.empty() ? t.dice.chance(static_cast<std::uint32_t>(s.percent)) : hold(s.conditions))
               ? s.inner
               : s.otherwise);
      break;
    case Statement::Act::list:
      list(s.list).clear();
      for (const Template& entry : s.entries) list(s.list).push_back(expand(entry));
      break;
    case Statement::Act::each:
      for (std::size_t i = 0; i < list(s.list).size(); ++i) {
        t.set("number", std::to_string(i + 1));
        t.line(expand(s.text) + " " + list(s.list)[i]);
      }
      break;
    case Statement::Act::one_of: {
      const std::vector<std::string>& entries = list(s.list);
      t.line(entries.at(t.dice.below(static_cast<std::uint32_t>(entries.size()))));
      break;
    }
  }
}

const Row*& ScriptInterpreter::row(int number) {
  if (rows_.size() <= static_cast<std::size_t>(number)) rows_.resize(static_cast<std::size_t>(number) + 1);
  return rows_[static_cast<std::size_t>(number)];
}

std::vector<std::string>& ScriptInterpreter::list(int number) {
  if (lists_.size() <= static_cast<std::size_t>(number)) lists_.resize(static_cast<std::size_t>(number) + 1);
  return lists_[static_cast<std::size_t>(number)];
}

std::string ScriptInterpreter::expand(const Template& text) {
  std::string out;
  for (const Template::Piece& piece : text.pieces) {
    out += piece.literal;
    if (!piece.amount.empty()) {
      Amount amount(piece.amount, [&](std::string_view slot) { return std::stoll(t.get(slot)); });
      out += std::to_string(amount.draw(&t.dice));
    } else if (piece.row >= 0) {
      const Row* cells = row(piece.row);
      if (cells == nullptr)
        failed(Code::internal, "internal error: built-in text, a row is used that was not drawn; please report it");
      out += (*cells)[static_cast<std::size_t>(piece.column)];
    }
  }
  return out;
}

// Returns the value of a text. If the text is a single slot, returns the slot's value, or nothing if the slot is not
// set.
std::string ScriptInterpreter::value_of(const Template& text) {
  std::string value = expand(text);
  if (value.starts_with('{') && value.ends_with('}')) {
    const std::string slot = value.substr(1, value.size() - 2);
    value = t.knows(slot) ? t.get(slot) : "";
  }
  return value;
}

bool ScriptInterpreter::hold(const std::vector<Condition>& conditions) {
  return std::ranges::all_of(conditions, [&](const Condition& condition) {
    const std::string left = value_of(condition.left), right = value_of(condition.right);
    const bool within = (" " + right + " ").find(" " + left + " ") != std::string::npos;
    switch (condition.kind) {
      case Condition::Kind::is: return left == right;
      case Condition::Kind::is_not: return left != right;
      case Condition::Kind::in: return within;
      case Condition::Kind::not_in: return !within;
      case Condition::Kind::any: return !left.empty();
    }
    return false;
  });
}

}  // namespace some::telling
