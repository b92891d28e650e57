#include "text/corpus.h"

#include <chrono>

#include "expect_error.h"
#include "text_helpers.h"

namespace some {
namespace {

using Stories = std::vector<std::string>;

class Corpus : public testing::TextFiles {
 protected:
  static Stories read(CorpusOptions options) {
    CorpusReader reader(std::move(options));
    Stories documents;
    for (std::string story; reader.next(story);) documents.push_back(story);
    return documents;
  }
  static Stories read_path(const std::string& path) { return read(CorpusOptions{.paths = {path}}); }
};

TEST_F(Corpus, PlainText) {
  EXPECT_EQ(read_path(write("a.txt", "One.\nTwo.\n<|endoftext|>\n\n\nThree.\n\nFour.\n\n<|endoftext|>\nFive.")),
            (Stories{"One.\nTwo.", "Three.\n\nFour.", "Five."}));
  EXPECT_EQ(read_path(write("b.txt", "no separator at all")), Stories{"no separator at all"});
  EXPECT_EQ(read_path(write("c.txt", "x")), Stories{"x"});
  // Only a separate line is a separator; blanks after it are ignored.
  EXPECT_EQ(read_path(write("d.txt", "a <|endoftext|> b\n<|endoftext|> \t\n <|endoftext|>\n")),
            (Stories{"a <|endoftext|> b", " <|endoftext|>"}));
  EXPECT_EQ(read({.paths = {write("e.txt", "a\n---\nb\n<|endoftext|>\nc\n")}, .separator = "---"}),
            (Stories{"a", "b\n<|endoftext|>\nc"}));
}

TEST_F(Corpus, EmptyStoriesAreCountedAndLeftOut) {
  CorpusReader reader(
      {.paths = {write("a.txt",
                       "<|endoftext|>\na\n<|endoftext|>\n \t\n<|endoftext|>\n\n<|endoftext|>\nb\n<|endoftext|>\n")}});
  std::string story;
  ASSERT_TRUE(reader.next(story));
  EXPECT_EQ(story, "a");
  ASSERT_TRUE(reader.next(story));
  EXPECT_EQ(story, "b");
  EXPECT_FALSE(reader.next(story));
  EXPECT_FALSE(reader.next(story));
  EXPECT_EQ(reader.documents(), 2u);
  EXPECT_EQ(reader.empty_documents(), 3u);
  EXPECT_EQ(reader.bytes(), 2u);
}

TEST_F(Corpus, LineEndsDoNotMatter) {
  const std::string unix_text = "One.\nTwo.\n<|endoftext|>\nThree \u00E9.\n<|endoftext|>\n";
  std::string dos_text = "\xEF\xBB\xBF";
  for (const char c : unix_text) dos_text += c == '\n' ? std::string("\r\n") : std::string(1, c);
  CorpusReader from_unix({.paths = {write("unix.txt", unix_text)}});
  CorpusReader from_dos({.paths = {write("dos.txt", dos_text)}});
  std::string a, b;
  while (from_unix.next(a)) {
    ASSERT_TRUE(from_dos.next(b));
    EXPECT_EQ(a, b);
  }
  EXPECT_FALSE(from_dos.next(b));
  EXPECT_EQ(from_unix.documents(), 2u);
  EXPECT_EQ(from_unix.content_hash(), from_dos.content_hash());
}

TEST_F(Corpus, HashKnowsTextAndBoundaries) {
  const auto hash = [&](std::string_view text) {
    CorpusReader reader({.paths = {write("h.txt", text)}});
    for (std::string story; reader.next(story);) {
    }
    return reader.content_hash();
  };
  const std::uint64_t first = hash("a\n<|endoftext|>\nb c\n");
  EXPECT_EQ(first, hash("\na\n<|endoftext|>\n<|endoftext|>\nb c"));
  EXPECT_NE(first, hash("b c\n<|endoftext|>\na\n"));
  EXPECT_NE(first, hash("a\nb c\n"));
  EXPECT_NE(first, hash("a\n<|endoftext|>\nb d\n"));
}

TEST_F(Corpus, Limit) {
  const std::string path = write("a.txt", "1\n<|endoftext|>\n\n<|endoftext|>\n2\n<|endoftext|>\n3\n");
  EXPECT_EQ(read({.paths = {path}, .limit = 2}), (Stories{"1", "2"}));
  EXPECT_EQ(read({.paths = {path}, .limit = 9}), (Stories{"1", "2", "3"}));
  // Text after the limit is not read.
  const std::string bad_end = write("b.txt", "1\n<|endoftext|>\n2\n<|endoftext|>\n\xFF\n");
  EXPECT_EQ(read({.paths = {bad_end}, .limit = 2}), (Stories{"1", "2"}));
}

TEST_F(Corpus, JsonLines) {
  const std::string path = write(
      "a.jsonl", "{\"text\": \"One\\nline.\", \"n\": 1}\r\n\n{\"text\": \"\"}\n{\"n\": 2, \"text\": \"\\u00e9\"}");
  EXPECT_EQ(read_path(path), (Stories{"One\nline.", "\u00E9"}));
  EXPECT_EQ(read({.paths = {write("b.NDJSON", "{\"story\":\"x\"}\n")}, .field = "story"}), Stories{"x"});
  EXPECT_EQ(read({.paths = {write("c.txt", "{\"text\":\"y\"}\n")}, .json_lines = true}), Stories{"y"});
  EXPECT_ERROR((read({.paths = {path}, .field = "story"})), Code::text_field_missing, path, "1", "story");
  for (const char* bad : {"{\"text\": \"x\"}\n[1]\n", "{\"text\": \"x\"}\n{\"text\": 5}\n", "{\"text\": \"x\"}\n17\n"})
    EXPECT_ERROR(read_path(write("bad.jsonl", bad)), Code::text_field_missing, this->path("bad.jsonl"), "2") << bad;
  for (const char* bad : {"{\"text\": \"x\"}\n{\"text\": \"\n", "{\"text\": \"x\"}\n{\"text\": \"\\ud800\"}\n"})
    EXPECT_ERROR(read_path(write("bad.jsonl", bad)), Code::json_syntax, this->path("bad.jsonl") + ":2") << bad;
}

TEST_F(Corpus, Folder) {
  write("in/b.txt", "b1\n<|endoftext|>\nb2\n");
  write("in/a.jsonl", "{\"text\": \"a1\"}\n");
  write("in/sub/c.txt", "c1");
  write("in/.hidden", "\xFF");
  write("in/.git/x", "\xFF");
  write("in/empty.txt", "");
  EXPECT_EQ(read_path(path("in")), (Stories{"a1", "b1", "b2", "c1"}));
  EXPECT_EQ(read({.paths = {path("in/b.txt"), path("in/a.jsonl")}}), (Stories{"b1", "b2", "a1"}));
}

TEST_F(Corpus, WhatCannotBeReadIsNotLeftOut) {
  write("in/a.txt", "a1");
  std::filesystem::create_symlink("not mounted", path("in/b.txt"));
  EXPECT_ERROR(read_path(path("in")), Code::link_broken, path("in/b.txt"));
  std::filesystem::create_symlink("not mounted", path("away"));
  EXPECT_ERROR(read_path(path("away")), Code::link_broken, path("away"));
  // A link to a folder is not followed: it may form a cycle.
  std::filesystem::remove(path("in/b.txt"));
  std::filesystem::create_symlink(".", path("in/again"));
  EXPECT_EQ(read_path(path("in")), (Stories{"a1"}));
}

TEST_F(Corpus, BadUtf8IsReportedWithFileAndOffset) {
  const std::string text = "fine\nalso \u00E9 fine \xE9 not\nmore\n";
  EXPECT_ERROR(read_path(write("bad.txt", text)), Code::text_not_utf8, path("bad.txt"), "233", "18", "2");
  EXPECT_EQ(text.find('\xE9', 13), 18u);
  // A character cut off at the end of the file, and one several blocks into the file.
  EXPECT_ERROR(read_path(write("cut.txt", "ab\xE2\x82")), Code::text_not_utf8, path("cut.txt"), "226", "2", "1");
  std::string far(3000000, 'x');
  far[2500000] = '\n';
  far[2700000] = '\x80';
  EXPECT_ERROR(read_path(write("far.txt", far)), Code::text_not_utf8, path("far.txt"), "128", "2700000", "2");
}

TEST_F(Corpus, NothingToRead) {
  EXPECT_ERROR(read_path(write("separators.txt", "<|endoftext|>\n<|endoftext|>\n\n<|endoftext|>\n")), Code::text_empty,
               path("separators.txt"));
  EXPECT_ERROR(read_path(write("empty.txt", "")), Code::text_empty, path("empty.txt"));
  EXPECT_ERROR(read_path(write("blank.txt", "\r\n \r\n")), Code::text_empty, path("blank.txt"));
  EXPECT_ERROR(read_path(path("missing.txt")), Code::file_not_found, path("missing.txt"));
  std::filesystem::create_directory(path("bare"));
  EXPECT_ERROR(read_path(path("bare")), Code::folder_empty, path("bare"));
  EXPECT_ERROR(read(CorpusOptions{}), Code::argument_missing);
  const std::string x = write("x.txt", "x");
  for (const char* separator : {" ", "a\nb"})
    EXPECT_ERROR((read({.paths = {x}, .separator = separator})), Code::setting_out_of_range, "data.separator");
}

TEST_F(Corpus, AFileWithoutSeparatorsIsOneDocument) {
  const std::string text = "First line.\n\n<|endoftext|>\n  Indented.\n";
  EXPECT_EQ(read({.paths = {write("a.txt", text)}, .separator = ""}),
            (Stories{"First line.\n\n<|endoftext|>\n  Indented."}));
  // Each file of a folder ends its document.
  write("book/1.txt", "one\n\nmore of one\n");
  write("book/2.txt", "two");
  EXPECT_EQ(read({.paths = {path("book")}}), (Stories{"one\n\nmore of one", "two"}));
}

TEST_F(Corpus, LinesAndParagraphsAreUnits) {
  const std::string text = "\n\nfirst\r\n second\n \t\n\nthird\n<|endoftext|>\nfourth\n\n";
  const std::string file = write("u.txt", text);
  EXPECT_EQ(read({.paths = {file}, .unit = TextUnit::line}), (Stories{"first", " second", "third", "fourth"}));
  EXPECT_EQ(read({.paths = {file}, .unit = TextUnit::paragraph}), (Stories{"first\n second", "third", "fourth"}));
  EXPECT_EQ(read({.paths = {file}, .separator = "", .unit = TextUnit::paragraph}),
            (Stories{"first\n second", "third\n<|endoftext|>\nfourth"}));
  EXPECT_EQ(read({.paths = {file}, .unit = TextUnit::line, .limit = 2}), (Stories{"first", " second"}));
}

TEST_F(Corpus, FoldersMixKindsAndUnitsReachIntoJson) {
  write("mixed/a.txt", "one\ntwo\n\nthree");
  write("mixed/b.jsonl", "{\"text\": \"four\\r\\nfive\\n\\n\\nsix\"}\n\n{\"text\": \" \"}\n{\"text\": \"seven\"}\n");
  write("mixed/c.json", "{\"text\": \"eight\"}");
  const std::string folder = path("mixed");
  EXPECT_EQ(read({.paths = {folder}}), (Stories{"one\ntwo\n\nthree", "four\r\nfive\n\n\nsix", "seven", "eight"}));
  EXPECT_EQ(read({.paths = {folder}, .unit = TextUnit::line}),
            (Stories{"one", "two", "three", "four", "five", "six", "seven", "eight"}));
  EXPECT_EQ(read({.paths = {folder}, .unit = TextUnit::paragraph}),
            (Stories{"one\ntwo", "three", "four\nfive", "six", "seven", "eight"}));
}

TEST_F(Corpus, FiftyMegabytesInOneLine) {
  std::string text;
  while (text.size() < (50u << 20)) text += "a long line that never seems to end, na\u00EFve or not; ";
  const auto begin = std::chrono::steady_clock::now();
  const Stories documents = read_path(write("long.txt", "first\n<|endoftext|>\n" + text + "\n<|endoftext|>\nlast"));
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_TRUE(documents[1] == text);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 60.0);
}

TEST_F(Corpus, TinyStories) {
  SOME_NEEDS_SHARED("data/tinystories/train.txt");
  CorpusReader reader({.paths = {testing::shared_path("data/tinystories/train.txt")}});
  for (std::string story; reader.next(story);) {
    ASSERT_FALSE(story.empty());
    ASSERT_NE(story.front(), '\n');
    ASSERT_NE(story.back(), '\n');
  }
  EXPECT_EQ(reader.documents(), 20000u);
  EXPECT_EQ(reader.empty_documents(), 0u);
}

}  // namespace
}  // namespace some
