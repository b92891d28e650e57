#include "data/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "data/token_data.h"

namespace some {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t pad = 1, eos = 2, none = -1;

// Three documents of three, one and six tokens, each followed by EOS.
TokenData three_documents() {
  return make_token_data({{10, 11, 12, eos}, {20, eos}, {30, 31, 32, 33, 34, 35, eos}},
                         {{3, 4, 5, 0}, {7, 0}, {1, 2, 3, 4, 5, 6, 0}});
}

Batch batch_of(const TokenData& data, const std::vector<std::int64_t>& documents, int seq_len, bool count_pads,
               bool padded_rows = false) {
  BatchOptions options;
  options.seq_len = seq_len;
  options.count_pads = count_pads;
  options.padded_rows = padded_rows;
  return make_batch(data, documents, options);
}

TEST(MakeBatch, RealTokensOnly) {
  const Batch batch = batch_of(three_documents(), {2, 0, 1}, 5, false);
  EXPECT_EQ(batch.tokens, (Ids{30, 31, 32, 33, 34, 10, 11, 12, eos, 20, eos}));
  EXPECT_EQ(batch.targets, (Ids{31, 32, 33, 34, none, 11, 12, eos, none, eos, none}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(batch.offsets, (Ids{0, 5, 9, 11}));
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_EQ(batch.size(), 11);
  EXPECT_EQ(batch.longest, 5);
  EXPECT_EQ(batch.predicted, 8);
  EXPECT_EQ(batch.predicted_non_padding, 8);
  EXPECT_EQ(batch.real_tokens, 11);
  EXPECT_EQ(batch.real_bytes, (2 + 3 + 4 + 5) + (4 + 5) + 0);
  EXPECT_EQ(batch.slots, 15);
  EXPECT_EQ(batch.documents, (std::vector<std::int64_t>{2, 0, 1}));
}

TEST(MakeBatch, PaddedRowsWithPadsCounted) {
  const Batch batch = batch_of(three_documents(), {0, 2, 1}, 5, true);
  EXPECT_EQ(batch.tokens, (Ids{10, 11, 12, eos, pad, 30, 31, 32, 33, 34, 20, eos, pad, pad, pad}));
  EXPECT_EQ(batch.targets, (Ids{11, 12, eos, pad, none, 31, 32, 33, 34, none, eos, pad, pad, pad, none}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(batch.offsets, (Ids{0, 5, 10, 15}));
  EXPECT_EQ(batch.predicted, 12);
  EXPECT_EQ(batch.predicted_non_padding, 8);
  EXPECT_EQ(batch.real_tokens, 11);
  EXPECT_EQ(batch.real_bytes, 23);
  EXPECT_EQ(batch.slots, 15);
  EXPECT_EQ(batch.longest, 5);
}

TEST(MakeBatch, PaddedRowsWithPadsNotCounted) {
  const TokenData data = three_documents();
  const Batch packed = batch_of(data, {0, 2, 1}, 5, false);
  const Batch padded = batch_of(data, {0, 2, 1}, 5, false, true);
  EXPECT_EQ(padded.tokens, (Ids{10, 11, 12, eos, pad, 30, 31, 32, 33, 34, 20, eos, pad, pad, pad}));
  EXPECT_EQ(padded.targets, (Ids{11, 12, eos, none, none, 31, 32, 33, 34, none, eos, none, none, none, none}));
  EXPECT_EQ(padded.predicted, packed.predicted);
  EXPECT_EQ(padded.predicted_non_padding, packed.predicted_non_padding);
  EXPECT_EQ(padded.real_tokens, packed.real_tokens);
  EXPECT_EQ(padded.real_bytes, packed.real_bytes);
}

TEST(MakeBatch, StoryOfExactlyTheLengthKeepsItsEos) {
  for (const bool count_pads : {false, true}) {
    const Batch batch = batch_of(three_documents(), {0}, 4, count_pads);
    EXPECT_EQ(batch.tokens, (Ids{10, 11, 12, eos}));
    EXPECT_EQ(batch.targets, (Ids{11, 12, eos, none}));
  }
}

TEST(MakeBatch, AllStoriesCut) {
  const Batch batch = batch_of(three_documents(), {0, 2}, 2, false);
  EXPECT_EQ(batch.tokens, (Ids{10, 11, 30, 31}));
  EXPECT_EQ(batch.targets, (Ids{11, none, 31, none}));
  EXPECT_EQ(batch.real_bytes, 4 + 2);
}

TEST(MakeBatch, RowsWithNothingToPredict) {
  for (const bool count_pads : {false, true}) {
    const Batch batch = batch_of(three_documents(), {0, 1}, 1, count_pads);
    EXPECT_EQ(batch.tokens, (Ids{10, 20}));
    EXPECT_EQ(batch.targets, (Ids{none, none}));
    EXPECT_EQ(batch.predicted, 0);
    EXPECT_EQ(batch.real_bytes, 0);
    EXPECT_EQ(batch.real_tokens, 2);
  }
}

TEST(MakeBatch, WithoutEos) {
  const TokenData data = make_token_data({{10, 11}, {20}});
  const Batch packed = batch_of(data, {0, 1}, 4, false);
  EXPECT_EQ(packed.targets, (Ids{11, none, none}));
  const Batch padded = batch_of(data, {0, 1}, 4, true);
  EXPECT_EQ(padded.targets, (Ids{11, pad, pad, none, pad, pad, pad, none}));
  EXPECT_EQ(padded.predicted, 6);
  EXPECT_EQ(padded.predicted_non_padding, 1);
}

TEST(MakeBatch, NoRowsAndWrongRows) {
  const Batch batch = batch_of(three_documents(), {}, 4, false);
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_EQ(batch.size(), 0);
  EXPECT_THROW(batch_of(three_documents(), {3}, 4, false), Error);
  EXPECT_THROW(batch_of(three_documents(), {-1}, 4, false), Error);
  EXPECT_THROW(batch_of(three_documents(), {0}, 0, false), Error);
  EXPECT_THROW(batch_of(TokenData(), {0}, 4, false), Error);
}

std::vector<std::vector<std::int64_t>> listed(const SequenceList& sequences) {
  std::vector<std::vector<std::int64_t>> out;
  for (std::int64_t i = 0; i < sequences.size(); ++i) {
    const Sequence one = sequences[i];
    out.push_back({one.document, one.begin, one.end, one.first_target});
  }
  return out;
}

TEST(Sequences, WindowsOfLongDocuments) {
  using Rows = std::vector<std::vector<std::int64_t>>;
  const TokenData data = three_documents();  // 4, 2 and 7 tokens
  const auto rows = [&](int seq_len, LongDocuments how, Reading reading, std::int64_t documents = 0) {
    return listed(SequenceList(data, seq_len, how, reading, documents));
  };
  const Rows whole{{0, 0, 4, 1}, {1, 0, 2, 1}, {2, 0, 7, 1}};
  for (const Reading reading : {Reading::training, Reading::evaluation}) {
    EXPECT_EQ(rows(7, LongDocuments::split, reading), whole);
    EXPECT_EQ(rows(4, LongDocuments::cut, reading), (Rows{{0, 0, 4, 1}, {1, 0, 2, 1}, {2, 0, 4, 1}}));
    EXPECT_EQ(rows(4, LongDocuments::split, reading, 2), (Rows{{0, 0, 4, 1}, {1, 0, 2, 1}}));
  }
  EXPECT_EQ(rows(4, LongDocuments::split, Reading::training),
            (Rows{{0, 0, 4, 1}, {1, 0, 2, 1}, {2, 0, 4, 1}, {2, 3, 7, 4}}));
  EXPECT_EQ(rows(4, LongDocuments::split, Reading::evaluation),
            (Rows{{0, 0, 4, 1}, {1, 0, 2, 1}, {2, 0, 4, 1}, {2, 2, 6, 4}, {2, 4, 7, 6}}));
  EXPECT_THROW(SequenceList(data, 4, LongDocuments::split, Reading::training)[4], Error);
  EXPECT_THROW(SequenceList(data, 0, LongDocuments::split, Reading::training), Error);
}

// For any lengths: every token except a document's first is predicted exactly once; in training only the token at a
// border is read twice; in evaluation half a sequence of context precedes it.
TEST(Sequences, EveryTokenIsPredictedOnceWithEnoughBeforeIt) {
  for (const int tokens : {1, 2, 3, 5, 8, 9, 16, 17, 31, 64, 100}) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
    std::iota(ids.begin(), ids.end(), 10);
    const TokenData data = make_token_data({ids, {5, 6}, ids});
    for (const int seq_len : {2, 3, 4, 5, 8, 33}) {
      for (const Reading reading : {Reading::training, Reading::evaluation}) {
        const SequenceList sequences(data, seq_len, LongDocuments::split, reading);
        BatchOptions options;
        options.seq_len = seq_len;
        std::vector<Sequence> all;
        for (std::int64_t i = 0; i < sequences.size(); ++i) all.push_back(sequences[i]);
        const Batch batch = make_batch(data, all, options);
        std::vector<int> predicted(static_cast<std::size_t>(tokens));
        for (std::int64_t row = 0; row < batch.rows(); ++row) {
          const Sequence& one = all[static_cast<std::size_t>(row)];
          ASSERT_LE(one.end - one.begin, seq_len);
          for (std::int64_t p = one.begin; p < one.end; ++p) {
            const auto at = static_cast<std::size_t>(batch.offsets[static_cast<std::size_t>(row)] + p - one.begin);
            ASSERT_EQ(batch.positions[at], p - one.begin);
            if (batch.targets[at] < 0 || one.document == 1) continue;
            ASSERT_EQ(batch.targets[at], 10 + p + 1);
            predicted[static_cast<std::size_t>(p + 1)] += one.document == 0 ? 1 : 100;
            const std::int64_t before = p + 1 - one.begin;
            if (reading == Reading::evaluation && one.begin > 0) {
              ASSERT_GE(2 * before, seq_len);
            }
          }
        }
        for (int t = 0; t < tokens; ++t)
          ASSERT_EQ(predicted[static_cast<std::size_t>(t)], t == 0 ? 0 : 101) << tokens << " " << seq_len << " " << t;
        if (reading == Reading::training) {
          EXPECT_EQ(batch.real_tokens, data.tokens() + sequences.size() - data.documents());
        }
      }
    }
  }
}

TEST(Sequences, ContextIsPaddedButNotPredicted) {
  BatchOptions options;
  options.seq_len = 4;
  options.count_pads = true;
  const Batch batch = make_batch(three_documents(), std::vector<Sequence>{{2, 2, 6, 4}, {2, 4, 7, 6}}, options);
  EXPECT_EQ(batch.tokens, (Ids{32, 33, 34, 35, 34, 35, eos, pad}));
  EXPECT_EQ(batch.targets, (Ids{none, 34, 35, none, none, eos, pad, none}));
  EXPECT_EQ(batch.predicted_non_padding, 3);
  EXPECT_EQ(batch.predicted, 4);
  EXPECT_EQ(batch.real_bytes, 5 + 6 + 0);
}

TEST(Sequences, UseIsCountedAndReported) {
  const TokenData data = three_documents();
  const DataUse cut = data_use(data, 4, LongDocuments::cut), split = data_use(data, 4, LongDocuments::split),
                first = data_use(data, 4, LongDocuments::split, 2);
  EXPECT_EQ(cut.documents, 3);
  EXPECT_EQ(cut.tokens, 13);
  EXPECT_EQ(cut.used, 10);
  EXPECT_EQ(cut.cut(), 3);
  EXPECT_EQ(cut.sequences, 3);
  EXPECT_EQ(split.used, 13);
  EXPECT_EQ(split.sequences, 4);
  EXPECT_EQ(first.documents, 2);
  EXPECT_EQ(first.tokens, 6);
  EXPECT_EQ(describe(split, 4), "3 documents, 13 tokens: none cut: 4 sequences of at most 4");
  EXPECT_NE(describe(cut, 4).find("10 used, 3 cut"), std::string::npos);
}

TEST(EpochOrder, IsAPermutationOfSeedAndEpoch) {
  const auto order = epoch_order(1000, 7, 3);
  EXPECT_EQ(order, epoch_order(1000, 7, 3));
  EXPECT_NE(order, epoch_order(1000, 7, 4));
  EXPECT_NE(order, epoch_order(1000, 8, 3));
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(epoch_order(0, 1, 0).size(), 0u);
  EXPECT_EQ(epoch_order(1, 1, 0), (std::vector<std::int64_t>{0}));
}

TEST(EpochOrder, EveryPlaceIsReachedEquallyOften) {
  std::vector<std::vector<int>> counts(5, std::vector<int>(5));
  for (std::int64_t epoch = 0; epoch < 5000; ++epoch) {
    const auto order = epoch_order(5, 1, epoch);
    for (std::size_t place = 0; place < 5; ++place) counts[place][static_cast<std::size_t>(order[place])] += 1;
  }
  for (const auto& row : counts)
    for (const int count : row) EXPECT_NEAR(count, 1000, 130);
}

TokenData numbered_stories(int count) {
  std::vector<std::vector<std::int32_t>> ids;
  for (int i = 0; i < count; ++i) ids.push_back({100 + i, 200 + i, eos});
  return make_token_data(ids);
}

TEST(BatchLoader, OrderIsTheSameFromAnyStart) {
  const TokenData data = numbered_stories(23);
  BatchOptions options;
  options.seq_len = 8;
  std::vector<std::vector<std::int64_t>> all;
  {
    BatchLoader loader(data, options, 4, 42, 0);
    EXPECT_EQ(loader.batches_per_epoch(), 5);
    for (int n = 0; n < 20; ++n) all.push_back(loader.next().documents);
  }
  for (const int first : {1, 4, 5, 6, 13}) {
    BatchLoader loader(data, options, 4, 42, first);
    for (std::size_t n = static_cast<std::size_t>(first); n < 20; ++n)
      EXPECT_EQ(loader.next().documents, all[n]) << first;
  }
  // No document occurs twice in an epoch, and the order is that of epoch_order.
  for (int epoch = 0; epoch < 4; ++epoch) {
    const auto order = epoch_order(23, 42, epoch);
    std::vector<std::int64_t> seen;
    for (std::size_t n = 0; n < 5; ++n) {
      const auto& documents = all[static_cast<std::size_t>(epoch) * 5 + n];
      seen.insert(seen.end(), documents.begin(), documents.end());
    }
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), order.begin()));
  }
}

TEST(BatchLoader, SplitDocumentsAreReadWhole) {
  std::vector<std::int32_t> ids(50);
  std::iota(ids.begin(), ids.end(), 100);
  const TokenData data = make_token_data({ids});
  BatchOptions options;
  options.seq_len = 8;
  EXPECT_THROW(BatchLoader(data, options, 2, 1, 0), Error);  // cut: one sequence
  options.long_documents = LongDocuments::split;
  BatchLoader loader(data, options, 2, 1, 0);
  ASSERT_EQ(loader.batches_per_epoch(), 3);  // seven sequences; the odd one is left for another epoch
  std::vector<int> seen(50);
  for (int i = 0; i < 3; ++i) {
    for (const std::int32_t target : loader.next().targets) {
      if (target >= 0) seen[static_cast<std::size_t>(target - 100)] += 1;
    }
  }
  EXPECT_LE(*std::max_element(seen.begin(), seen.end()), 1);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 6 * 7);
}

TEST(BatchLoader, MovesAndStopsCleanly) {
  BatchOptions options;
  options.seq_len = 8;
  for (int i = 0; i < 50; ++i) {
    BatchLoader loader(numbered_stories(9), options, 2, 1, 0);
    if (i % 2 == 0) loader.next();
    BatchLoader moved(std::move(loader));
    if (i % 3 == 0) {
      EXPECT_EQ(moved.next().rows(), 2);
    }
  }
}

TEST(BatchLoader, FaultsInTheThreadComeOut) {
  BatchOptions options;
  options.seq_len = 0;  // make_batch rejects it
  BatchLoader loader(numbered_stories(9), options, 2, 1, 0);
  EXPECT_THROW(loader.next(), Error);
  EXPECT_THROW(loader.next(), Error);
}

TEST(BatchLoader, TooFewStoriesAreReportedAtOnce) {
  EXPECT_THROW(BatchLoader(numbered_stories(3), {}, 4, 1, 0), Error);
  EXPECT_THROW(BatchLoader(numbered_stories(3), {}, 0, 1, 0), Error);
  EXPECT_THROW(BatchLoader(TokenData(), {}, 1, 1, 0), Error);
}

}  // namespace
}  // namespace some
