#include "data/source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "text/corpus.h"
#include "text/stories.h"

namespace some::data {
namespace {

constexpr std::string_view builtin_prefix = "builtin:";
constexpr std::int64_t progress_every = 500;  // stories

// Pieces of the built-in generator, told by all threads a block at a time.
class BuiltinStories {
 public:
  // The generator's own seed is fixed: runs that differ in their seed alone learn from the same text.
  BuiltinStories(Threads& threads, const std::string& domain, std::int64_t first, std::int64_t end)
      : threads_(threads), options_{.seed = 0, .domain = domain}, first_untold_(first), end_(end) {}

  bool next(std::string& story) {
    if (at_ == block_.size() && !tell_block()) return false;
    story = std::move(block_[at_++]);
    return true;
  }

 private:
  bool tell_block() {
    const std::int64_t count = std::min<std::int64_t>(end_ - first_untold_, 1024);
    block_.resize(static_cast<std::size_t>(count));
    at_ = 0;
    parallel_for(threads_, count, [&](std::int64_t i) {
      block_[static_cast<std::size_t>(i)] = make_story(options_, static_cast<std::uint64_t>(first_untold_ + i));
    });
    first_untold_ += count;
    return count > 0;
  }

  Threads& threads_;
  StoryOptions options_;
  std::int64_t first_untold_, end_;
  std::vector<std::string> block_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_builtin(const std::string& source) { return source.starts_with(builtin_prefix); }

StorySource::StorySource(std::string name, const DataConfig& config, std::int64_t first, std::int64_t limit)
    : name_(std::move(name)), separator_(config.separator), field_(config.field), first_(first), limit_(limit) {
  if (name_.empty()) bad_input("data.train is empty: give a file, a folder or \"builtin:stories\"");
  if (limit < 0) bad_input("{}: {} stories were asked for; 0 means all of them", name_, limit);
  if (!is_builtin(name_)) return;
  if (first > most_stories || limit > most_stories - first)
    bad_input("{}: stories {} to {} were asked for; there are {}", name_, first,
              static_cast<double>(first) + static_cast<double>(limit), most_stories);
  domain_ = name_.substr(builtin_prefix.size());
  const std::vector<std::string> domains = story_domains();
  if (std::find(domains.begin(), domains.end(), domain_) == domains.end())
    bad_input("{}: there is no such built-in text; known are builtin:{}", name_, fmt::join(domains, ", builtin:"));
}

StoryStream StorySource::open(Threads& threads) const {
  if (!domain_.empty()) {
    return [told = std::make_shared<BuiltinStories>(threads, domain_, first_, first_ + limit_)](std::string& story) {
      return told->next(story);
    };
  }
  CorpusOptions options;
  options.paths = {name_};
  options.separator = separator_;
  options.limit = static_cast<std::uint64_t>(limit_);
  if (!field_.empty()) options.field = field_;
  // A field is asked for by name: then a single file is JSON lines whatever it is called. A folder may hold both kinds.
  std::error_code ignored;
  options.json_lines = name_.ends_with(".json") || (!field_.empty() && !std::filesystem::is_directory(name_, ignored));
  auto reader = std::make_shared<CorpusReader>(std::move(options));
  return [reader](std::string& story) { return reader->next(story); };
}

StoryStream StorySet::open(Threads& threads) const {
  return [this, stream = source.open(threads), place = std::size_t{0}](std::string& story) mutable {
    if (chosen.empty()) return stream(story);
    while (place < chosen.size()) {
      if (!stream(story)) return false;
      if (chosen[place++] != 0) return true;
    }
    return false;
  };
}

std::uint64_t hash_story(const std::string& story) { return hash_bytes(story.data(), story.size()); }
std::uint64_t add_to_text_hash(std::uint64_t hash, std::uint64_t story_hash) { return mix64(hash ^ story_hash); }

std::uint64_t StorySet::text_hash() const {
  std::uint64_t hash = 0;
  for (const std::uint64_t story : hashes) hash = add_to_text_hash(hash, story);
  return hash;
}

StorySet scan_stories(const Host& host, StorySource source, const std::string& what, const DataProgress& progress) {
  StorySet set{std::move(source), {}, {}};
  const StoryStream stream = set.source.open(*host.threads);
  std::string story;
  while (stream(story)) {
    set.hashes.push_back(hash_story(story));
    const auto count = static_cast<std::int64_t>(set.hashes.size());
    if (progress && count % progress_every == 0) progress(what, count, 0);
  }
  const auto count = static_cast<std::int64_t>(set.hashes.size());
  if (progress) progress(what, count, count);
  return set;
}

StorySplit split_stories(const StorySet& all, double share, std::uint64_t seed, std::int64_t train_stories,
                         std::int64_t valid_stories) {
  if (!(share > 0 && share < 1))
    bad_input("data.valid_share is {}; it must lie between 0 and 1 where data.valid is empty", share);
  const auto total = static_cast<std::int64_t>(all.hashes.size());
  if (total < 2)
    bad_input("{} has one story: too few to set some aside for validation; give data.valid a file of its own",
              all.source.name());
  const auto wanted = std::clamp<std::int64_t>(std::llround(share * static_cast<double>(total)), 1, total - 1);

  // Selection sampling (Knuth, algorithm S): exactly `wanted` of them, every choice equally likely, in one pass.
  StorySplit split{{all.source, {}, {}}, {all.source, {}, {}}};
  const RandomStream stream = random_stream(seed, "data.valid");
  std::int64_t left = wanted;
  for (std::int64_t i = 0; i < total; ++i) {
    const bool validation = stream.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(total - i)) < left;
    if (validation) left -= 1;
    StorySet& set = validation ? split.valid : split.train;
    const std::int64_t limit = validation ? valid_stories : train_stories;
    if (limit > 0 && static_cast<std::int64_t>(set.hashes.size()) == limit) continue;
    set.chosen.resize(static_cast<std::size_t>(i) + 1, 0);
    set.chosen.back() = 1;
    set.hashes.push_back(all.hashes[static_cast<std::size_t>(i)]);
  }
  return split;
}

std::int64_t count_overlap(const StorySet& train, const StorySet& valid) {
  std::vector<std::uint64_t> sorted = train.hashes;
  std::sort(sorted.begin(), sorted.end());
  return std::count_if(valid.hashes.begin(), valid.hashes.end(),
                       [&](std::uint64_t hash) { return std::binary_search(sorted.begin(), sorted.end(), hash); });
}

}  // namespace some::data
