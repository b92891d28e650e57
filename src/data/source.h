// Where stories come from: files, folders, JSON lines and the built-in generator, all read as a stream that can be
// opened again, so that a corpus may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/rooms.h"
#include "data/token_data.h"

namespace some::data {

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
  std::string domain_;  // of the built-in generator; empty for files
  std::int64_t first_, limit_;
};

bool is_builtin(const std::string& source);

// Stories chosen from a source, known by the hashes of their texts.
struct StorySet {
  StorySource source;
  std::vector<std::uint8_t> chosen;   // by place in the source; empty: all of them
  std::vector<std::uint64_t> hashes;  // of the chosen stories, in order

  StoryStream open(Threads& threads) const;
  std::uint64_t text_hash() const;
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

// How many stories of `valid` also stand in `train`.
std::int64_t count_overlap(const StorySet& train, const StorySet& valid);

// The running hash of a text, story by story.
std::uint64_t hash_story(const std::string& story);
std::uint64_t add_to_text_hash(std::uint64_t hash, std::uint64_t story_hash);

}  // namespace some::data
