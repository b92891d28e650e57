#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "core/files/files.h"
#include "core/random.h"
#include "core/threads.h"
#include "data/small_corpora.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "text/stories.h"

namespace some {
namespace {

TEST(Corpora, TrainAndValidFiles) {
  const TemporaryFolder folder;
  const Listener listener;
  DataConfig config =
      small_config(folder.write("train.txt", text_of(0, 20)), folder.write("valid.txt", text_of(50, 8)));
  const Corpora corpora = load(config, "", 1, listener.host);
  ASSERT_EQ(corpora.train.documents(), 20);
  ASSERT_EQ(corpora.valid.documents(), 8);
  EXPECT_EQ(decode(corpora, corpora.train, 7), story_number(7));
  EXPECT_EQ(decode(corpora, corpora.valid, 2), story_number(52));
  EXPECT_EQ(corpora.train.ids(3).back(), corpora.tokenizer.eos_id());
  EXPECT_FALSE(has_warning(listener.warnings, Code::text_overlap));
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < 20; ++i) tokens += static_cast<std::int64_t>(corpora.train.ids(i).size());
  EXPECT_EQ(corpora.train.tokens(), tokens);

  config.train_documents = 5;
  config.valid_documents = 3;
  const Corpora subset = load(config);
  ASSERT_EQ(subset.train.documents(), 5);
  ASSERT_EQ(subset.valid.documents(), 3);
  EXPECT_EQ(decode(subset, subset.train, 4), story_number(4));
  EXPECT_EQ(decode(subset, subset.valid, 0), story_number(50));
  config.eos = false;
  const Corpora bare = load(config);
  EXPECT_EQ(bare.train.ids(0).size() + 1, subset.train.ids(0).size());
  EXPECT_NE(bare.train.hash(), subset.train.hash());
}

TEST(Corpora, ALimitIsReported) {
  const TemporaryFolder folder;
  DataConfig config = small_config(folder.write("text.txt", text_of(0, 20)));
  config.valid_share = 0.25;
  config.train_documents = 6;
  config.valid_documents = 2;
  const Listener listener;
  load(config, "", 1, listener.host);
  EXPECT_TRUE(any_contains(listener.infos, "trains on 6 of 15 documents (data.train_documents = 6)"));
  EXPECT_TRUE(any_contains(listener.infos, "validates on 2 of 5 documents (data.valid_documents = 2)"));
  config.valid = folder.write("valid.txt", text_of(50, 8));
  const Listener second;
  load(config, "", 1, second.host);
  EXPECT_TRUE(any_contains(second.infos, "trains on the first 6 documents of the file"));
  // Limits that leave nothing out, and limits of built-in text.
  const Listener third;
  config.train_documents = 30;
  config.valid_documents = 0;
  load(config, "", 1, third.host);
  DataConfig built_in = small_config("builtin:stories");
  built_in.train_documents = 20;
  built_in.valid_documents = 4;
  load(built_in, "", 1, third.host);
  EXPECT_FALSE(any_contains(third.infos, "data.train_documents"));
  EXPECT_FALSE(any_contains(third.infos, "data.valid_documents"));
}

TEST(Corpora, BytesAddUpToTheStory) {
  const TemporaryFolder folder;
  const std::string odd = "Zoë said: \"日本語!\"\n\n   twice,\ttabbed  and  spaced ";
  const DataConfig config = small_config(folder.write("t.txt", text_of(0, 5) + odd + "\n<|endoftext|>\nx\n"),
                                         folder.write("v.txt", text_of(90, 2)));
  const Corpora corpora = load(config);
  ASSERT_EQ(corpora.train.documents(), 7);
  EXPECT_EQ(decode(corpora, corpora.train, 5), odd);
  BatchOptions options;
  options.seq_len = 4096;
  options.pad_id = corpora.tokenizer.pad_id();
  options.eos_id = corpora.tokenizer.eos_id();
  for (std::int64_t i = 0; i < corpora.train.documents(); ++i) {
    const auto bytes = corpora.train.bytes(i);
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), corpora.train.document_text_bytes(i));
    EXPECT_EQ(bytes.back(), 0) << "EOS stands for no text";
    // Every byte counts except those of the first token, which is not predicted.
    const Batch batch = make_batch(corpora.train, std::vector<std::int64_t>{i}, options);
    EXPECT_EQ(batch.real_bytes + bytes.front(), corpora.train.document_text_bytes(i));
  }
  EXPECT_EQ(corpora.train.document_text_bytes(5), static_cast<std::int64_t>(odd.size()));
  EXPECT_EQ(corpora.train.document_text_bytes(6), 1);
}

TEST(Corpora, MoreBlankSpaceThanSixteenBitsKeepsItsBytes) {
  const TemporaryFolder folder;
  DataConfig config =
      small_config(folder.write("t.txt", "a" + std::string(150000, ' ') + "b c d e f"), folder.write("v.txt", "a b"));
  config.tokenizer = "whitespace";
  const Corpora corpora = load(config);
  const auto bytes = corpora.train.bytes(0);
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), 150010);
}

TEST(Corpora, SpecialTokensInTheTextAreText) {
  const TemporaryFolder folder;
  const Corpora corpora =
      load(small_config(folder.write("t.txt", "He wrote [EOS] and [PAD] on it."), folder.write("v.txt", "x")));
  const auto ids = corpora.train.ids(0);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), corpora.tokenizer.eos_id()), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), corpora.tokenizer.pad_id()), 0);
  EXPECT_EQ(decode(corpora, corpora.train, 0), "He wrote [EOS] and [PAD] on it.");
}

TEST(Corpora, ValidationShareIsExactDisjointAndFromTheSeed) {
  const TemporaryFolder folder;
  DataConfig config = small_config(folder.write("t.txt", text_of(0, 50)));
  config.valid_share = 0.2;
  const Corpora corpora = load(config);
  EXPECT_EQ(corpora.train.documents(), 40);
  EXPECT_EQ(corpora.valid.documents(), 10);
  std::set<std::string> texts;
  for (const auto& text : all_texts(corpora, corpora.train)) texts.insert(text);
  for (const auto& text : all_texts(corpora, corpora.valid)) texts.insert(text);
  EXPECT_EQ(texts.size(), 50u);
  const Corpora again = load(config);
  EXPECT_EQ(all_texts(again, again.valid), all_texts(corpora, corpora.valid));
  const Corpora other = load(config, "", 2);
  EXPECT_NE(all_texts(other, other.valid), all_texts(corpora, corpora.valid));

  config.train_documents = 6;
  config.valid_documents = 4;
  const Corpora subset = load(config);
  auto expected = all_texts(corpora, corpora.train);
  expected.resize(6);
  EXPECT_EQ(all_texts(subset, subset.train), expected);
  expected = all_texts(corpora, corpora.valid);
  expected.resize(4);
  EXPECT_EQ(all_texts(subset, subset.valid), expected);
}

TEST(Corpora, ValidationShareLeavesSomethingOnBothSides) {
  const TemporaryFolder folder;
  DataConfig config = small_config(folder.write("t.txt", text_of(0, 2)));
  config.long_documents = LongDocuments::cut;
  for (const double share : {0.001, 0.999}) {
    config.valid_share = share;
    EXPECT_EQ(load(config).train.documents(), 1);
    EXPECT_EQ(load(config).valid.documents(), 1);
  }
  for (const double share : {0.0, 1.0, -0.1, std::nan("")}) {
    config.valid_share = share;
    EXPECT_ERROR(load(config), Code::setting_out_of_range, "data.valid_share");
  }
  config.valid_share = 0.5;
  config.train = folder.write("one.txt", "Only one.");
  EXPECT_ERROR(load(config), Code::text_too_short, config.train);
}

// Too few documents to hold a whole one out: the end of each is held out, from the beginning of a line.
TEST(Corpora, TheEndOfALongDocumentIsHeldOut) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += story_number(i) + "\n";
  DataConfig config = small_config(folder.write("book.txt", text));
  Listener listener;
  const Corpora corpora = load(config, "", 1, listener.host);
  EXPECT_TRUE(any_contains(listener.infos, "the last 10% of its text"));
  ASSERT_EQ(corpora.train.documents(), 1);
  ASSERT_EQ(corpora.valid.documents(), 1);
  const std::string beginning = decode(corpora, corpora.train, 0), end = decode(corpora, corpora.valid, 0);
  EXPECT_EQ(beginning + end + "\n", text);
  EXPECT_EQ(beginning.back(), '\n');
  EXPECT_NEAR(static_cast<double>(end.size()), 0.1 * static_cast<double>(text.size()), 100);
  // The document does not end where its end was split off.
  EXPECT_NE(corpora.train.ids(0).back(), corpora.tokenizer.eos_id());
  EXPECT_EQ(corpora.valid.ids(0).back(), corpora.tokenizer.eos_id());
  // Another seed holds out the same text, and the cache distinguishes beginning, end and whole.
  const std::string cache = folder.file("cache");
  EXPECT_TRUE(same_tokens(load(config, cache, 7).train, corpora.train));
  EXPECT_TRUE(same_tokens(load(config, cache).valid, corpora.valid));
  config.valid_share = 0.3;
  EXPECT_TRUE(same_tokens(load(config, cache).train, load(config).train));
  config.valid = folder.write("other.txt", "Another text.");
  EXPECT_EQ(decode(corpora, load(config, cache).train, 0) + "\n", text);

  // With three books the end of each is held out; with ten books, one of them.
  config = small_config(folder.path() + "/books");
  for (int i = 0; i < 3; ++i) folder.write("books/" + std::to_string(i), "Book " + std::to_string(i) + ".\n" + text);
  EXPECT_EQ(load(config).train.documents(), 3);
  EXPECT_EQ(load(config).valid.documents(), 3);
  config.train_documents = 2;
  config.valid_documents = 1;
  EXPECT_EQ(load(config).train.documents(), 2);
  EXPECT_EQ(load(config).valid.documents(), 1);
  config.train_documents = config.valid_documents = 0;
  for (int i = 3; i < 10; ++i) folder.write("books/" + std::to_string(i), "Book " + std::to_string(i) + ".\n" + text);
  EXPECT_EQ(load(config).train.documents(), 9);
  EXPECT_EQ(load(config).valid.documents(), 1);
}

TEST(Corpora, WhereTheEndOfADocumentBegins) {
  EXPECT_EQ(held_out_begin("0123456789\nabc\nabcdefgh", 0.5), 15u);  // after the next line end
  EXPECT_EQ(held_out_begin("aaaa bbbb cccc dddd", 0.5), 9u);         // no line: before a word
  EXPECT_EQ(held_out_begin("\u00E9\u00E9\u00E9", 0.5), 4u);          // no blank: between characters
  EXPECT_EQ(held_out_begin("ab", 0.01), 1u);
  EXPECT_EQ(held_out_begin("a", 0.1), 1u);  // too short: no end is split off
  EXPECT_EQ(held_out_begin("a\n\n\n\n", 0.5), 5u);
}

TEST(Corpora, ATextTooShortToPartIsRefused) {
  const TemporaryFolder folder;
  DataConfig config = small_config(folder.write("t.txt", "x"));
  EXPECT_ERROR(load(config), Code::text_too_short, config.train);
}

// A document encoded in parts gives the ids of the whole; lines and paragraphs become separate documents.
TEST(Corpora, LongTextsAreTokenisedInParts) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; text.size() < 1200000; ++i)
    text += story_number(i) + (i % 7 == 0 ? "\n\n" : i % 3 == 0 ? "\n" : "  ");
  text += "end";
  DataConfig config = small_config(folder.write("t.txt", text), folder.write("v.txt", "short"));
  for (const char* kind : {"bytelevel", "whitespace"}) {
    config.tokenizer = kind;
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> last;
    const Corpora corpora =
        load_corpora(Host(), config, 1, "", [&](const std::string& what, std::int64_t done, std::int64_t total) {
          last[what] = {done, total};
        });
    ASSERT_EQ(corpora.train.documents(), 1);
    std::vector<TokenId> ids = corpora.tokenizer.encode(text);
    ids.push_back(corpora.tokenizer.eos_id());
    EXPECT_TRUE(std::ranges::equal(corpora.train.ids(0), ids));
    const auto size = static_cast<std::int64_t>(text.size());
    EXPECT_EQ(last.at("tokenizing the training text"), (std::pair{size, size}));
    EXPECT_EQ(last.at("training the tokenizer"), (std::pair{size, size}));
  }
  config.unit = TextUnit::line;
  const std::int64_t lines = load(config).train.documents();
  EXPECT_EQ(
      lines, std::count(text.begin(), text.end(), '\n') + 1 - [&] {
        std::int64_t blank = 0;
        for (std::size_t at = 0; (at = text.find("\n\n", at)) != std::string::npos; at += 2) ++blank;
        return blank;
      }());
}

TEST(Corpora, OverlapIsReportedWithItsCount) {
  const TemporaryFolder folder;
  Listener listener;
  load(small_config(folder.write("t.txt", text_of(0, 20)), folder.write("v.txt", text_of(17, 10))), "", 1,
       listener.host);
  EXPECT_TRUE(has_warning(listener.warnings, Code::text_overlap, {"3", "10"}));
  listener.warnings.clear();
  DataConfig twice = small_config(folder.write("d.txt", text_of(0, 10) + text_of(0, 10)));
  twice.valid_share = 0.5;
  load(twice, "", 1, listener.host);
  EXPECT_TRUE(has_warning(listener.warnings, Code::text_overlap, {"10"}));
}

TEST(Corpora, CrlfJsonLinesAndFoldersGiveTheSameStories) {
  const TemporaryFolder folder;
  const std::string valid = folder.write("v.txt", text_of(90, 2));
  const Corpora plain = load(small_config(folder.write("t.txt", text_of(0, 6)), valid));

  const Corpora crlf = load(small_config(folder.write("crlf.txt", text_of(0, 6, "\r\n")), valid));
  EXPECT_TRUE(same_tokens(plain.train, crlf.train));

  std::string lines, named;
  for (int i = 0; i < 6; ++i) lines += "{\"id\": 1, \"text\": \"" + story_number(i) + "\"}\n";
  for (int i = 0; i < 6; ++i) named += "{\"text\": \"no\", \"tale\": \"" + story_number(i) + "\"}\n";
  const Corpora json = load(small_config(folder.write("t.jsonl", lines), valid));
  EXPECT_TRUE(same_tokens(plain.train, json.train));
  const Corpora ending = load(small_config(folder.write("t.json", lines), valid));
  EXPECT_TRUE(same_tokens(plain.train, ending.train));
  DataConfig field = small_config(folder.write("train.data", named));
  field.field = "tale";
  field.valid_share = 0.34;
  EXPECT_EQ(load(field).train.documents(), 4);
  EXPECT_EQ(load(field).valid.documents(), 2);

  folder.write("many/a.txt", text_of(0, 2));
  folder.write("many/b/c.txt", text_of(2, 3));
  folder.write("many/d.jsonl", "{\"text\": \"" + story_number(5) + "\"}\n");
  const Corpora many = load(small_config(folder.file("many"), valid));
  EXPECT_TRUE(same_tokens(plain.train, many.train));

  DataConfig line =
      small_config(folder.write("dash.txt", "One.\n---\nTwo.\n---\n"), folder.write("dash-v.txt", "Three."));
  line.separator = "---";
  EXPECT_EQ(load(line).train.documents(), 2);
}

TEST(Corpora, BadInputIsNamed) {
  const TemporaryFolder folder;
  const std::string good = folder.write("t.txt", text_of(0, 3));
  const std::string absent = folder.file("absent.txt");
  EXPECT_ERROR(load(small_config(absent, good)), Code::file_not_found, absent);
  EXPECT_ERROR(load(small_config(good, absent)), Code::file_not_found, absent);
  const std::string bad = folder.write("bad.txt", "ab\xff");
  EXPECT_ERROR(load(small_config(bad, good)), Code::text_not_utf8, bad, "255", "2");
  const std::string only = folder.write("only.txt", "<|endoftext|>\n<|endoftext|>\n");
  EXPECT_ERROR(load(small_config(only, good)), Code::text_empty, only, "2");
  EXPECT_ERROR(load(small_config("", good)), Code::setting_out_of_range, "data.train");
  EXPECT_ERROR(load(small_config("builtin:poems", good)), Code::text_unknown, "builtin:poems");
  DataConfig config = small_config(good, good);
  config.tokenizer = folder.file("none.json");
  EXPECT_ERROR(load(config), Code::tokenizer_unknown, folder.file("none.json"));
  config = small_config(good, good);
  config.train_documents = -1;
  EXPECT_ERROR(load(config), Code::setting_out_of_range, "-1");
  config.valid.clear();
  EXPECT_ERROR(load(config), Code::setting_out_of_range, "data.train_documents", "-1");
}

TEST(Corpora, BuiltinTrainsOnTheFirstAndValidatesOnTheNext) {
  DataConfig config = small_config("builtin:stories");
  config.train_documents = 30;
  config.valid_documents = 10;
  const Corpora corpora = load(config, "", 5);
  ASSERT_EQ(corpora.train.documents(), 30);
  ASSERT_EQ(corpora.valid.documents(), 10);
  EXPECT_EQ(decode(corpora, corpora.train, 0), make_story({}, 0));
  EXPECT_EQ(decode(corpora, corpora.train, 29), make_story({}, 29));
  EXPECT_EQ(decode(corpora, corpora.valid, 0), make_story({}, 30));
  EXPECT_EQ(decode(corpora, corpora.valid, 9), make_story({}, 39));
  EXPECT_TRUE(same_tokens(corpora.train, load(config, "", 6).train)) << "the text must not depend on the run's seed";

  const TokenData same = load_tokens(Host(), "builtin:stories", config, corpora.tokenizer, 10, "");
  EXPECT_TRUE(same_tokens(same, corpora.valid));
  const TokenData other = load_tokens(Host(), "builtin:recipes", config, corpora.tokenizer, 4, "");
  ASSERT_EQ(other.documents(), 4);
  EXPECT_EQ(decode(corpora, other, 1), make_story({.seed = 0, .domain = "recipes"}, 31));
}

TEST(Corpora, BuiltinAcrossBlocks) {
  DataConfig config = small_config("builtin:letters");
  config.train_documents = 1024;
  config.valid_documents = 1025;
  const Corpora corpora = load(config);
  ASSERT_EQ(corpora.train.documents(), 1024);
  ASSERT_EQ(corpora.valid.documents(), 1025);
  EXPECT_EQ(decode(corpora, corpora.valid, 1024), make_story({.seed = 0, .domain = "letters"}, 2048));
}

// Documents larger than a tokenization block, and more documents than one block holds.
TEST(Corpora, LongStories) {
  const TemporaryFolder folder;
  std::string line;
  while (line.size() < (5u << 20)) line += story_number(static_cast<int>(line.size() % 977)) + " ";
  const Corpora corpora =
      load(small_config(folder.write("t.txt", line + "\n<|endoftext|>\nshort\n<|endoftext|>\n" + line + "end"),
                        folder.write("v.txt", "x")));
  ASSERT_EQ(corpora.train.documents(), 3);
  EXPECT_EQ(decode(corpora, corpora.train, 0), line);
  EXPECT_EQ(decode(corpora, corpora.train, 1), "short");
  EXPECT_EQ(decode(corpora, corpora.train, 2), line + "end");
}

TEST(Corpora, TinyStories) {
  const std::string shared = SOME_SOURCE_DIR "/../shared/data/tinystories/";
  if (!std::filesystem::exists(shared + "train.txt")) GTEST_SKIP() << "needs ../shared/data/tinystories: not here";
  DataConfig config = small_config(shared + "train.txt", shared + "valid.txt");
  config.tokenizer = "whitespace";
  config.vocab = 4096;
  config.train_documents = 2000;
  config.valid_documents = 500;
  const Corpora corpora = load(config);
  EXPECT_EQ(corpora.train.documents(), 2000);
  EXPECT_EQ(corpora.valid.documents(), 500);
  EXPECT_EQ(corpora.tokenizer.vocab_size(), 4096u);
  for (std::int64_t i = 0; i < 500; ++i) {
    const auto bytes = corpora.valid.bytes(i);
    const auto sum = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    ASSERT_LE(sum, corpora.valid.document_text_bytes(i));
    ASSERT_GE(sum, corpora.valid.document_text_bytes(i) - 4) << "only blanks at the end may be lost";
  }
}

TEST(Corpora, TokenizerFileAndOtherText) {
  const TemporaryFolder folder;
  DataConfig config = small_config(folder.write("t.txt", text_of(0, 20)), folder.write("v.txt", text_of(50, 5)));
  config.tokenizer = "whitespace";
  const Corpora trained = load(config);
  trained.tokenizer.save(folder.file("tokenizer.json"));
  config.tokenizer = folder.file("tokenizer.json");
  const Corpora loaded = load(config);
  EXPECT_TRUE(same_tokens(trained.train, loaded.train));
  const TokenData other = load_tokens(Host(), config.valid, config, loaded.tokenizer, 3, "");
  ASSERT_EQ(other.documents(), 3);
  EXPECT_TRUE(std::ranges::equal(other.ids(2), loaded.valid.ids(2)));
}

TEST(Corpora, ThreadsDoNotChangeTheTokens) {
  const TemporaryFolder folder;
  const DataConfig config = small_config(folder.write("t.txt", text_of(0, 300)));
  const Corpora one = load(config, "", 1, make_host(1)), four = load(config, "", 1, make_host(4));
  EXPECT_TRUE(same_tokens(one.train, four.train));
  EXPECT_TRUE(same_tokens(one.valid, four.valid));
}

TEST(Corpora, ProgressReachesItsEnd) {
  const TemporaryFolder folder;
  const DataConfig config =
      small_config(folder.write("t.txt", text_of(0, 1500)), folder.write("v.txt", text_of(2000, 5)));
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> last;
  load_corpora(Host(), config, 1, "", [&](const std::string& what, std::int64_t done, std::int64_t total) {
    last[what] = {done, total};
  });
  std::int64_t bytes = 0;
  for (int i = 0; i < 1500; ++i) bytes += static_cast<std::int64_t>(story_number(i).size());
  EXPECT_EQ(last.at("tokenizing the training text"), (std::pair{bytes, bytes}));
  EXPECT_EQ(last.at("training the tokenizer"), (std::pair{bytes, bytes}));
  EXPECT_EQ(last.at("reading the validation text"), (std::pair<std::int64_t, std::int64_t>{5, 5}));
}

}  // namespace
}  // namespace some
