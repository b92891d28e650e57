// Where stories come from: files, folders, JSON lines and the built-in generator, all read as a stream that can be
// opened again, so that a corpus may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_data.h"

namespace some {

// Gives one story after another, and false at the end.
using StoryStream = std::function<bool(std::string&)>;

class StorySource {
 public:
  // The first `limit` stories of a file or a folder (0: all). For "builtin:<domain>" the `limit` pieces from number
  // `first` on.
  StorySource(std::string name, const DataConfig& config, std::int64_t first, std::int64_t limit);
  StoryStream open(Threads& threads) const;  // they tell the built-in pieces
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string separator_, field_;
  TextUnit unit_;
  std::string domain_;  // of the built-in generator; empty for files
  std::int64_t first_, limit_;
};

bool is_builtin(const std::string& source);

// Which part of each document a set has.
enum class StoryPart { whole, beginning, end };

// Stories chosen from a source, known by the hashes of their texts.
struct StorySet {
  explicit StorySet(StorySource from) : source(std::move(from)) {}
  StorySource source;
  std::vector<std::uint8_t> chosen;   // by place in the source; empty: all of them
  std::vector<std::uint64_t> hashes;  // of the chosen stories, in order
  std::vector<std::int64_t> sizes;    // bytes of their texts
  StoryPart part = StoryPart::whole;
  double end_share = 0;   // of a document's text that is its end
  std::int64_t most = 0;  // only the first so many of what is left; 0: all

  StoryStream open(Threads& threads) const;
  void add(const std::string& story);  // the next one, read from the source
  std::uint64_t text_hash() const;
  std::int64_t bytes() const;
};

// Reads the source once to its end.
StorySet scan_stories(const Host& host, StorySource source, const std::string& what, const DataProgress& progress);

// Parts a set in two: round(share * stories) of them, at least one and not all, chosen by the seed alone, and the rest.
// Then only the first `train_stories` and `valid_stories` of each (0: all).
struct StorySplit {
  StorySet train, valid;
};
StorySplit split_stories(const StorySet& all, double share, std::uint64_t seed, std::int64_t train_stories,
                         std::int64_t valid_stories);
// Whether the share is less than one document, so that the ends of documents must do.
bool holds_out_ends(std::int64_t documents, const DataConfig& config);
// Parts every document instead: its beginning, and its end with this share of the text.
StorySplit split_ends(const Host& host, const StorySet& all, double share, std::int64_t train_stories,
                      std::int64_t valid_stories);
// Where the end of a document begins: at a line, or else between words; its size where it is too short to be parted.
std::size_t end_begin(std::string_view text, double share);

// How many stories of `valid` also stand in `train`.
std::int64_t count_overlap(const StorySet& train, const StorySet& valid);

// The running hash of a text, story by story.
std::uint64_t hash_story(const std::string& story);
std::uint64_t add_to_text_hash(std::uint64_t hash, std::uint64_t story_hash);

}  // namespace some
