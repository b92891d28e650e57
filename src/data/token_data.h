// A tokenized corpus and the batches drawn from it (spec 5).
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

// Treatment of documents with more tokens than seq_len.
enum class LongDocuments {
  split,  // read as several sequences; nothing is dropped
  cut,    // truncated to the beginning, as in the published runs
};

struct DataConfig {                         // [data]; filled by the recipe reader
  std::string train = "builtin:stories";    // file, folder, or "builtin:<domain>"
  std::string valid;                        // empty: valid_share of the training documents
  std::string separator = "<|endoftext|>";  // empty: each file is one document
  std::string field;                        // text field of JSON lines
  TextUnit unit = TextUnit::document;
  LongDocuments long_documents = LongDocuments::split;
  std::int64_t train_documents = 0, valid_documents = 0;  // 0: all
  double valid_share = 0.1;
  std::string tokenizer = "bytelevel";  // "bytelevel", "whitespace" (trained on the training text) or a tokenizer.json
  int vocab = 8192;
  bool count_pads = false;
  bool eos = true;  // false: documents end without [EOS], as in the first prototype
};

// Default numbers of documents of the built-in generator.
inline constexpr std::int64_t builtin_train_documents = 20000;
inline constexpr std::int64_t builtin_valid_documents = 1000;

// Token ids of all documents, concatenated (untruncated, with EOS if configured), with the number of text bytes per id.
// Memory-mapped from the cache file if there is one.
class TokenData {
 public:
  std::int64_t documents() const;
  // Returns copies of the ids of a document, or of its tokens [begin, end). Copies, because ids are stored in two bytes
  // if the vocabulary size allows it.
  std::vector<std::int32_t> ids(std::int64_t document) const { return ids(document, 0, document_tokens(document)); }
  std::vector<std::int32_t> ids(std::int64_t document, std::int64_t begin, std::int64_t end) const;
  // Returns the bytes of text per id; 0 for EOS.
  std::vector<std::uint16_t> bytes(std::int64_t document) const {
    return bytes(document, 0, document_tokens(document));
  }
  std::vector<std::uint16_t> bytes(std::int64_t document, std::int64_t begin, std::int64_t end) const;
  std::int64_t document_tokens(std::int64_t document) const;
  std::int64_t document_text_bytes(std::int64_t document) const;  // bytes of the document's text
  std::int64_t tokens() const;
  std::uint64_t hash() const;  // hash of the ids, which identifies the data in a checkpoint
  struct Impl;
  std::shared_ptr<const Impl> impl;
};

struct Corpora {
  Tokenizer tokenizer;
  TokenData train, valid;
};
// Folder of the token cache, created if missing; empty: no cache.
struct TokenCache {
  TokenCache(std::string in, bool not_needed = false) : folder(std::move(in)), spare(not_needed) {}
  TokenCache(const char* in) : folder(in) {}
  std::string folder;
  bool spare;  // if the folder is not writable, keep tokens in memory only instead of failing
};

// Reads and splits the text, trains or loads the tokenizer, and tokenizes. The token cache is keyed by the hashes of
// text and tokenizer; a stale or damaged cache is rebuilt. Warns if a validation document is also in the training text.
// `progress` (may be empty) is called with (what, done, total).
using DataProgress = std::function<void(const std::string&, std::int64_t, std::int64_t)>;
Corpora load_corpora(const Host& host, const DataConfig& config, std::uint64_t seed, const TokenCache& cache,
                     const DataProgress& progress);
// The same for several data sets with one tokenizer. The first data set configures it; a trained tokenizer uses the
// training texts of all data sets. `given`: an existing tokenizer, which overrides the configuration.
std::vector<Corpora> load_corpora(const Host& host, const std::vector<DataConfig>& configs, std::uint64_t seed,
                                  const TokenCache& cache, const DataProgress& progress,
                                  const std::optional<Tokenizer>& given = std::nullopt);
// Tokenizes one source with a given tokenizer (for evaluation and adaptation on other text).
TokenData load_tokens(const Host& host, const std::string& source, const DataConfig& config, const Tokenizer& tokenizer,
                      std::int64_t limit, const TokenCache& cache);

// Builds token data from ids (whole documents, with EOS if desired). Without byte lengths every id counts as one byte.
TokenData make_token_data(const std::vector<std::vector<std::int32_t>>& ids,
                          const std::vector<std::vector<std::uint32_t>>& byte_lengths = {});

// A piece of a document that the model reads as one sequence, with positions starting at 0.
struct Sequence {
  std::int64_t document = 0;
  std::int64_t begin = 0, end = 0;  // token range in the document
  // Index in the document of the first predicted token; the tokens before it are context.
  std::int64_t first_target = 1;
};

// The sequences of a data set, a function of the document lengths only. A document of at most seq_len tokens is one
// sequence, as is a longer document that is cut. A split document becomes sequences at equal distances (strides), and
// every token except the first is predicted in exactly one of them:
//   training    stride seq_len - 1: each sequence begins with the last token of the previous one, without further
//               overlap
//   evaluation  stride seq_len / 2: at least half a sequence of context precedes each predicted token, except at the
//               beginning of the document
enum class Reading { training, evaluation };
class SequenceList {
 public:
  // Covers the first `max_documents` documents (0: all).
  SequenceList(const TokenData& data, int seq_len, LongDocuments long_documents, Reading reading,
               std::int64_t max_documents = 0);
  std::int64_t size() const { return size_; }
  Sequence operator[](std::int64_t number) const;

 private:
  TokenData data_;
  std::int64_t seq_len_, step_, size_ = 0;
  std::vector<std::int64_t> first_;  // index of each document's first sequence; empty if every document is one sequence
};

// Counts what a data set uses of a text. A token in several sequences counts once.
struct DataUse {
  std::int64_t documents = 0, tokens = 0, used = 0, sequences = 0;
  std::int64_t cut() const { return tokens - used; }
};
DataUse data_use(const TokenData& data, int seq_len, LongDocuments long_documents, std::int64_t max_documents = 0);
// Formats as "20 documents, 203114 tokens, all used, none cut: 800 sequences of at most 256".
std::string describe(const DataUse& use, int seq_len);

struct BatchOptions {
  int seq_len = 768;
  LongDocuments long_documents = LongDocuments::cut;  // as used by the loader
  bool count_pads = false;
  bool padded_rows = false;  // pad the rows even though padding is not counted (for tests: the loss is the same)
  bool counts_only = false;  // only counts and offsets, no tokens: another rank computes this batch
  int pad_id = 1, eos_id = 2;
};
Batch make_batch(const TokenData& data, std::span<const Sequence> sequences, const BatchOptions& options);
// The same for whole documents, cut at seq_len.
Batch make_batch(const TokenData& data, std::span<const std::int64_t> documents, const BatchOptions& options);

// Returns the order of the sequences in an epoch: a permutation that depends only on the seed and the epoch.
std::vector<std::int64_t> epoch_order(std::int64_t sequences, std::uint64_t seed, std::int64_t epoch);

// Selects batches [begin, end) of every `of` consecutive batches (those of a step, counted from the start of an epoch).
// Only these are produced with their tokens.
struct BatchShare {
  std::int64_t of = 1, begin = 0, end = 1;
};

// Returns the training batches in order, prepared by a background thread. Batch number n (from 0, over all epochs) is a
// pure function of (data, seed, n), so a resumed run only passes its first batch. Sequences at the end of an epoch that
// do not fill a batch are dropped.
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
