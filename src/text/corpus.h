// Corpora: a stream of stories from text files, JSON lines and folders of these.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace some {

// What one story (one document) of a text is.
enum class TextUnit {
  document,   // what stands between two separators, or the whole file; the text of one JSON line
  line,       // each line of these that is not blank
  paragraph,  // lines with blank ones around them
};

struct CorpusOptions {
  // Files and folders, read in this order; the files of a folder (and of folders in it) in the order of their names,
  // hidden ones left out. *.jsonl, *.ndjson and *.json are JSON lines, everything else is plain text.
  std::vector<std::string> paths;
  // Plain text: a line that is this and nothing else stands between two stories. Empty: there is no such line, a file
  // is one document.
  std::string separator = "<|endoftext|>";
  TextUnit unit = TextUnit::document;
  // JSON lines: the name of the string that is the story.
  std::string field = "text";
  // Every file is JSON lines, whatever its name.
  bool json_lines = false;
  // Only the first `limit` stories; 0 for all.
  std::uint64_t limit = 0;
};

// Reads one story at a time, so that a corpus may be larger than memory. Text is checked to be UTF-8; line ends become
// "\n"; newlines at both ends of a plain-text story are cut off; stories of nothing but whitespace are left out. A
// story is held in memory whole.
class CorpusReader {
 public:
  // Fails when a path is missing, cannot be read, or is a folder without files.
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();
  CorpusReader(CorpusReader&&) noexcept;
  CorpusReader& operator=(CorpusReader&&) noexcept;

  // The next story, or false at the end. A corpus that ends without a single story is bad input.
  bool next(std::string& story);

  std::uint64_t stories() const;        // given out so far
  std::uint64_t empty_stories() const;  // left out so far
  std::uint64_t bytes() const;          // of the stories given out so far
  // xxh64 over the stories given out so far and their boundaries: the key of caches made from them.
  std::uint64_t content_hash() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace some
