// The estimate for a text must be close to the counts of a run.
#include "data/outlook.h"

#include <gtest/gtest.h>

#include "data/small_corpora.h"
#include "temporary_folder.h"
#include "text/stories.h"

namespace some {
namespace {

void expect_within(double estimate, double counted, double part, const std::string& what) {
  EXPECT_NEAR(estimate / counted, 1, part) << what << ": " << estimate << " estimated, " << counted << " counted";
}

void expect_close(const DataConfig& config, int seq_len) {
  const DataEstimate estimate = estimate_data(Host(), config, seq_len);
  ASSERT_TRUE(estimate.known) << estimate.unknown_reason;
  const DataUse counted = data_use(load(config).train, seq_len, config.long_documents);
  const std::string what = config.train + ", " + config.tokenizer + ", " + std::to_string(seq_len);
  EXPECT_EQ(estimate.use.documents, counted.documents) << what;
  expect_within(static_cast<double>(estimate.use.tokens), static_cast<double>(counted.tokens), 0.05, what);
  expect_within(static_cast<double>(estimate.use.used), static_cast<double>(counted.used), 0.05, what);
  expect_within(static_cast<double>(estimate.use.sequences), static_cast<double>(counted.sequences), 0.1, what);
}

TEST(Outlook, IsCloseToWhatIsCounted) {
  const TemporaryFolder folder;
  std::string text, book;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::string story = make_story({.seed = 0, .domain = "nature"}, i);
    text += story + "\n<|endoftext|>\n";
    book += story + "\n";
  }
  DataConfig config;
  config.vocab = 1000;
  for (const char* kind : {"bytelevel", "whitespace"}) {
    config.tokenizer = kind;
    for (const int seq_len : {32, 256}) {
      config.train = "builtin:stories";
      config.train_documents = 3000;
      expect_close(config, seq_len);
      config.train_documents = 0;
      config.train = folder.write("text.txt", text);
      expect_close(config, seq_len);
      config.train = folder.write("book.txt", book);
      expect_close(config, seq_len);
    }
  }
  config.long_documents = LongDocuments::cut;
  config.train = folder.write("text.txt", text);
  expect_close(config, 64);
}

}  // namespace
}  // namespace some
