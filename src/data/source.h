// Sources of documents: files, folders, JSON lines and the built-in generator. All are streams that can be opened
// repeatedly, so that a corpus may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_data.h"

namespace some {

// Stores the next document and returns true; false at the end.
using DocumentStream = std::function<bool(std::string&)>;

class DocumentSource {
 public:
  // Takes the first `limit` documents of a file or folder (0: all). For "builtin:<domain>", takes `limit` generated
  // documents starting at number `first`.
  DocumentSource(std::string name, const DataConfig& config, std::int64_t first, std::int64_t limit);
  DocumentStream open(Threads& threads) const;  // `threads` generate built-in documents
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string separator_, field_;
  TextUnit unit_;
  std::string domain_;  // domain of the built-in generator; empty for files
  std::int64_t first_, limit_;
};

bool is_builtin(const std::string& source);

// Part of each document that a set contains.
enum class DocumentPart { whole, beginning, end };

// Documents selected from a source, identified by the hashes of their texts.
struct DocumentSet {
  explicit DocumentSet(DocumentSource from) : source(std::move(from)) {}
  DocumentSource source;
  std::vector<std::uint8_t> chosen;   // one flag per document of the source; empty: all
  std::vector<std::uint64_t> hashes;  // of the selected documents, in order
  std::vector<std::int64_t> sizes;    // bytes of their texts
  DocumentPart part = DocumentPart::whole;
  double held_out_share = 0;  // fraction of a document's text that counts as its end
  std::int64_t most = 0;      // only the first `most` selected documents; 0: all

  DocumentStream open(Threads& threads) const;
  void add(const std::string& document);  // records the next document read from the source
  std::uint64_t text_hash() const;
  std::int64_t bytes() const;
};

// Reads the source to its end once and records every document.
DocumentSet scan_documents(const Host& host, DocumentSource source, const std::string& what,
                           const DataProgress& progress);

// Splits a set of documents at random: round(share * documents) of them go to `valid`, at least one and not all,
// selected by the seed only; the rest goes to `train`. Then keeps only the first `train_documents` and
// `valid_documents` of each (0: all).
struct DocumentSplit {
  DocumentSet train, valid;
};
DocumentSplit split_documents(const DocumentSet& all, double share, std::uint64_t seed, std::int64_t train_documents,
                              std::int64_t valid_documents);
// Returns how many of `documents` documents are held out.
std::int64_t held_out_documents(std::int64_t documents, double share);
// True if `valid_share` is less than one document and documents may be split; then the ends of documents are held out.
bool must_split_documents(std::int64_t documents, const DataConfig& config);
// Splits every document instead: the last `share` of its text goes to `valid`, the beginning to `train`.
DocumentSplit split_ends(const Host& host, const DocumentSet& all, double share, std::int64_t train_documents,
                         std::int64_t valid_documents);
// Returns the offset at which the end of a document begins: at a line, or else between words. Returns the size of the
// text if it is too short to be split.
std::size_t held_out_begin(std::string_view text, double share);

// Returns how many documents of `valid` are also in `train`.
std::int64_t count_overlap(const DocumentSet& train, const DocumentSet& valid);

// Running hash over the documents of a text.
std::uint64_t hash_document(const std::string& document);
std::uint64_t add_to_text_hash(std::uint64_t hash, std::uint64_t story_hash);

}  // namespace some
