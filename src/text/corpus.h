// Corpora: a stream of documents from text files, JSON lines and folders of both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace some {

// Unit of text that counts as one document.
enum class TextUnit {
  document,   // text between two separators, or the whole file; the text of one JSON line
  line,       // each nonblank line of that text
  paragraph,  // nonblank lines, delimited by blank lines
};

struct CorpusOptions {
  // Files and folders, read in this order. The files of a folder (recursively) are read in the order of their names,
  // without hidden files. *.jsonl, *.ndjson and *.json are JSON lines; every other file is plain text.
  std::vector<std::string> paths;
  // Plain text: a line with exactly this text separates two documents. Empty: no separator; each file is one document.
  std::string separator = "<|endoftext|>";
  TextUnit unit = TextUnit::document;
  // JSON lines: the key of the text.
  std::string field = "text";
  // Treat every file as JSON lines, whatever its name.
  bool json_lines = false;
  // Read only the first `limit` documents; 0 = all.
  std::uint64_t limit = 0;
};

// Reads one document at a time, so that a corpus may be larger than memory; each document is held in memory completely.
// Text must be valid UTF-8. Line ends become "\n"; newlines at both ends of a plain-text document are removed;
// documents of only whitespace are skipped.
class CorpusReader {
 public:
  // Fails if a path is missing, cannot be read, or is a folder without files.
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();
  CorpusReader(CorpusReader&&) noexcept;
  CorpusReader& operator=(CorpusReader&&) noexcept;

  // Stores the next document and returns true; false at the end. A corpus without a single document is bad input.
  bool next(std::string& story);

  std::uint64_t documents() const;        // returned so far
  std::uint64_t empty_documents() const;  // skipped so far
  std::uint64_t bytes() const;            // of the documents returned so far
  // Returns the xxh64 hash of the documents returned so far and their boundaries: the key of caches derived from them.
  std::uint64_t content_hash() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace some
