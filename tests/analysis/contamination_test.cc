// Overlap of texts with a memory: evaluation documents it has read, one file under two names, a file that has grown.
#include "analysis/contamination.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/pages/memory_view.h"
#include "analysis/read.h"
#include "analysis/tiny_run.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "expect_error.h"
#include "memory/memory_file.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

constexpr TokenId end_of_document = 2;

// A document of `tokens` tokens that occur in no document with another number.
Ids document(std::int32_t number, int tokens) {
  Ids ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 1000 * number);
  ids.push_back(end_of_document);
  return ids;
}

Ids joined(const std::vector<Ids>& parts) {
  Ids out;
  for (const Ids& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::int64_t known_of(const std::vector<Ids>& documents, const std::vector<Ids>& texts, std::int64_t max_documents = 0,
                      std::optional<TokenId> end = end_of_document) {
  Memory memory;
  for (const Ids& text : texts) memory.texts.push_back({"text", text});
  const DocumentOverlap out = document_overlap(memory, make_token_data(documents), max_documents, end);
  EXPECT_EQ(out.of, max_documents > 0 ? max_documents : std::ssize(documents));
  return out.known;
}

TEST(Known, DocumentsAreFoundByWhatTheySay) {
  const Ids a = document(1, 100), b = document(2, 300), c = document(3, 5), d = document(4, 900);
  const std::vector<Ids> all{a, b, c, d};
  EXPECT_EQ(known_of(all, {}), 0);
  EXPECT_EQ(known_of(all, {{}, {7}}), 0);
  EXPECT_EQ(known_of(all, {joined(all)}), 4);
  EXPECT_EQ(known_of(all, {joined({document(9, 50), b, document(8, 40)}), a}), 2);
  EXPECT_EQ(known_of(all, {joined(all)}, 2), 2) << "of the first two";
  EXPECT_EQ(known_of({a, a, b}, {a}), 2);
  // A short document matches only with its ends; a longer one matches at any position.
  EXPECT_EQ(known_of({c}, {c}), 1);
  EXPECT_EQ(known_of({c}, {joined({{77}, c})}), 0);
  EXPECT_EQ(known_of({a}, {joined({{77}, a})}), 1);
  EXPECT_EQ(known_of({c}, {c}, 0, std::nullopt), 0);
  EXPECT_EQ(known_of({a}, {joined({{77}, a})}, 0, std::nullopt), 1);
  // Partial overlap: a sentence shared by two texts does not count, a page of a long document does.
  const auto part_of = [](const Ids& ids, int first, int count) {
    return Ids(ids.begin() + first, ids.begin() + first + count);
  };
  EXPECT_EQ(known_of({a}, {part_of(a, 0, 80)}), 0);
  EXPECT_EQ(known_of({d}, {part_of(d, 0, 200)}), 0);
  EXPECT_EQ(known_of({d}, {part_of(d, 0, 256)}), 1);
  EXPECT_EQ(known_of({d}, {part_of(d, 900 - 256, 256)}), 1);
}

struct Warnings {
  std::vector<LogMessage> warnings;
  OpenedRun open(const std::string& folder) {
    Log log([this](const LogMessage& message) {
      if (message.level == LogLevel::warning) warnings.push_back(message);
    });
    return open_run(folder, {"latest", on_cpu, {}, make_host(0, log)});
  }
};

ReadOptions reading(const std::string& text, const std::string& memory) {
  ReadOptions options;
  options.texts = {text};
  options.memory = memory;
  options.original_tokens = 100;
  options.choices.slots = 200;
  return options;
}

TEST(Known, AMemoryThatHasReadTheValidationTextIsReported) {
  TemporaryFolder folder;
  Warnings log;
  OpenedRun run = log.open(train_tiny(folder));  // validates on the 12 documents after the 60 training documents
  ReadOptions options = reading("builtin:recipes", folder / "memory");
  options.max_documents = 3;
  EXPECT_EQ(read_texts(run, options).original_known.known, 0);
  EXPECT_TRUE(log.warnings.empty());
  options.texts = {"builtin:stories"};  // the same documents
  options.max_documents = 5;
  const ReadReport report = read_texts(run, options);
  EXPECT_EQ(report.original_known.known, 5);
  EXPECT_EQ(report.original_known.of, 12);
  EXPECT_EQ(to_json(report)["original"]["known"], 5);
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_TRUE(has_warning(log.warnings, Code::text_overlap, {"5", "12", "the run's validation text"}));
  // The file shows it too, whoever wrote it.
  const Memory memory = open_memory(run, folder / "memory");
  const DataConfig& config = run.recipe.data;
  const auto known = [&](const std::string& text) {
    return document_overlap(memory, load_tokens(*run.ctx, text, config, run.tokenizer, 0, ""), 0, document_end(run));
  };
  EXPECT_EQ(known("builtin:stories").known, 5);
  EXPECT_EQ(known("builtin:recipes").known, 3);
  EXPECT_EQ(known("builtin:letters").known, 0);
}

// Such a run validates on the end of its only document.
TEST(Known, AFileThatIsReadWholeHoldsTheEndThatWasHeldOut) {
  TemporaryFolder folder;
  std::string book;
  for (int i = 0; i < 400; ++i)
    book += "Line " + std::to_string(i) + " of the book tells of " + std::to_string(i * i) + " ships.\n";
  const std::string path = folder.write("book.txt", book);
  Warnings log;
  OpenedRun run = log.open(
      train_tiny(folder, {"data.train=" + path, "data.valid=", "data.train_documents=0", "data.valid_documents=0"}));
  const ReadReport report = read_texts(run, reading(path, folder / "memory"));
  EXPECT_EQ(report.original_known.known, 1);
  EXPECT_EQ(log.warnings.size(), 1u);
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    train_tiny(folder_);
    run_.emplace(open_tiny(folder_ / "run"));
    path_ = folder_.write("a.txt", story + "\n");
  }
  TextReading read(const std::string& text) {
    ReadOptions options = reading(text, folder_ / "memory");
    options.original_tokens = 0;
    return read_texts(*run_, options).texts.at(0);
  }
  Memory memory() { return open_memory(*run_, folder_ / "memory"); }
  const std::string story = "A fox found a plum. It ate the plum, and the plum was good.";
  TemporaryFolder folder_;
  std::optional<OpenedRun> run_;
  std::string path_;
};

TEST_F(Files, OneFileIsOneTextByWhateverName) {
  EXPECT_GT(read(path_).all().tokens, 0);
  fs::create_symlink("a.txt", folder_ / "link.txt");
  for (const std::string& name : {folder_ / "./a.txt", folder_ / "run/../a.txt", folder_ / "link.txt"}) {
    const TextReading again = read(name);
    EXPECT_EQ(again.all().tokens, 0) << name;
    EXPECT_EQ(again.text, name) << "as the user wrote it";
  }
  ASSERT_EQ(memory().texts.size(), 1u);
  EXPECT_EQ(memory().texts[0].name, path_);
  EXPECT_EQ(text_named(memory(), folder_ / "link.txt"), 0);
  // A copy is a different text.
  folder_.write("b.txt", story);
  EXPECT_GT(read(folder_ / "b.txt").all().tokens, 0);
  EXPECT_EQ(memory().texts.size(), 2u);
  EXPECT_EQ(text_named(memory(), folder_ / "run/../b.txt"), 1);
  // After the file was moved, its text keeps only its name in the memory.
  fs::rename(path_, folder_ / "c.txt");
  EXPECT_EQ(text_named(memory(), folder_ / "./a.txt"), 0);
  EXPECT_ERROR(text_named(memory(), folder_ / "c.txt"), Code::memory_text_unknown, folder_ / "c.txt");
}

TEST_F(Files, AnOlderMemoryThatNamesNoFilesIsGoneOnWith) {
  read(path_);
  Memory old = memory();
  old.texts[0].file.clear();
  save_memory(old, folder_ / "memory");
  EXPECT_EQ(read(folder_ / "./a.txt").all().tokens, 0);
  EXPECT_EQ(memory().texts.size(), 1u);
  EXPECT_FALSE(memory().texts[0].file.empty());
}

TEST_F(Files, WhatAFileHasGrownByIsRead) {
  const std::int64_t first = read(path_).all().tokens;
  const Memory before = memory();
  std::ofstream(path_, std::ios::app) << "Then the fox slept.\n";
  const TextReading second = read(path_);
  EXPECT_EQ(second.from, first + 1);
  EXPECT_GT(second.all().tokens, 3);
  EXPECT_LT(second.all().tokens, first);
  EXPECT_EQ(read(path_).all().tokens, 0);
  std::ofstream(path_, std::ios::app) << "It dreamt of plums.\n<|endoftext|>\nAnother fox came.\n";
  EXPECT_GT(read(path_).all().tokens, 5);
  EXPECT_EQ(read(path_).all().tokens, 0);
  const Memory all = memory();
  ASSERT_EQ(all.texts.size(), 1u);
  const std::string words = run_->tokenizer.decode(all.texts[0].tokens, {.skip_specials = true});
  EXPECT_EQ(words, story + "\nThen the fox slept.\nIt dreamt of plums.Another fox came.");
  // Forgetting the text also removes everything that was appended.
  EXPECT_EQ(slots_in_use(memory_without_text(*run_->model, all, 0, {})), 0);
  // The file now has different content.
  folder_.write("a.txt", "A wolf found a plum.");
  EXPECT_ERROR(read(folder_ / "./a.txt"), Code::text_changed, folder_ / "./a.txt", folder_ / "memory", "1");
  folder_.write("b.txt", story);
  ReadOptions both = reading(folder_ / "b.txt", folder_ / "memory");
  both.texts.push_back(path_);
  EXPECT_ERROR(read_texts(*run_, both), Code::text_changed, path_);
  EXPECT_EQ(read_file(folder_ / "memory"), [&] {
    save_memory(all, folder_ / "same");
    return read_file(folder_ / "same");
  }()) << "what is refused changes nothing";
}

}  // namespace
}  // namespace some
