#include "text/story_script.h"

#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "expect_error.h"

namespace some::telling {
namespace {

GeneratedStory tell(std::string_view text, std::string_view stream = "test") {
  const EmbeddedFile files[] = {{"test.txt", text}};
  return StoryScript(files).tell(0, random_stream(1, std::string(stream)));
}

// The statements of the only story of a domain.
std::string told(const std::string& statements, const std::string& above = "", std::string_view stream = "test") {
  return tell("domain d\n" + above + "story s\n" + statements, stream).text;
}

TEST(StoryScript, TellsStatements) {
  struct Case {
    std::string above, statements, text;
  };
  const Case cases[] = {
      {"", "  say hello there.\n", "Hello there."},
      {"", "  say hello\n      there,\n      you.\n", "Hello there, you."},
      {"", "  # a comment\n\n  say a~ apple\n  paragraph\n  line b\n  line c\n", "An apple\n\nB\nC"},
      {"", "  set thing: red ball\n  say the {thing}. {Thing}s.\n", "The red ball. Red balls."},
      {"", "  set who: a tall man\n  say {the who} saw {who}.\n", "The tall man saw a tall man."},
      {"", "  heading bread and butter with jam\n", "Bread and Butter with Jam"},
      {"table t: one, many\n  ox | oxen\n", "  draw x from t\n  say <x.one> and <x.many>.\n", "Ox and oxen."},
      {"table t: one, many?\n  ox\n", "  draw x from t\n  if <x.many>\n    say a\n  else\n    say b\n", "B"},
      {"", "  table t\n    a | b\n  draw x, y from t until <x> is b\n  say <x> <y>.\n", "B a."},
      {"", "  table t: one, two\n    a | b\n  draw x from t\n  keep x: one, two\n  say {two} {one}\n", "B a"},
      {"", "  table t\n    only [one] word\n  pick x from t\n  say {x}.\n", "Only one word."},
      {"", "  text t: {b}\n  set b: c\n  say <t>.\n", "C."},
      {"", "  set n: <2 * (3 + 4) / 7>\n  say {n} <n + 1>.\n", "2 3."},
      {"", "  set n: <3 to 3>\n  say {n}\n", "3"},
      {"", "  person hero 2: Ann, female\n  say {hero}, {he2}, {him2}, {his2}, {child2}.\n",
       "Ann, she, her, her, girl."},
      {"", "  set a: x y\n  if y in {a} and z not in {a} and {a} is not y\n    say in\n", "In"},
      {"", "  if {missing} is x\n    say yes\n  else\n    say no\n", "No"},
      {"", "  chance 100\n    say yes\n  else\n    say no\n", "Yes"},
      {"", "  list l\n    b\n    c\n        d\n  each l: {number}.\n  one of l\n", ""},
      {"part p: a, ab\n  say $ab $a.\n", "  do p: one, two\n", "Two one."},
      {"part p: a, ab\n  say x$ab $a.\n", "  do p: one\n", "X one."},
      {"before\n  set a: b\nafter\n  say {a} {c}\n", "  set c: d\n", "B d"},
  };
  for (const Case& c : cases) {
    const std::string text = told(c.statements, c.above);
    if (c.text.empty()) {
      EXPECT_TRUE(text == "1. B\n2. C d\nB" || text == "1. B\n2. C d\nC d") << text;
    } else {
      EXPECT_EQ(text, c.text) << c.statements;
    }
  }
}

TEST(StoryScript, DrawsDifferentRowsAndAmountsOfARange) {
  std::set<std::string> pairs, amounts;
  for (int i = 0; i < 200; ++i) {
    const std::string stream = std::to_string(i);
    pairs.insert(told("  table t\n    a | b | c\n  draw x, y from t\n  set z: <x><y>\n  say {z}\n", "", stream));
    amounts.insert(told("  say <10 to 40 step 15>\n", "", stream));
  }
  EXPECT_EQ(pairs, (std::set<std::string>{"Ab", "Ac", "Ba", "Bc", "Ca", "Cb"}));
  EXPECT_EQ(amounts, (std::set<std::string>{"10", "25", "40"}));
}

TEST(StoryScript, FilesOfOneDomainAreOne) {
  const EmbeddedFile files[] = {{"1.txt", "part p\n  say {word}\ndomain d\nstory one\n  set word: a\n  do p\n"},
                                {"2.txt", "domain d\nstory two\n  do q\ndomain e\nstory three\n  say c\n"},
                                {"3.txt", "part q\n  say b\n"}};
  const StoryScript script(files);
  EXPECT_EQ(script.domains(), (std::vector<std::string>{"d", "e"}));
  std::set<std::string> plots;
  for (int i = 0; i < 50; ++i) plots.insert(script.tell(0, random_stream(1, std::to_string(i))).plot);
  EXPECT_EQ(plots, (std::set<std::string>{"one", "two"}));
  EXPECT_EQ(script.tell(1, random_stream(1, "x")).text, "C");
}

// Every mistake is an internal error with file and line.
TEST(StoryScript, MistakesAreNamedWithTheirLine) {
  struct Case {
    std::string text;
    int line;
    std::string mistake;  // cases with the same name have the same message, apart from quoted names and numbers
  };
  const std::string story = "domain d\nstory s\n";
  const Case cases[] = {
      {"story s\n  say a\n", 1, "no domain"},
      {"tabel t\n  a\n", 1, "unknown beginning"},
      {"  say a\n", 1, "indented below nothing"},
      {"table t\n", 1, "table without rows"},
      {"table t: a, b\n  1 | 2\n  1\n", 3, "cells"},
      {"table t: a, b c\n  1 | 2\n", 1, "column name"},
      {"table t\n  a\ntable t\n  b\n", 3, "second table"},
      {"part p\n  say a\npart p\n  say b\n", 3, "second part"},
      {story + "  say caf\xc3\xa9\n", 3, "ASCII"},
      {story + "  say\ttab\n", 3, "ASCII"},
      {story + "  shout a\n", 3, "unknown statement"},
      {story + "  say\n", 3, "no text"},
      {story + "  say {a}\n", 3, "unset slot"},
      {story + "  say {A}\n", 3, "unset slot"},
      {story + "  say {the a}\n", 3, "unset slot"},
      {story + "  say <1 to people>\n", 3, "unset slot"},
      {story + "  table t\n    {a}\n  draw x from t\n", 5, "unset slot"},
      {story + "  say [a|b\n", 3, "brackets of a choice"},
      {story + "  say a]\n", 3, "brackets of a choice"},
      {story + "  say {a\n", 3, "open bracket"},
      {story + "  say a}\n", 3, "open bracket"},
      {story + "  say {}\n", 3, "slot name"},
      {story + "  say <1 to 2\n", 3, "open bracket"},
      {story + "  say <x.a>\n", 3, "unknown row"},
      {story + "  say <2 to 1>\n", 3, "amount"},
      {story + "  say <1 + >\n", 3, "amount"},
      {story + "  say <1 / 0>\n", 3, "amount"},
      {story + "  say <(1>\n", 3, "amount"},
      {story + "  say <12345678901>\n", 3, "amount"},
      {story + "  table t: a, b\n    1 | 2\n  draw x from t\n  say <x.c>\n", 6, "unknown column"},
      {story + "  table t: a, b\n    1 | 2\n  draw x from t\n  say <x>\n", 6, "unknown column"},
      {story + "  draw x from t\n", 3, "unknown table"},
      {story + "  table t\n    1\n  draw x, y from t\n", 5, "too many rows"},
      {story + "  maybe 0: a\n", 3, "percentage"},
      {story + "  maybe a: a\n", 3, "percentage"},
      {story + "  chance 101\n    say a\n", 3, "percentage"},
      {story + "  chance 50\n", 3, "empty block"},
      {story + "  if\n    say a\n", 3, "no condition"},
      {story + "  else\n    say a\n", 3, "else without if"},
      {story + "  person hero: Ann\n", 3, "person"},
      {story + "  set a b: c\n", 3, "name"},
      {story + "  list l\n", 3, "empty list"},
      {story + "  each l: a\n", 3, "unknown list"},
      {story + "  do p\n", 3, "unknown part"},
      {"part p\n  say a\n" + story + "  do p: x\n", 5, "too many values"},
      {"part p\n  do p\n" + story + "  do p\n", 2, "endless parts"},
  };
  std::map<std::string, std::string> messages, mistakes;
  for (const Case& c : cases) {
    const std::optional<Error> error = error_in([&] { tell(c.text); });
    EXPECT_TRUE(is_error(error, Code::internal, {"test.txt", std::to_string(c.line)})) << c.text;
    if (!error) continue;
    EXPECT_EQ(error->fault(), Fault::failure) << c.text;
    const std::string message = std::regex_replace(error->values().at(2), std::regex("'[^']*'|[0-9]+"), "");
    EXPECT_EQ(messages.try_emplace(c.mistake, message).first->second, message) << c.text;
    EXPECT_EQ(mistakes.try_emplace(message, c.mistake).first->second, c.mistake) << c.text;
  }
  EXPECT_THROW(tell("domain d\n"), Error);
  EXPECT_THROW(told("  person hero: Ann, neither\n"), Error);
  EXPECT_THROW(told("  chance 1\n    text t: a\n  say <t>\n"), Error);
}

}  // namespace
}  // namespace some::telling
