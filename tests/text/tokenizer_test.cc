#include "text/tokenizer.h"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "expect_error.h"
#include "text/bpe_merge.h"
#include "text/bpe_train.h"
#include "text/corpus.h"
#include "text/pretokenize.h"
#include "text_helpers.h"

namespace some {
namespace {

using testing::Dice;
using testing::read_whole;
using testing::shared_path;

const char* const fixture_names[] = {"whitespace-1000", "bytelevel-1000"};

std::string fixture(const std::string& name) { return shared_path("fixtures/tokenizer/" + name + ".json"); }

// A vocabulary for tests that need no particular one.
Tokenizer small_tokenizer(TokenizerKind kind, std::size_t vocab_size = 400) {
  std::vector<std::string> texts = {
      "The old mill stood by the river, and the miller's daughter counted the sacks: one, two, three.",
      "\"Where is the cat?\" she asked. \"It's on the mill,\" he said; they'll find it there.",
      "aaaa aaaaaaaa ababab na\u00EFve caf\u00E9 12 1212 2024 3.14 ... !!!",
  };
  BpeTrainOptions options;
  options.kind = kind;
  options.vocab_size = vocab_size;
  std::size_t i = 0;
  return train_bpe(options, [&](std::string& text) { return i < texts.size() ? (text = texts[i++], true) : false; });
}

TEST(TokenizerFixtures, Encodings) {
  SOME_NEEDS_SHARED("fixtures/tokenizer");
  const auto cases = nlohmann::json::parse(read_whole(fixture("encodings")));
  for (const char* name : fixture_names) {
    const Tokenizer tokenizer = Tokenizer::load(fixture(name));
    for (int round = 0; round < 2; ++round) {  // the second time, words come from the cache
      for (const auto& one : cases.at(name)) {
        EXPECT_EQ(tokenizer.encode(one.at("text").get<std::string>()), one.at("ids").get<std::vector<TokenId>>())
            << name << ": " << one.at("text");
      }
    }
  }
}

TEST(TokenizerFixtures, WrittenAsRead) {
  SOME_NEEDS_SHARED("fixtures/tokenizer");
  for (const char* name : fixture_names) {
    EXPECT_EQ(Tokenizer::load(fixture(name)).to_json(), read_whole(fixture(name))) << name;
  }
}

TEST(TokenizerFixtures, TrainingGivesTheSameFile) {
  SOME_NEEDS_SHARED("fixtures/tokenizer");
  SOME_NEEDS_SHARED("data/tinystories/train.txt");
  for (const char* name : fixture_names) {
    const Tokenizer expected = Tokenizer::load(fixture(name));
    for (const int threads : {1, 3}) {
      CorpusReader corpus({.paths = {shared_path("data/tinystories/train.txt")}, .limit = 2000});
      BpeTrainOptions options;
      options.kind = expected.kind();
      options.vocab_size = 1000;
      options.threads = threads;
      EXPECT_EQ(train_bpe(options, corpus).to_json(), read_whole(fixture(name))) << name;
      EXPECT_EQ(corpus.documents(), 2000u);
    }
  }
}

TEST(Tokenizer, SpecialTokensInText) {
  for (const TokenizerKind kind : {TokenizerKind::whitespace, TokenizerKind::bytelevel}) {
    const Tokenizer tokenizer = small_tokenizer(kind);
    EXPECT_EQ(tokenizer.unk_id(), 0);
    EXPECT_EQ(tokenizer.pad_id(), 1);
    EXPECT_EQ(tokenizer.eos_id(), 2);
    const TokenId a = tokenizer.find("a").value();
    EXPECT_EQ(tokenizer.encode("a[EOS]a[PAD][UNK]"), (std::vector<TokenId>{a, 2, a, 1, 0}));
    EXPECT_EQ(tokenizer.encode("a[EOS", {.specials = false}), tokenizer.encode("a[EOS"));
    for (const TokenId id : tokenizer.encode("a[EOS]", {.specials = false})) EXPECT_NE(id, 2);
    EXPECT_TRUE(tokenizer.is_special(2));
    EXPECT_FALSE(tokenizer.is_special(a));
    const std::vector<TokenId> ids = {a, 2, 1};
    EXPECT_EQ(tokenizer.decode(ids, {.skip_specials = true}), "a");
  }
}

TEST(Tokenizer, LongestAddedTokenWins) {
  auto json = nlohmann::json::parse(small_tokenizer(TokenizerKind::bytelevel, 300).to_json());
  const int first = static_cast<int>(json["model"]["vocab"].size());
  const auto add = [&](const char* content, int id, bool normalized) {
    json["added_tokens"].push_back({{"id", id}, {"content", content}, {"normalized", normalized}, {"special", false}});
  };
  add("<a>", first, false);
  add("<a>b", first + 1, false);
  add("b<", first + 2, true);
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  EXPECT_EQ(tokenizer.vocab_size(), static_cast<std::size_t>(first) + 3);
  EXPECT_EQ(tokenizer.encode("<a>b<a>b<"), (std::vector<TokenId>{first + 1, first + 1, tokenizer.find("<").value()}));
  EXPECT_EQ(tokenizer.encode("b<a>b<"),
            (std::vector<TokenId>{tokenizer.find("b").value(), first + 1, tokenizer.find("<").value()}));
  EXPECT_EQ(tokenizer.encode("xb<"), (std::vector<TokenId>{tokenizer.find("x").value(), first + 2}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<a>b<a>b<")), "<a>b<a>b<");
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).hash(), tokenizer.hash());
}

TEST(Tokenizer, BytelevelComesBackFromAnyBytes) {
  const Tokenizer tokenizer = small_tokenizer(TokenizerKind::bytelevel);
  Dice dice("round trip");
  std::vector<std::string> texts = {
      "", " ", "\n", "a", "\xFF", "\xE2\x82", "[EOS] [PAD]\xC3[UNK", std::string(1, '\0')};
  for (int i = 0; i < 400; ++i) {
    texts.push_back(i % 2 ? testing::random_bytes(dice, dice.below(400))
                          : testing::random_unicode(dice, dice.below(200)));
  }
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  texts.push_back(all);
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> lengths;
  for (const std::string& text : texts) {
    for (const bool specials : {true, false}) {
      tokenizer.encode(text, ids, lengths, {.specials = specials});
      EXPECT_EQ(tokenizer.decode(ids), text);
      ASSERT_EQ(ids.size(), lengths.size());
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), text.size());
      for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tokenizer.token_bytes(ids[i]).size(), lengths[i]);
    }
  }
}

TEST(Tokenizer, WhitespaceLengthsReachTheEndOfEachToken) {
  const Tokenizer tokenizer = small_tokenizer(TokenizerKind::whitespace, 60);
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> lengths;
  tokenizer.encode("  a \u65E5\u672C\n a!  \t", ids, lengths);
  const TokenId a = tokenizer.find("a").value(), mark = tokenizer.find("!").value();
  EXPECT_EQ(ids, (std::vector<TokenId>{a, 0, 0, a, mark}));
  EXPECT_EQ(lengths, (std::vector<std::uint32_t>{3, 4, 3, 3, 1}));
  EXPECT_EQ(tokenizer.decode(ids), "a [UNK] [UNK] a !");
  tokenizer.encode("   ", ids, lengths);
  EXPECT_TRUE(ids.empty() && lengths.empty());
  tokenizer.encode("", ids, lengths);
  EXPECT_TRUE(ids.empty() && lengths.empty());

  Dice dice("whitespace lengths");
  for (int i = 0; i < 200; ++i) {
    std::string text = i % 2 ? testing::random_bytes(dice, 100) : testing::random_unicode(dice, 100);
    text += "a";  // so that no text follows the last token
    tokenizer.encode(text, ids, lengths);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), text.size());
  }
}

TEST(Tokenizer, CharactersWithoutTokenAreLeftOutWhereThereIsNoUnknown) {
  auto json = nlohmann::json::parse(small_tokenizer(TokenizerKind::whitespace, 60).to_json());
  json["model"]["unk_token"] = nullptr;
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump());
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> lengths;
  tokenizer.encode(
      "\u65E5"
      "a\u672C a",
      ids, lengths);
  const TokenId a = tokenizer.find("a").value();
  EXPECT_EQ(ids, (std::vector<TokenId>{a, a}));
  EXPECT_EQ(lengths, (std::vector<std::uint32_t>{4, 5}));
}

// The definition, implemented naively.
std::vector<TokenId> merged_slowly(const std::map<std::pair<TokenId, TokenId>, MergeTable::Merge>& merges,
                                   std::vector<TokenId> ids) {
  for (;;) {
    std::size_t best = ids.size();
    std::uint32_t rank = MergeTable::no_rank;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = merges.find({ids[i], ids[i + 1]});
      if (found != merges.end() && found->second.rank < rank) {
        rank = found->second.rank;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Ranks in any order, so that pairs formed late may come first, as in vocabularies of other programs.
TEST(BpeMerge, ShortAndLongWordsFollowTheDefinition) {
  Dice dice("merge");
  for (int round = 0; round < 60; ++round) {
    std::map<std::string, TokenId> ids = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::pair<TokenId, TokenId>> pairs;
    for (int i = 0; i < 25; ++i) {
      const auto left = static_cast<TokenId>(dice.below(static_cast<std::uint32_t>(tokens.size())));
      const auto right = static_cast<TokenId>(dice.below(static_cast<std::uint32_t>(tokens.size())));
      const std::string made = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
      if (made.size() > 9) continue;
      if (ids.emplace(made, static_cast<TokenId>(tokens.size())).second) tokens.push_back(made);
      pairs.emplace_back(left, right);
    }
    std::map<std::pair<TokenId, TokenId>, MergeTable::Merge> merges;
    MergeTable table;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const std::uint32_t rank =
          round % 2 ? static_cast<std::uint32_t>(i) : static_cast<std::uint32_t>(i * 7 % pairs.size());
      const auto [left, right] = pairs[i];
      const MergeTable::Merge merge{
          round % 2 ? rank : rank * 100 + static_cast<std::uint32_t>(i),
          ids.at(tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)])};
      merges[pairs[i]] = merge;
      table.set(left, right, merge);
    }
    for (const std::size_t length : {0, 1, 2, 10, 63, 64, 65, 66, 300}) {
      std::vector<TokenId> word;
      std::vector<Piece> pieces;
      for (std::size_t i = 0; i < length; ++i) {
        word.push_back(static_cast<TokenId>(dice.below(3)));
        pieces.push_back({word.back(), 1});
      }
      merge_pieces(table, pieces);
      std::vector<TokenId> got;
      std::size_t bytes = 0;
      for (const Piece& piece : pieces) {
        got.push_back(piece.id);
        bytes += piece.bytes;
        EXPECT_EQ(tokens[static_cast<std::size_t>(piece.id)].size(), piece.bytes);
      }
      EXPECT_EQ(bytes, length);
      EXPECT_EQ(got, merged_slowly(merges, word)) << "round " << round << " length " << length;
    }
  }
}

TEST(BpeTrain, CountsDecideAndTiesGoToLowerIds) {
  BpeTrainOptions options;
  options.kind = TokenizerKind::whitespace;
  options.vocab_size = 9;
  bool given = false;
  const Tokenizer tokenizer = train_bpe(options, [&](std::string& text) {
    text = "ba ba ab ab cab";
    return !std::exchange(given, true);
  });
  // Alphabet a b c; (a,b) occurs 3 times, then (b,a) twice, then (c,ab) once.
  EXPECT_EQ(tokenizer.vocab_size(), 9u);
  EXPECT_EQ(tokenizer.token(3), "a");
  EXPECT_EQ(tokenizer.token(5), "c");
  EXPECT_EQ(tokenizer.token(6), "ab");
  EXPECT_EQ(tokenizer.token(7), "ba");
  EXPECT_EQ(tokenizer.token(8), "cab");
}

TEST(BpeTrain, MinFrequencyAndTooSmallVocabulary) {
  const auto train = [](std::size_t vocab, std::uint64_t minimum, TokenizerKind kind) {
    BpeTrainOptions options;
    options.kind = kind;
    options.vocab_size = vocab;
    options.min_frequency = minimum;
    bool given = false;
    return train_bpe(options, [&](std::string& text) {
      text = "roses are red are is is";
      return !std::exchange(given, true);
    });
  };
  EXPECT_EQ(train(1000, 2, TokenizerKind::whitespace).token(10), "re");
  EXPECT_EQ(train(1000, 2, TokenizerKind::whitespace).vocab_size(), 3u + 7 + 3);  // re, are, is
  EXPECT_EQ(train(5, 0, TokenizerKind::whitespace).vocab_size(), 3u + 7);
  EXPECT_EQ(train(5, 0, TokenizerKind::bytelevel).vocab_size(), 3u + 256);
}

TEST(BpeTrain, AnyBytesForBytelevelOnlyUtf8ForWhitespace) {
  const std::string bytes = "abc \xFF\xFF\xFF\xFF abc";
  BpeTrainOptions options;
  options.vocab_size = 262;
  int left = 1;
  const Tokenizer tokenizer = train_bpe(options, [&](std::string& text) { return text = bytes, left-- > 0; });
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  options.kind = TokenizerKind::whitespace;
  left = 1;
  EXPECT_ERROR(train_bpe(options, [&](std::string& text) { return text = bytes, left-- > 0; }), Code::text_not_utf8,
               "1", "4");
}

TEST(BpeTrain, NothingToTrainOnLeavesTheAlphabet) {
  const Tokenizer tokenizer = train_bpe(BpeTrainOptions{}, [](std::string&) { return false; });
  EXPECT_EQ(tokenizer.vocab_size(), 259u);
}

TEST(Tokenizer, ManyThreadsGiveTheSameIds) {
  const Tokenizer tokenizer = small_tokenizer(TokenizerKind::bytelevel);
  Dice dice("threads");
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(testing::random_unicode(dice, 100));
  std::vector<std::vector<TokenId>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text));
  std::vector<std::vector<std::vector<TokenId>>> got(4);
  std::vector<std::thread> threads;
  for (auto& mine : got) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) mine.push_back(tokenizer.encode(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : got) EXPECT_EQ(mine, expected);
}

// Wherever part_end splits a text, the ids and byte lengths of the parts equal those of the whole.
TEST(Tokenizer, PartsEncodeLikeTheWhole) {
  Dice dice("parts");
  for (const TokenizerKind kind : {TokenizerKind::bytelevel, TokenizerKind::whitespace}) {
    const Tokenizer tokenizer = small_tokenizer(kind);
    ASSERT_TRUE(tokenizer.encodes_in_parts());
    for (int round = 0; round < 60; ++round) {
      std::string text = testing::random_unicode(dice, 1 + dice.below(400));
      if (round % 3 == 0) text += "   \u00A0 \n\n don't  stop\u3000now they'll";
      std::vector<TokenId> whole, ids, part_ids;
      std::vector<std::uint32_t> whole_lengths, lengths, part_lengths;
      tokenizer.encode(text, whole, whole_lengths, {.specials = false});
      const std::size_t size = 1 + dice.below(30);
      std::size_t parts = 0;
      for (std::size_t at = 0; at < text.size(); ++parts) {
        const std::size_t end = part_end(text, at, size);
        ASSERT_GT(end, at);
        tokenizer.encode(std::string_view(text).substr(at, end - at), part_ids, part_lengths, {.specials = false});
        ids.insert(ids.end(), part_ids.begin(), part_ids.end());
        lengths.insert(lengths.end(), part_lengths.begin(), part_lengths.end());
        at = end;
      }
      ASSERT_EQ(ids, whole) << text;
      ASSERT_EQ(lengths, whole_lengths) << text;
      if (text.size() > 300) {
        EXPECT_GT(parts, 1u);
      }
    }
  }
  EXPECT_EQ(part_end("no blank here? none", 0, 19), 19u);
  EXPECT_EQ(part_end(std::string(1000, 'x'), 0, 10), 1000u);
}

TEST(Tokenizer, AddedTokensWithBlanksForbidParts) {
  auto file = nlohmann::json::parse(small_tokenizer(TokenizerKind::bytelevel).to_json());
  auto added = file["added_tokens"][0];
  added["id"] = file["model"]["vocab"].size();
  added["special"] = false;
  for (const auto& [content, safe] : {std::pair{"<joined>", true}, std::pair{"<two words>", false}}) {
    auto changed = file;
    added["content"] = content;
    changed["added_tokens"].push_back(added);
    EXPECT_EQ(Tokenizer::from_json(changed.dump()).encodes_in_parts(), safe) << content;
  }
}

TEST(Tokenizer, MoreWordsThanTheCacheHolds) {
  const Tokenizer tokenizer = small_tokenizer(TokenizerKind::bytelevel);
  std::string text;
  for (int i = 0; i < 200000; ++i) text.append(" ").append(std::to_string(i * 7919 % 1000003));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, FiftyMegabytesInOneLine) {
  constexpr std::size_t size = 50u << 20;
  const auto begin = std::chrono::steady_clock::now();
  for (const TokenizerKind kind : {TokenizerKind::whitespace, TokenizerKind::bytelevel}) {
    const Tokenizer tokenizer = small_tokenizer(kind);
    std::string text;
    text.reserve(size + 100);
    while (text.size() < size) text += "The miller's cat counted 1212 sacks of nothing, na\u00EFve as ever. ";
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> lengths;
    tokenizer.encode(text, ids, lengths);
    EXPECT_GT(ids.size(), size / 20);
    if (kind == TokenizerKind::bytelevel) {
      EXPECT_EQ(tokenizer.decode(ids), text);
    }
  }
  {  // one word of that size
    const Tokenizer tokenizer = small_tokenizer(TokenizerKind::bytelevel);
    const std::string text(size / 5, 'a');
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 120.0);
}

TEST(Tokenizer, IdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = small_tokenizer(TokenizerKind::bytelevel, 300);
  for (const TokenId id : {-1, 300, 1 << 30}) {
    const std::vector<TokenId> ids = {id};
    EXPECT_ERROR(tokenizer.decode(ids), Code::token_out_of_range, fmt::to_string(id), "300");
    EXPECT_ERROR(tokenizer.token(id), Code::token_out_of_range, fmt::to_string(id), "300");
  }
}

TEST(Tokenizer, Kinds) {
  EXPECT_EQ(tokenizer_kind("whitespace"), TokenizerKind::whitespace);
  EXPECT_EQ(tokenizer_kind("bytelevel"), TokenizerKind::bytelevel);
  EXPECT_EQ(tokenizer_kind_name(TokenizerKind::whitespace), "whitespace");
  EXPECT_ERROR(tokenizer_kind("words"), Code::tokenizer_unknown, "words");
}

}  // namespace
}  // namespace some
