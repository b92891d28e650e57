#include "data/source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/random.h"
#include "text/corpus.h"
#include "text/stories.h"

namespace some {
namespace {

constexpr std::string_view builtin_prefix = "builtin:";
constexpr std::int64_t progress_every = 500;  // documents

// Documents of the built-in generator, generated in blocks by all threads.
class BuiltinStories {
 public:
  // The generator has a fixed seed of its own: runs that differ only in their seed use the same text.
  BuiltinStories(Threads& threads, const std::string& domain, std::int64_t first, std::int64_t end)
      : threads_(threads), options_{.seed = 0, .domain = domain}, next_index_(first), end_(end) {}

  bool next(std::string& document) {
    if (at_ == block_.size() && !generate_block()) return false;
    document = std::move(block_[at_++]);
    return true;
  }

 private:
  bool generate_block() {
    const std::int64_t count = std::min<std::int64_t>(end_ - next_index_, 1024);
    block_.resize(static_cast<std::size_t>(count));
    at_ = 0;
    parallel_for(threads_, count, [&](std::int64_t i) {
      block_[static_cast<std::size_t>(i)] = make_story(options_, static_cast<std::uint64_t>(next_index_ + i));
    });
    next_index_ += count;
    return count > 0;
  }

  Threads& threads_;
  StoryOptions options_;
  std::int64_t next_index_, end_;
  std::vector<std::string> block_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_builtin(const std::string& source) { return source.starts_with(builtin_prefix); }

DocumentSource::DocumentSource(std::string name, const DataConfig& config, std::int64_t first, std::int64_t limit)
    : name_(std::move(name)),
      separator_(config.separator),
      field_(config.field),
      unit_(config.unit),
      first_(first),
      limit_(limit) {
  if (name_.empty())
    bad_input(Code::setting_out_of_range, "{} is empty; set a file, a folder or \"builtin:stories\"", "data.train");
  if (limit < 0)
    bad_input(Code::setting_out_of_range, "{}: {} documents requested; must be >= 0 (0 = all)", name_, limit);
  if (!is_builtin(name_)) return;
  if (first > max_stories || limit > max_stories - first)
    bad_input(Code::setting_out_of_range, "{}: documents {} to {} requested, but there are {}", name_, first,
              static_cast<double>(first) + static_cast<double>(limit), max_stories);
  domain_ = name_.substr(builtin_prefix.size());
  const std::vector<std::string> domains = story_domains();
  if (std::find(domains.begin(), domains.end(), domain_) == domains.end())
    bad_input(Code::text_unknown, "{}: unknown built-in text; known: builtin:{}", name_,
              fmt::join(domains, ", builtin:"));
}

DocumentStream DocumentSource::open(Threads& threads) const {
  if (!domain_.empty()) {
    return [told = std::make_shared<BuiltinStories>(threads, domain_, first_, first_ + limit_)](std::string& document) {
      return told->next(document);
    };
  }
  CorpusOptions options;
  options.paths = {name_};
  options.separator = separator_;
  options.unit = unit_;
  options.limit = static_cast<std::uint64_t>(limit_);
  if (!field_.empty()) options.field = field_;
  // With data.field set, a single file is JSON lines, whatever its name. A folder may contain both kinds of files.
  options.json_lines = !field_.empty() && !folder_exists(name_);
  auto reader = std::make_shared<CorpusReader>(std::move(options));
  return [reader](std::string& document) { return reader->next(document); };
}

DocumentStream DocumentSet::open(Threads& threads) const {
  return [this, stream = source.open(threads), place = std::size_t{0},
          given = std::int64_t{0}](std::string& document) mutable {
    while ((chosen.empty() || place < chosen.size()) && (most == 0 || given < most)) {
      if (!stream(document)) return false;
      if (!chosen.empty() && chosen[place++] == 0) continue;
      if (part == DocumentPart::beginning) document.resize(held_out_begin(document, held_out_share));
      if (part == DocumentPart::end) document.erase(0, held_out_begin(document, held_out_share));
      if (document.empty()) continue;  // too short to be split, so it has no end
      ++given;
      return true;
    }
    return false;
  };
}

void DocumentSet::add(const std::string& document) {
  hashes.push_back(hash_document(document));
  sizes.push_back(static_cast<std::int64_t>(document.size()));
}

std::int64_t DocumentSet::bytes() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

std::size_t held_out_begin(std::string_view text, double share) {
  const auto wanted = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - share));
  // The border may move to a better place as long as at least half of the end remains.
  const std::size_t latest = wanted + (text.size() - wanted) / 2;
  const auto found = [&](std::size_t at) { return at != std::string_view::npos && at > 0 && at < latest; };
  std::size_t border = wanted;
  if (const std::size_t line = text.find('\n', wanted); found(line))
    border = line + 1;
  else if (const std::size_t blank = text.find(' ', wanted); found(blank))
    border = blank;
  else
    while (border < text.size() && (static_cast<unsigned char>(text[border]) & 0xC0) == 0x80) ++border;
  const auto blank = [](std::string_view part) { return part.find_first_not_of(" \t\n") == std::string_view::npos; };
  return blank(text.substr(0, border)) || blank(text.substr(border)) ? text.size() : border;
}

std::uint64_t hash_document(const std::string& document) { return hash_bytes(document.data(), document.size()); }
std::uint64_t add_to_text_hash(std::uint64_t hash, std::uint64_t story_hash) { return mix64(hash ^ story_hash); }

std::uint64_t DocumentSet::text_hash() const {
  std::uint64_t hash = 0;
  for (const std::uint64_t document : hashes) hash = add_to_text_hash(hash, document);
  return hash;
}

DocumentSet scan_documents(const Host& host, DocumentSource source, const std::string& what,
                           const DataProgress& progress) {
  DocumentSet set(std::move(source));
  const DocumentStream stream = set.source.open(*host.threads);
  std::string document;
  while (stream(document)) {
    set.add(document);
    const auto count = static_cast<std::int64_t>(set.hashes.size());
    if (progress && count % progress_every == 0) progress(what, count, 0);
  }
  const auto count = static_cast<std::int64_t>(set.hashes.size());
  if (progress) progress(what, count, count);
  return set;
}

bool must_split_documents(std::int64_t documents, const DataConfig& config) {
  return config.long_documents == LongDocuments::split && config.valid_share * static_cast<double>(documents) < 1;
}

DocumentSplit split_ends(const Host& host, const DocumentSet& all, double share, std::int64_t train_documents,
                         std::int64_t valid_documents) {
  const auto part_of = [&](DocumentPart part, std::int64_t limit) {
    DocumentSet set(all.source);
    set.part = part;
    set.held_out_share = share;
    set.most = limit;
    const DocumentStream stream = set.open(*host.threads);
    for (std::string document; stream(document);) set.add(document);
    return set;
  };
  DocumentSplit split{part_of(DocumentPart::beginning, train_documents), part_of(DocumentPart::end, valid_documents)};
  if (split.valid.hashes.empty())
    bad_input(Code::text_too_short,
              "{}: the text is too short to hold out a part for validation; set data.valid to a separate file",
              all.source.name());
  return split;
}

std::int64_t held_out_documents(std::int64_t documents, double share) {
  return std::clamp<std::int64_t>(std::llround(share * static_cast<double>(documents)), 1, documents - 1);
}

DocumentSplit split_documents(const DocumentSet& all, double share, std::uint64_t seed, std::int64_t train_documents,
                              std::int64_t valid_documents) {
  const auto total = static_cast<std::int64_t>(all.hashes.size());
  if (total < 2)
    bad_input(Code::text_too_short,
              "{} is one document, and data.long = \"cut\", so nothing can be held out for validation; set data.long = "
              "\"split\", or data.valid to a separate file",
              all.source.name());
  const std::int64_t wanted = held_out_documents(total, share);

  // Selection sampling (Knuth, algorithm S): exactly `wanted` documents, every subset equally likely, in one pass.
  DocumentSplit split{DocumentSet(all.source), DocumentSet(all.source)};
  const RandomStream stream = random_stream(seed, "data.valid");
  std::int64_t left = wanted;
  for (std::int64_t i = 0; i < total; ++i) {
    const bool validation = stream.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(total - i)) < left;
    if (validation) left -= 1;
    DocumentSet& set = validation ? split.valid : split.train;
    const std::int64_t limit = validation ? valid_documents : train_documents;
    if (limit > 0 && static_cast<std::int64_t>(set.hashes.size()) == limit) continue;
    set.chosen.resize(static_cast<std::size_t>(i) + 1, 0);
    set.chosen.back() = 1;
    set.hashes.push_back(all.hashes[static_cast<std::size_t>(i)]);
    set.sizes.push_back(all.sizes[static_cast<std::size_t>(i)]);
  }
  return split;
}

std::int64_t count_overlap(const DocumentSet& train, const DocumentSet& valid) {
  std::vector<std::uint64_t> sorted = train.hashes;
  std::sort(sorted.begin(), sorted.end());
  return std::count_if(valid.hashes.begin(), valid.hashes.end(),
                       [&](std::uint64_t hash) { return std::binary_search(sorted.begin(), sorted.end(), hash); });
}

}  // namespace some
