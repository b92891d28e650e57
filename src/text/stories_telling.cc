#include "text/stories_telling.h"

#include <cctype>
#include <utility>

#include "core/error.h"

namespace some::telling {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
char upper(char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// True if "an" precedes the word. Includes the words of the tables whose first letter is misleading.
bool takes_an(std::string_view word) {
  while (!word.empty() && !is_letter(word[0])) word.remove_prefix(1);
  if (word.empty()) return false;
  for (const std::string_view silent : {"hour", "honest"}) {
    if (word.starts_with(silent)) return true;
  }
  for (const std::string_view sounded : {"one", "once", "use", "uni", "uku", "eu"}) {
    if (word.starts_with(sounded)) return false;
  }
  return std::string_view("aeiou").find(lower(word[0])) != std::string_view::npos;
}

void resolve_articles(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '~') {
      out += text[i];
    } else if (takes_an(std::string_view(text).substr(i + 1))) {
      out += 'n';
    }
  }
  text = std::move(out);
}

// Removes duplicate, leading and trailing spaces, which empty alternatives leave behind.
void collapse_spaces(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  text = std::move(out);
}

void capitalize(std::string& text) {
  bool start = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool after_space = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n';
    if (c == '"' && after_space) {
      start = true;
    } else if ((c == '.' || c == '!' || c == '?') && i + 1 < text.size() && text[i + 1] == ' ') {
      start = true;
    } else if (start && c != ' ' && c != '"') {
      text[i] = upper(c);
      start = false;
    }
  }
}

}  // namespace

const std::string* StoryBuilder::find(std::string_view slot) const {
  for (const auto& [name, value] : slots_) {
    if (name == slot) return &value;
  }
  return nullptr;
}

const std::string& StoryBuilder::get(std::string_view slot) const {
  const std::string* value = find(slot);
  if (value == nullptr) failed(Code::story_template, "built-in stories: no slot named '{}'", slot);
  return *value;
}

void StoryBuilder::set(std::string_view slot, std::string_view value) {
  std::string expanded = expand(value);
  for (auto& [name, old] : slots_) {
    if (name == slot) {
      old = std::move(expanded);
      return;
    }
  }
  slots_.emplace_back(std::string(slot), std::move(expanded));
}

void StoryBuilder::person(std::string_view role, std::string_view suffix, std::string_view name, Gender gender) {
  const bool female = gender == Gender::female;
  const auto put = [&](std::string_view slot, std::string_view value) {
    set(std::string(slot) + std::string(suffix), value);
  };
  set(role, name);
  put("he", female ? "she" : "he");
  put("him", female ? "her" : "him");
  put("his", female ? "her" : "his");
  put("hers", female ? "hers" : "his");
  put("himself", female ? "herself" : "himself");
  put("child", female ? "girl" : "boy");
}

void StoryBuilder::expand_into(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') {
      const std::size_t end = text.find('}', i);
      if (end == std::string_view::npos)
        failed(Code::story_template, "built-in stories: '{{' without '}}' in '{}'", text);
      const std::string_view slot = text.substr(i + 1, end - i - 1);
      if (const std::string* value = find(slot)) {
        out += *value;
      } else {
        std::string name(slot);
        if (!name.empty()) name[0] = lower(name[0]);
        std::string words;
        if (name.starts_with("the ")) {
          const std::string& whole = get(name.substr(4));
          words = "the " + whole.substr(whole.find(' ') + 1);
        } else {
          words = get(name);
        }
        if (!words.empty() && name != slot) words[0] = upper(words[0]);
        out += words;
      }
      i = end;
    } else if (text[i] == '[') {
      std::vector<std::string_view> choices;
      std::size_t depth = 1, begin = i + 1, at = i + 1;
      for (; at < text.size() && depth > 0; ++at) {
        if (text[at] == '[') ++depth;
        if (text[at] == ']') --depth;
        if (depth == 0 || (depth == 1 && text[at] == '|')) {
          choices.push_back(text.substr(begin, at - begin));
          begin = at + 1;
        }
      }
      if (depth != 0) failed(Code::story_template, "built-in stories: '[' without ']' in '{}'", text);
      expand_into(choices[dice.below(static_cast<std::uint32_t>(choices.size()))], out);
      i = at - 1;
    } else {
      out += text[i];
    }
  }
}

std::string StoryBuilder::expand(std::string_view text) {
  std::string out;
  expand_into(text, out);
  return out;
}

void StoryBuilder::say(std::string_view text) {
  std::string piece = expand(text);
  collapse_spaces(piece);
  if (piece.empty()) return;
  capitalize(piece);
  if (!text_.empty()) text_ += break_.empty() ? std::string_view(" ") : break_;
  break_ = {};
  text_ += piece;
}

void StoryBuilder::maybe(std::uint32_t percent, std::string_view text) {
  if (dice.chance(percent * breadth_ / 100)) say(text);
}

void StoryBuilder::line(std::string_view text) {
  if (break_.empty()) break_ = "\n";
  say(text);
}

void StoryBuilder::heading(std::string_view text) {
  std::string title = expand(text);
  bool start = true;
  for (std::size_t i = 0; i < title.size(); ++i) {
    const bool small = title.compare(i, 4, "and ") == 0 || title.compare(i, 5, "with ") == 0;
    if (start && !small) title[i] = upper(title[i]);
    start = title[i] == ' ';
  }
  line(title);
}

std::string StoryBuilder::finish() && {
  resolve_articles(text_);
  return std::move(text_);
}

std::string join_list(const std::vector<std::string>& items, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += i + 1 == items.size() ? last : std::string_view(", ");
    out += items[i];
  }
  return out;
}

}  // namespace some::telling
