#include "text/stories.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/random.h"
#include "expect_error.h"
#include "text/story_script.h"

namespace some {
namespace {

constexpr std::uint64_t kCount = 20000;

// Every domain except "mixed".
std::vector<std::string> plain_domains() {
  std::vector<std::string> names = story_domains();
  names.pop_back();
  return names;
}

// The same 20,000 pieces serve all tests of a domain.
const std::vector<std::string>& pieces(const std::string& domain) {
  static std::map<std::string, std::vector<std::string>> made;
  std::vector<std::string>& texts = made[domain];
  if (texts.empty()) {
    const StoryOptions options{.seed = 1, .domain = domain};
    for (std::uint64_t i = 0; i < kCount; ++i) texts.push_back(make_story(options, i));
  }
  return texts;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

const std::set<std::string>& vocabulary(const std::string& domain) {
  static std::map<std::string, std::set<std::string>> made;
  std::set<std::string>& words = made[domain];
  if (words.empty()) {
    for (const std::string& text : pieces(domain)) {
      for (std::string& word : words_of(text)) words.insert(std::move(word));
    }
  }
  return words;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

TEST(Stories, DefaultDomainComesFirstAndMixedLast) {
  const std::vector<std::string> domains = story_domains();
  ASSERT_GE(domains.size(), 4u);
  EXPECT_EQ(domains.front(), StoryOptions{}.domain);
  EXPECT_EQ(domains.back(), "mixed");
}

TEST(Stories, UnknownDomainIsRefusedByNamingTheKnownOnes) {
  const StoryOptions options{.seed = 1, .domain = "poems"};
  for (const bool write : {false, true}) {
    const auto error = error_in([&] {
      if (write) {
        write_stories(options, 0, [](std::string_view) {});
      } else {
        make_story(options, 0);
      }
    });
    ASSERT_TRUE(is_bad_input(error, Code::text_unknown, {"poems"}));
    for (const std::string& name : story_domains())
      EXPECT_NE(error->values()[1].find(name), std::string::npos) << error->what();
  }
}

TEST(Stories, NoTwoOfTwentyThousandAreAlike) {
  for (const std::string& domain : story_domains()) {
    std::unordered_set<std::string_view> seen;
    for (const std::string& text : pieces(domain)) EXPECT_TRUE(seen.insert(text).second) << domain << ":\n" << text;
  }
}

// The text of a seed never changes, so that results with built-in text stay comparable.
TEST(Stories, TheTextOfASeedIsTheSameForever) {
  struct Case {
    const char* domain;
    std::uint64_t seed, first, count, hash;
  };
  static constexpr Case cases[] = {
      {"stories", 0, 0, 300, 0x62ccfa8550a46c47ull},        {"stories", 1, 0, 2000, 0x85d29fa96d4a6106ull},
      {"stories", 42, 1000000, 300, 0xe921aca144089d61ull}, {"stories", ~0ull, 99999000, 300, 0x09ac315631139cf9ull},
      {"recipes", 0, 0, 300, 0xed085f643c521d16ull},        {"recipes", 1, 0, 2000, 0xa427985f62d009aeull},
      {"recipes", 42, 1000000, 300, 0x9f7bf59c6e4b496dull}, {"recipes", ~0ull, 99999000, 300, 0x0cbf4e05beabfd70ull},
      {"letters", 0, 0, 300, 0x15f6fda93f1fc693ull},        {"letters", 1, 0, 2000, 0x7c6bf0ea21a22b24ull},
      {"letters", 42, 1000000, 300, 0x9a8368e35320f7b0ull}, {"letters", ~0ull, 99999000, 300, 0xd181cfaa55b6cf82ull},
      {"nature", 0, 0, 300, 0xd5f00730737415f6ull},         {"nature", 1, 0, 2000, 0x74cc0e1f96dcbb85ull},
      {"nature", 42, 1000000, 300, 0x52e4a3bc8366d15aull},  {"nature", ~0ull, 99999000, 300, 0x69136506274be09dull},
      {"mixed", 0, 0, 300, 0xe17b1e75ed263c9full},          {"mixed", 1, 0, 2000, 0xd86b800e5d7730cbull},
      {"mixed", 42, 1000000, 300, 0x94937dd8a3f4529dull},   {"mixed", ~0ull, 99999000, 300, 0x815d156f7ab08b51ull},
  };
  for (const Case& c : cases) {
    std::string text;
    write_stories(
        {.seed = c.seed, .domain = c.domain}, c.count, [&](std::string_view part) { text += part; }, c.first);
    EXPECT_EQ(XXH3_64bits(text.data(), text.size()), c.hash) << c.domain << ", seed " << c.seed;
  }
}

TEST(Stories, PureFunctionOfSeedDomainAndIndex) {
  for (const std::string& domain : story_domains()) {
    const StoryOptions options{.seed = 1, .domain = domain};
    for (const std::uint64_t index : {19999u, 7u, 1234u, 0u})
      EXPECT_EQ(make_story(options, index), pieces(domain)[index]);
    EXPECT_NE(make_story({.seed = 2, .domain = domain}, 7), pieces(domain)[7]);
  }
}

TEST(Stories, WritesPiecesWithSeparatorLines) {
  const StoryOptions options{.seed = 1, .domain = "stories"};
  std::string text;
  write_stories(
      options, 2, [&](std::string_view part) { text += part; }, 5);
  EXPECT_EQ(text, pieces("stories")[5] + "\n<|endoftext|>\n" + pieces("stories")[6] + "\n<|endoftext|>\n");
}

TEST(Stories, ManyDistinctWords) {
  EXPECT_GE(vocabulary("stories").size(), 2000u);
  std::set<std::string> all;
  for (const std::string& domain : plain_domains()) {
    EXPECT_GE(vocabulary(domain).size(), 500u) << domain;
    all.insert(vocabulary(domain).begin(), vocabulary(domain).end());
  }
  EXPECT_GE(all.size(), 3000u);
}

TEST(Stories, DomainsDifferInVocabulary) {
  const std::vector<std::string> domains = plain_domains();
  for (std::size_t i = 0; i < domains.size(); ++i) {
    for (std::size_t j = i + 1; j < domains.size(); ++j) {
      std::vector<std::string> both;
      std::ranges::set_intersection(vocabulary(domains[i]), vocabulary(domains[j]), std::back_inserter(both));
      const double either =
          static_cast<double>(vocabulary(domains[i]).size() + vocabulary(domains[j]).size() - both.size());
      EXPECT_LT(static_cast<double>(both.size()) / either, 0.35) << domains[i] << " and " << domains[j];
    }
  }
}

TEST(Stories, LengthsVaryAroundAHundredAndSeventyWords) {
  for (const std::string& domain : plain_domains()) {
    std::vector<std::size_t> lengths;
    for (const std::string& text : pieces(domain)) lengths.push_back(words_of(text).size());
    std::ranges::sort(lengths);
    EXPECT_GE(lengths.front(), 60u) << domain;
    EXPECT_LE(lengths.back(), 300u) << domain;
    const std::size_t low = lengths[kCount / 20], median = lengths[kCount / 2], high = lengths[kCount - kCount / 20];
    EXPECT_GE(low, 80u) << domain;
    EXPECT_LE(high, 230u) << domain;
    EXPECT_GE(median, 100u) << domain;
    EXPECT_GE(high - low, 40u) << domain;
  }
}

// Checks the characters and punctuation of one document; returns the problem, or an empty text.
std::string fault_of(const std::string& text) {
  int quotes = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    const char next = i + 1 < text.size() ? text[i + 1] : '\n';
    if (c != '\n' && (c < 32 || c > 126)) return "not plain ASCII";
    if (std::string_view("{}[]|~_<>").find(text[i]) != std::string_view::npos) return "unreplaced placeholder";
    if (c == ' ' && (next == ' ' || next == '\n')) return "stray space";
    if (c == ' ' && std::string_view(".,;:!?").find(next) != std::string_view::npos) return "space before a mark";
    if (std::string_view(".,!?").find(text[i]) != std::string_view::npos && next == text[i]) return "doubled mark";
    if ((c == '.' || c == '!' || c == '?') && std::string_view(".,!?").find(next) != std::string_view::npos) {
      return "two marks in a row";
    }
    if ((c == '.' || c == '!' || c == '?') && next == ' ' && i + 2 < text.size() &&
        std::islower(static_cast<unsigned char>(text[i + 2])) != 0) {
      return "no capital after a full stop";
    }
    if (c == '"') {
      const bool opening = ++quotes % 2 == 1;
      const bool at_start = i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n';
      if (opening != at_start) return "misplaced quotation mark";
      if (opening && std::islower(static_cast<unsigned char>(next)) != 0) return "no capital after a quotation mark";
    }
    if (c == '\n' && quotes % 2 != 0) return "quotation across paragraphs";
  }
  if (quotes % 2 != 0) return "unbalanced quotation marks";
  if (text.empty() || text.back() == '\n' || text.find("\n\n\n") != std::string::npos) return "bad line breaks";
  return "";
}

TEST(Stories, CharactersAndMarksAreInOrder) {
  for (const std::string& domain : plain_domains()) {
    for (const std::string& text : pieces(domain)) {
      const std::string fault = fault_of(text);
      ASSERT_EQ(fault, "") << domain << ":\n" << text;
    }
  }
}

TEST(Stories, ArticlesFitTheNextWord) {
  const auto starts = [](const std::string& word, std::initializer_list<std::string_view> heads) {
    return std::ranges::any_of(heads, [&](std::string_view head) { return word.starts_with(head); });
  };
  for (const std::string& domain : plain_domains()) {
    for (const std::string& text : pieces(domain)) {
      const std::vector<std::string> words = words_of(text);
      for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] != "a" && words[i] != "an") continue;
        bool vowel = std::string_view("aeiou").find(words[i + 1][0]) != std::string_view::npos;
        if (starts(words[i + 1], {"hour", "honest", "honor"})) vowel = true;
        if (starts(words[i + 1], {"one", "uni", "use"})) vowel = false;
        ASSERT_EQ(words[i] == "an", vowel) << words[i] << ' ' << words[i + 1] << " in\n" << text;
      }
    }
  }
}

TEST(Stories, TheHeroIsThereAtTheStartAndAtTheEnd) {
  std::map<std::string, int> plots;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const telling::GeneratedStory tale =
        telling::built_in_stories().tell(0, random_stream(3, "hero " + std::to_string(i)));
    ++plots[tale.plot];
    const std::size_t first = tale.text.find("\n\n");
    const std::size_t last = tale.text.rfind("\n\n");
    ASSERT_NE(first, std::string::npos) << tale.text;
    ASSERT_LT(tale.text.find(tale.hero), first) << tale.hero << " in\n" << tale.text;
    ASSERT_NE(tale.text.find(tale.hero, last), std::string::npos) << tale.hero << " in\n" << tale.text;
  }
  EXPECT_GE(plots.size(), 12u);
  for (const auto& [plot, count] : plots) EXPECT_GT(count, static_cast<int>(kCount / plots.size() / 2)) << plot;
}

// Ingredients of a recipe's list are used in its steps, whatever their amount.
TEST(Stories, RecipesUseWhatTheyList) {
  for (const std::string& text : pieces("recipes")) {
    const std::size_t begin = text.find("\n1. ");
    ASSERT_NE(begin, std::string::npos) << text;
    const std::string steps = text.substr(begin);
    int listed = 0;
    for (const std::string& line : lines_of(text)) {
      if (!line.starts_with("- ")) continue;
      ++listed;
      std::string item = line.substr(2);
      if (const std::size_t end = item.find(" for serving"); end != std::string::npos) item.resize(end);
      const std::size_t of = item.rfind(" of ");
      if (const std::size_t amount = static_cast<std::size_t>(std::atoi(item.c_str())); amount > 0) {
        // "1 cup of milk", "3 cups of milk", "2 leeks": the counted word agrees with the number.
        const std::string counted = item.substr(0, item.find(" of "));
        ASSERT_EQ(counted.back() == 's', amount > 1) << item;
      }
      item = of != std::string::npos ? item.substr(of + 4) : item;
      if (std::isdigit(static_cast<unsigned char>(item[0])) != 0) item = item.substr(item.find(' ') + 1);
      if (item.starts_with("some ")) item = item.substr(5);
      // "cold butter", "rolled oats": the steps may name the plain thing.
      const std::string last = item.substr(item.rfind(' ') + 1);
      ASSERT_NE(steps.find(last), std::string::npos) << item << " in\n" << text;
    }
    ASSERT_GE(listed, 6) << text;
  }
}

TEST(Stories, LettersGreetAndSign) {
  for (const std::string& text : pieces("letters")) {
    std::vector<std::string> lines = lines_of(text);
    const auto greeting =
        std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("Dear "); });
    ASSERT_NE(greeting, lines.end()) << text;
    ASSERT_EQ(greeting->back(), ',') << text;
    // The head names the place, and the signature stands under a closing with a comma.
    ASSERT_NE(lines[0].find(", "), std::string::npos) << text;
    if (lines.back().starts_with("P.S. ")) lines.resize(lines.size() - 2);
    ASSERT_EQ(lines[lines.size() - 2].back(), ',') << text;
    const std::string& signature = lines.back();
    const std::string reader = greeting->substr(5, greeting->size() - 6);
    ASSERT_EQ(signature.find(reader), std::string::npos) << "a letter to oneself:\n" << text;
  }
}

}  // namespace
}  // namespace some
