// A tokenised corpus and the batches drawn from it (spec 5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "runtime/host.h"
#include "text/corpus.h"
#include "text/tokenizer.h"

namespace some {

// What becomes of a document with more tokens than a sequence has.
enum class LongDocuments {
  split,  // it is read as several sequences, nothing is left out
  cut,    // only its beginning is read, as in the published runs
};

struct DataConfig {                         // [data]; the recipe reader fills it
  std::string train = "builtin:stories";    // file, folder, or "builtin:<domain>"
  std::string valid;                        // empty: valid_share of the training stories
  std::string separator = "<|endoftext|>";  // empty: a file is one document
  std::string field;                        // of JSON lines
  TextUnit unit = TextUnit::document;
  LongDocuments long_documents = LongDocuments::split;
  std::int64_t train_stories = 0, valid_stories = 0;  // 0: all
  double valid_share = 0.1;
  std::string tokenizer = "bytelevel";  // "bytelevel", "whitespace" (trained on the training text) or a tokenizer.json
  int vocab = 8192;
  bool count_pads = false;
  bool eos = true;  // false: stories end without [EOS], as the first prototype had them
};

// How many stories of the built-in generator are used when a recipe does not say.
inline constexpr std::int64_t builtin_train_stories = 20000;
inline constexpr std::int64_t builtin_valid_stories = 1000;

// Token ids of every story, one after another (uncut, with EOS where configured), with the bytes each id stands for.
// Memory-mapped from the cache file when there is one.
class TokenData {
 public:
  std::int64_t stories() const;
  // Of a story, or of its tokens [begin, end): copies, since ids are stored in two bytes where the vocabulary allows
  // it.
  std::vector<std::int32_t> ids(std::int64_t story) const { return ids(story, 0, story_tokens(story)); }
  std::vector<std::int32_t> ids(std::int64_t story, std::int64_t begin, std::int64_t end) const;
  // Bytes of text that each id stands for; 0 for EOS.
  std::vector<std::uint16_t> bytes(std::int64_t story) const { return bytes(story, 0, story_tokens(story)); }
  std::vector<std::uint16_t> bytes(std::int64_t story, std::int64_t begin, std::int64_t end) const;
  std::int64_t story_tokens(std::int64_t story) const;
  std::int64_t story_bytes(std::int64_t story) const;  // bytes of the whole story's text
  std::int64_t tokens() const;
  std::uint64_t hash() const;  // of ids: names the data in a checkpoint
  struct Impl;
  std::shared_ptr<const Impl> impl;
};

struct Corpora {
  Tokenizer tokenizer;
  TokenData train, valid;
};
// Where tokens are kept, in a folder that is made where it is missing; empty: nowhere.
struct TokenCache {
  TokenCache(std::string in, bool not_needed = false) : folder(std::move(in)), spare(not_needed) {}
  TokenCache(const char* in) : folder(in) {}
  std::string folder;
  bool spare;  // where nothing can be written into the folder, they are only held in memory
};

// Reads, splits, trains or loads the tokenizer, tokenises (using the cache, keyed by the hash of text and tokenizer; a
// stale or damaged cache is rebuilt), warns when a validation story also stands in the training text.
// `progress` (may be empty) is called with (what, done, total).
using DataProgress = std::function<void(const std::string&, std::int64_t, std::int64_t)>;
Corpora load_corpora(const Host& host, const DataConfig& config, std::uint64_t seed, const TokenCache& cache,
                     const DataProgress& progress);
// Several at once, with one tokenizer: as the first says and, where it is trained, on the training texts of all.
// `given`: a tokenizer that is at hand, whatever they say.
std::vector<Corpora> load_corpora(const Host& host, const std::vector<DataConfig>& configs, std::uint64_t seed,
                                  const TokenCache& cache, const DataProgress& progress,
                                  const std::optional<Tokenizer>& given = std::nullopt);
// Only tokenises one source with a given tokenizer (evaluation and adaptation on other text).
TokenData load_tokens(const Host& host, const std::string& source, const DataConfig& config, const Tokenizer& tokenizer,
                      std::int64_t limit, const TokenCache& cache);

// Token data from given ids (whole stories, EOS included where wanted). Without byte lengths every id counts one
// byte.
TokenData make_token_data(const std::vector<std::vector<std::int32_t>>& ids,
                          const std::vector<std::vector<std::uint32_t>>& byte_lengths = {});

// A piece of a document that the model reads as one sequence, from position 0 on.
struct Sequence {
  std::int64_t story = 0;
  std::int64_t begin = 0, end = 0;  // tokens of the document
  std::int64_t first_target = 1;    // the first token that is predicted; what stands before it is context
};

// The sequences of a data set, a function of lengths alone. A document of at most seq_len tokens is one sequence, so is
// a longer one that is cut. Where it is split, sequences follow one another at equal distances, and every token but the
// first is predicted in exactly one of them:
//   training    seq_len - 1: each begins with the last token of the one before, so nothing is read twice
//   evaluation  half of seq_len: at least half of a sequence stands before each token that is predicted, but at the
//               document's beginning
enum class Reading { training, evaluation };
class SequenceList {
 public:
  // Of the first `stories` documents (0: all).
  SequenceList(const TokenData& data, int seq_len, LongDocuments long_documents, Reading reading,
               std::int64_t stories = 0);
  std::int64_t size() const { return size_; }
  Sequence operator[](std::int64_t number) const;

 private:
  TokenData data_;
  std::int64_t seq_len_, step_, size_ = 0;
  std::vector<std::int64_t> first_;  // number of each document's first sequence; empty where all have one
};

// What a reading takes of a text. A token that stands in several sequences is used once.
struct DataUse {
  std::int64_t documents = 0, tokens = 0, used = 0, sequences = 0;
  std::int64_t cut() const { return tokens - used; }
};
DataUse use_of(const TokenData& data, int seq_len, LongDocuments long_documents, std::int64_t stories = 0);
// In words: "20 documents, 203114 tokens, all used: 800 sequences of at most 256".
std::string describe(const DataUse& use, int seq_len);

struct BatchOptions {
  int seq_len = 768;
  LongDocuments long_documents = LongDocuments::cut;  // for the loader
  bool count_pads = false;
  bool padded_rows = false;  // lay out padded rows even though padding is not counted (for tests: same loss either way)
  bool only_counted = false;  // its numbers and borders, without the tokens: another rank computes it
  int pad_id = 1, eos_id = 2;
};
Batch make_batch(const TokenData& data, std::span<const Sequence> sequences, const BatchOptions& options);
// Whole documents, cut at seq_len.
Batch make_batch(const TokenData& data, std::span<const std::int64_t> stories, const BatchOptions& options);

// Order of the sequences of an epoch: a permutation from the seed and the epoch alone.
std::vector<std::int64_t> epoch_order(std::int64_t sequences, std::uint64_t seed, std::int64_t epoch);

// Which of `of` batches in a row (those of a step, counted from the beginning of an epoch) are wanted with their
// tokens.
struct BatchShare {
  std::int64_t of = 1, begin = 0, end = 1;
};

// Hands out the training batches in order, prepared by a background thread. Batch number n (from 0 over all epochs) is
// a pure function of (data, seed, n), so a resumed run only says where to start. The rest of an epoch that does not
// fill a batch is dropped.
class BatchLoader {
 public:
  BatchLoader(TokenData data, BatchOptions options, int rows, std::uint64_t seed, std::int64_t first_batch,
              const BatchShare& share = {});
  ~BatchLoader();
  BatchLoader(BatchLoader&&) noexcept;
  std::int64_t batches_per_epoch() const;
  Batch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace some
