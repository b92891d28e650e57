// From text to token data: split, tokenizer, tokenisation through the cache.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "data/source.h"
#include "data/token_data.h"
#include "data/token_file.h"
#include "text/bpe_train.h"

namespace some::data {
namespace {

// Text is tokenised in blocks of about this size, all threads on one block.
constexpr std::size_t block_bytes = std::size_t{4} << 20;

std::int64_t train_count(const DataConfig& config) {
  return config.train_stories == 0 && is_builtin(config.train) ? builtin_train_stories : config.train_stories;
}

StorySource training_source(const DataConfig& config) { return {config.train, config, 0, train_count(config)}; }

// Built-in pieces for anything but training begin behind those of the training text, so that they are new to the model.
StorySource other_source(const std::string& name, const DataConfig& config, std::int64_t limit) {
  const std::int64_t first = is_builtin(config.train) ? train_count(config) : builtin_train_stories;
  return {name, config, first, is_builtin(name) && limit == 0 ? builtin_valid_stories : limit};
}

Tokenizer get_tokenizer(const Host& host, const DataConfig& config, const StorySet& train,
                        const DataProgress& progress) {
  if (config.tokenizer != "bytelevel" && config.tokenizer != "whitespace") {
    if (!std::filesystem::exists(config.tokenizer))
      bad_input("data.tokenizer: there is no file {}; expected \"bytelevel\", \"whitespace\" or a tokenizer.json",
                config.tokenizer);
    return Tokenizer::load(config.tokenizer);
  }
  if (config.vocab < 1) bad_input("data.vocab is {}; it must be at least 1", config.vocab);
  BpeTrainOptions options;
  options.kind = tokenizer_kind(config.tokenizer);
  options.vocab_size = static_cast<std::size_t>(config.vocab);
  options.threads = host.threads->count();
  options.log = host.log;
  const auto total = static_cast<std::int64_t>(train.hashes.size());
  std::int64_t done = 0;
  const StoryStream stream = train.open(*host.threads);
  return train_bpe(options, [&](std::string& story) {
    if (!stream(story)) return false;
    done += 1;
    if (progress && (done % 500 == 0 || done == total)) progress("training the tokenizer", done, total);
    return true;
  });
}

// Story by story in order, whatever the number of threads.
void tokenise(const Host& host, const StorySet& set, const Tokenizer& tokenizer, bool eos, TokenWriter& writer,
              const std::string& what, const DataProgress& progress) {
  const StoryStream stream = set.open(*host.threads);
  const auto total = static_cast<std::int64_t>(set.hashes.size());
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::vector<std::uint32_t>> lengths;
  std::int64_t done = 0, skipped = 0;
  std::size_t longest = 0;
  std::uint64_t text_hash = 0;
  for (bool more = true; more;) {
    std::size_t count = 0;
    for (std::size_t bytes = 0; bytes < block_bytes; ++count) {
      if (texts.size() == count) texts.emplace_back();
      more = stream(texts[count]);
      if (!more) break;
      bytes += texts[count].size();
      text_hash = add_to_text_hash(text_hash, hash_story(texts[count]));
    }
    ids.resize(std::max(ids.size(), count));
    lengths.resize(ids.size());
    parallel_for(*host.threads, static_cast<std::int64_t>(count), [&](std::int64_t i) {
      const auto slot = static_cast<std::size_t>(i);
      // A special token standing literally in a story is text: no story may end another or look like padding.
      tokenizer.encode(texts[slot], ids[slot], lengths[slot], {.specials = false});
      if (eos && !ids[slot].empty()) {
        ids[slot].push_back(tokenizer.eos_id());
        lengths[slot].push_back(0);
      }
    });
    for (std::size_t slot = 0; slot < count; ++slot) {
      if (ids[slot].empty()) {
        skipped += 1;
      } else {
        longest = std::max(longest, ids[slot].size());
        writer.add(ids[slot], lengths[slot], static_cast<std::int64_t>(texts[slot].size()));
      }
    }
    done += static_cast<std::int64_t>(count);
    if (progress && count > 0) progress(what, done, total);
  }
  if (text_hash != set.text_hash()) failed("{} changed while it was being read: start again", set.source.name());
  if (skipped > 0) host.log.info("{}: {} stories have no tokens and are left out", set.source.name(), skipped);
  if (writer.stories() == 0) bad_input("{}: none of its stories has any tokens", set.source.name());
  if (longest < 2)
    bad_input(
        "{}: none of its stories has two tokens, so there is nothing to predict; name the line between stories "
        "with data.separator, or end them with data.eos = true",
        set.source.name());
}

// A folder that nothing came into goes again: a text that is refused leaves nothing behind.
struct FolderMade {
  explicit FolderMade(const std::string& name) : folder(std::filesystem::exists(name, ignored) ? "" : name) {}
  ~FolderMade() {
    if (!folder.empty()) std::filesystem::remove(folder, ignored);  // does nothing where there is something in it
  }
  std::error_code ignored;
  std::string folder;
};

TokenData tokens_of(const Host& host, const StorySet& set, const Tokenizer& tokenizer, bool eos,
                    const std::string& cache_folder, const std::string& what, const DataProgress& progress) {
  const TokenKey key{set.text_hash(), tokenizer.hash(), eos ? 1u : 0u};
  const auto produce = [&](TokenWriter& writer) { tokenise(host, set, tokenizer, eos, writer, what, progress); };
  if (cache_folder.empty()) return tokens_in_memory(key, produce);

  std::error_code error;
  const FolderMade made(cache_folder);
  std::filesystem::create_directories(cache_folder, error);
  if (error) failed("the cache folder {} cannot be made: {}", cache_folder, error.message());
  const std::string path = fmt::format("{}/tokens-{}.bin", cache_folder, hex(hash_bytes(&key, sizeof key)));
  std::string problem;
  TokenData data;
  if (std::filesystem::exists(path, error)) {
    data.impl = open_token_image(map_file(path), key, &problem);
    if (data.impl) return data;
    host.log.info("the token cache {} is made anew: {}", path, problem);
  }
  write_file_atomic(path, [&](const ByteSink& sink) {
    TokenWriter writer(sink, key);
    produce(writer);
    writer.finish();
  });
  data.impl = open_token_image(map_file(path), key, &problem);
  if (!data.impl) failed("the token cache {} did not come out whole: {}", path, problem);
  return data;
}

}  // namespace

Corpora load_corpora(const Host& host, const DataConfig& config, std::uint64_t seed, const std::string& cache_folder,
                     const DataProgress& progress) {
  const std::string valid_name = config.valid.empty() && is_builtin(config.train) ? config.train : config.valid;
  const auto sets = [&]() -> StorySplit {
    if (!valid_name.empty()) {
      return {scan_stories(host, training_source(config), "reading the training text", progress),
              scan_stories(host, other_source(valid_name, config, config.valid_stories), "reading the validation text",
                           progress)};
    }
    if (config.train_stories < 0) bad_input("data.train_stories is {}; 0 means all of them", config.train_stories);
    if (config.valid_stories < 0) bad_input("data.valid_stories is {}; 0 means all of them", config.valid_stories);
    const StorySet all = scan_stories(host, {config.train, config, 0, 0}, "reading the training text", progress);
    return split_stories(all, config.valid_share, seed, config.train_stories, config.valid_stories);
  }();
  if (const std::int64_t both = count_overlap(sets.train, sets.valid); both > 0)
    host.log.warning(
        "{} of {} validation stories also stand in the training text: the validation loss will look better than it is",
        both, sets.valid.hashes.size());

  const Tokenizer tokenizer = get_tokenizer(host, config, sets.train, progress);
  tokenizer.pad_id();  // a vocabulary without [PAD] or [EOS] is refused here, where the file is known
  tokenizer.eos_id();
  TokenData train =
      tokens_of(host, sets.train, tokenizer, config.eos, cache_folder, "tokenising the training text", progress);
  TokenData valid =
      tokens_of(host, sets.valid, tokenizer, config.eos, cache_folder, "tokenising the validation text", progress);
  return {tokenizer, std::move(train), std::move(valid)};
}

TokenData load_tokens(const Host& host, const std::string& source, const DataConfig& config, const Tokenizer& tokenizer,
                      std::int64_t limit, const std::string& cache_folder) {
  const std::string what = "reading " + source;
  const StorySet set = scan_stories(host, other_source(source, config, limit), what, {});
  return tokens_of(host, set, tokenizer, config.eos, cache_folder, what, {});
}

}  // namespace some::data
