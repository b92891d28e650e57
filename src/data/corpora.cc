// Turns text into token data: split, tokenizer, tokenization through the cache.
#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "data/source.h"
#include "data/token_data.h"
#include "data/token_file.h"
#include "text/bpe_train.h"
#include "text/pretokenize.h"

namespace some {
namespace {

// Text is tokenized in blocks of about this size, with all threads on one block. A long document is encoded in parts.
constexpr std::size_t block_bytes = std::size_t{4} << 20, part_bytes = std::size_t{1} << 18;
// Tokenizing less text than this again takes negligible time.
constexpr std::int64_t min_cached_bytes = std::int64_t{32} << 20;

std::int64_t train_count(const DataConfig& config) {
  return config.train_documents == 0 && is_builtin(config.train) ? builtin_train_documents : config.train_documents;
}

DocumentSource training_source(const DataConfig& config) { return {config.train, config, 0, train_count(config)}; }

// Returns the source of validation or evaluation text. Built-in documents begin after those of the training text, so
// that they are new to the model.
DocumentSource other_source(const std::string& name, const DataConfig& config, std::int64_t limit) {
  const std::int64_t first = is_builtin(config.train) ? train_count(config) : builtin_train_documents;
  return {name, config, first, is_builtin(name) && limit == 0 ? builtin_valid_documents : limit};
}

// Returns the documents of several sets, one set after another.
DocumentStream all_documents(const Host& host, const std::vector<const DocumentSet*>& sets) {
  std::size_t next = 0;
  DocumentStream stream;
  return [&host, sets, next, stream](std::string& document) mutable {
    while (true) {
      if (stream && stream(document)) return true;
      if (next == sets.size()) return false;
      stream = sets[next++]->open(*host.threads);
    }
  };
}

Tokenizer get_tokenizer(const Host& host, const DataConfig& config, const std::vector<const DocumentSet*>& train,
                        const DataProgress& progress) {
  if (config.tokenizer != "bytelevel" && config.tokenizer != "whitespace") {
    if (!exists_path(config.tokenizer))
      bad_input(Code::tokenizer_unknown,
                "{}: file {} not found; must be \"bytelevel\", \"whitespace\" or a tokenizer.json", "data.tokenizer",
                config.tokenizer);
    return Tokenizer::load(config.tokenizer);
  }
  if (config.vocab < 1)
    bad_input(Code::setting_out_of_range, "{} is {}; it must be at least 1", "data.vocab", config.vocab);
  BpeTrainOptions options;
  options.kind = tokenizer_kind(config.tokenizer);
  options.vocab_size = static_cast<std::size_t>(config.vocab);
  options.threads = host.threads->count();
  options.log = host.log;
  std::int64_t total = 0, done = 0, shown = 0;
  for (const DocumentSet* set : train) total += set->bytes();
  const DocumentStream stream = all_documents(host, train);
  std::string document;
  std::size_t at = 0;
  return train_bpe(options, [&](std::string& text) {
    if (at == document.size()) {
      if (!stream(document)) return false;
      at = 0;
    }
    const std::size_t end = part_end(document, at, part_bytes);
    text.assign(document, at, end - at);
    at = end;
    done += static_cast<std::int64_t>(text.size());
    if (progress && (done - shown >= static_cast<std::int64_t>(part_bytes) || done == total)) {
      progress("training the tokenizer", done, total);
      shown = done;
    }
    return true;
  });
}

// A document's text, or a part of a long one.
struct TextPart {
  std::string_view text;
  std::int64_t document_bytes = 0;  // of the whole document, set in its last part only
  bool last = false;
};

struct EncodedPart {
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> lengths;
};

// Appends the parts of a document.
void split_into_parts(std::string_view text, std::size_t longest_part, std::vector<TextPart>& parts) {
  std::size_t begin = 0;
  do {
    const std::size_t end = part_end(text, begin, longest_part);
    const bool last = end == text.size();
    parts.push_back({text.substr(begin, end - begin), last ? std::ssize(text) : 0, last});
    begin = end;
  } while (begin < text.size());
}

// Tokenizes the documents of a set in order, independent of the number of threads.
void tokenize(const Host& host, const DocumentSet& set, const Tokenizer& tokenizer, bool eos, TokenWriter& writer,
              const std::string& what, const DataProgress& progress) {
  const DocumentStream stream = set.open(*host.threads);
  const std::int64_t total = set.bytes();
  const std::size_t longest_part = tokenizer.encodes_in_parts() ? part_bytes : std::string::npos;
  std::vector<std::string> texts;
  std::vector<TextPart> parts;
  std::vector<EncodedPart> encoded;
  std::int64_t done = 0, skipped = 0;
  std::uint64_t longest = 0, text_hash = 0;
  for (bool more = true; more;) {
    std::size_t count = 0;
    for (std::size_t bytes = 0; bytes < block_bytes; ++count) {
      if (texts.size() == count) texts.emplace_back();
      more = stream(texts[count]);
      if (!more) break;
      bytes += texts[count].size();
      text_hash = add_to_text_hash(text_hash, hash_document(texts[count]));
    }
    parts.clear();
    for (std::size_t slot = 0; slot < count; ++slot) split_into_parts(texts[slot], longest_part, parts);
    // One document may be much larger than a block. Its parts are encoded and written one block at a time, so that
    // progress is reported and its ids exist only once, in the form of the file.
    for (std::size_t first = 0; first < parts.size();) {
      std::size_t last = first;
      for (std::size_t bytes = 0; last < parts.size() && bytes < 2 * block_bytes; ++last)
        bytes += parts[last].text.size();
      if (encoded.size() < last - first) encoded.resize(last - first);
      parallel_for(*host.threads, static_cast<std::int64_t>(last - first), [&](std::int64_t i) {
        const auto place = static_cast<std::size_t>(i);
        // Special tokens are disabled: a special token in the text of a document must not end it or act as padding.
        tokenizer.encode(parts[first + place].text, encoded[place].ids, encoded[place].lengths, {.specials = false});
      });
      for (std::size_t place = 0; first < last; ++first, ++place) {
        const TextPart& part = parts[first];
        done += std::ssize(part.text);
        writer.add_part(encoded[place].ids, encoded[place].lengths);
        if (!part.last) continue;
        if (writer.open_tokens() == 0) {
          skipped += 1;
          continue;
        }
        if (eos) writer.add_part({{tokenizer.eos_id()}}, {{0u}});
        longest = std::max(longest, writer.open_tokens());
        writer.end_document(part.document_bytes);
      }
      if (progress) progress(what, done, total);
    }
  }
  if (text_hash != set.text_hash())
    failed(Code::file_changed, "{} changed while it was being read; repeat the command", set.source.name());
  if (skipped > 0) host.log.info("{}: {} documents have no tokens and are skipped", set.source.name(), skipped);
  if (writer.documents() == 0)
    bad_input(Code::text_empty, "{}: none of its documents has any tokens", set.source.name());
  if (longest < 2)
    bad_input(Code::data_nothing_to_predict,
              "{}: no document has two tokens, so there is nothing to predict; set data.separator or data.unit for "
              "longer documents, or data.eos = true",
              set.source.name());
}

// Removes a new folder at scope exit if it is still empty, so that rejected text leaves nothing behind.
struct EmptyFolderCleanup {
  explicit EmptyFolderCleanup(const std::string& name) : folder(exists_path(name) ? "" : name) {}
  ~EmptyFolderCleanup() {
    if (!folder.empty()) std::filesystem::remove(folder, ignored);  // fails, without effect, if the folder is not empty
  }
  std::error_code ignored;
  std::string folder;
};

TokenData tokens_of(const Host& host, const DocumentSet& set, const Tokenizer& tokenizer, bool with_eos,
                    const TokenCache& cache, const std::string& what, const DataProgress& progress) {
  // If the end of a document is held out, its beginning must not end with EOS.
  const bool eos = with_eos && set.part != DocumentPart::beginning;
  const TokenKey key{set.text_hash(), tokenizer.hash(), eos ? 1u : 0u};
  const auto vocab = static_cast<std::int64_t>(tokenizer.vocab_size());
  const auto produce = [&](TokenWriter& writer) { tokenize(host, set, tokenizer, eos, writer, what, progress); };
  if (cache.folder.empty()) return tokens_in_memory(key, vocab, produce);

  const EmptyFolderCleanup made(cache.folder);
  const std::string write_problem = cache.spare ? unwritable_reason(cache.folder) : "";
  if (!cache.spare) make_folder(cache.folder);
  const std::string path = fmt::format("{}/tokens-{}.bin", cache.folder, hex(hash_bytes(&key, sizeof key)));
  std::string problem;
  TokenData data;
  bool there = false;
  try {
    there = exists_path(path);
  } catch (const Error&) {
    if (write_problem.empty()) throw;
  }
  if (there) {
    data.impl = open_token_image(map_file(path), key, &problem);
    if (data.impl) return data;
    host.log.info("the token cache {} is {}: {}", path, write_problem.empty() ? "rebuilt" : "unusable", problem);
  }
  // A run in a read-only folder can still be analyzed.
  if (!write_problem.empty()) {
    if (set.bytes() >= min_cached_bytes)
      host.log.info("{}: its tokens cannot be cached: {}", set.source.name(), write_problem);
    return tokens_in_memory(key, vocab, produce);
  }
  remove_temporary_files(cache.folder);
  write_file_atomic(path, [&](const ByteSink& sink) {
    TokenWriter writer(sink, key, vocab);
    produce(writer);
    writer.finish();
  });
  data.impl = open_token_image(map_file(path), key, &problem);
  if (!data.impl) failed(Code::token_cache_damaged, "the token cache {} was not written completely: {}", path, problem);
  return data;
}

// Reports that a limit leaves out a part of a text. `all`: number of its documents; 0: unknown, since it was not read
// to its end.
void report_limit(const Host& host, const DocumentSet& used, std::int64_t limit, std::int64_t all, const char* what,
                  const char* setting) {
  const auto count = static_cast<std::int64_t>(used.hashes.size());
  if (limit == 0 || count < limit || count == all || is_builtin(used.source.name())) return;
  host.log.info("{}: {} {} of {} ({} = {})", used.source.name(), what,
                all > 0 ? fmt::to_string(count) : fmt::format("the first {} documents", count),
                all > 0 ? fmt::format("{} documents", all) : "the file", setting, limit);
}

// Returns the training and validation documents.
DocumentSplit scan_texts(const Host& host, const DataConfig& config, std::uint64_t seed, const DataProgress& progress) {
  const std::string valid_name = config.valid.empty() && is_builtin(config.train) ? config.train : config.valid;
  constexpr const char *train_limit = "data.train_documents", *valid_limit = "data.valid_documents";
  if (!valid_name.empty()) {
    DocumentSplit sets{scan_documents(host, training_source(config), "reading the training text", progress),
                       scan_documents(host, other_source(valid_name, config, config.valid_documents),
                                      "reading the validation text", progress)};
    report_limit(host, sets.train, config.train_documents, 0, "trains on", train_limit);
    report_limit(host, sets.valid, config.valid_documents, 0, "validates on", valid_limit);
    return sets;
  }
  if (config.train_documents < 0)
    bad_input(Code::setting_out_of_range, "{} is {}; must be >= 0 (0 = all)", "data.train_documents",
              config.train_documents);
  if (config.valid_documents < 0)
    bad_input(Code::setting_out_of_range, "{} is {}; must be >= 0 (0 = all)", "data.valid_documents",
              config.valid_documents);
  if (!(config.valid_share > 0 && config.valid_share < 1))
    bad_input(Code::setting_out_of_range, "{} is {}; must be between 0 and 1 if data.valid is empty",
              "data.valid_share", config.valid_share);
  const DocumentSet all = scan_documents(host, {config.train, config, 0, 0}, "reading the training text", progress);
  const auto documents = static_cast<std::int64_t>(all.hashes.size());
  if (!must_split_documents(documents, config)) {
    DocumentSplit sets = split_documents(all, config.valid_share, seed, config.train_documents, config.valid_documents);
    const std::int64_t held_out = held_out_documents(documents, config.valid_share);
    report_limit(host, sets.train, config.train_documents, documents - held_out, "trains on", train_limit);
    report_limit(host, sets.valid, config.valid_documents, held_out, "validates on", valid_limit);
    return sets;
  }
  host.log.info(
      "{}: {} too few to hold out a whole document, so the last {:.3g}% of {} text is held out for validation "
      "(data.valid_share)",
      config.train, documents == 1 ? "one document," : fmt::format("{} documents,", documents),
      100 * config.valid_share, documents == 1 ? "its" : "each one's");
  return split_ends(host, all, config.valid_share, config.train_documents, config.valid_documents);
}

DocumentSplit checked_texts(const Host& host, const DataConfig& config, std::uint64_t seed,
                            const DataProgress& progress) {
  DocumentSplit sets = scan_texts(host, config, seed, progress);
  if (const std::int64_t both = count_overlap(sets.train, sets.valid); both > 0)
    host.log.warning(Code::text_overlap,
                     "{} of {} validation documents are also in the training text (contamination), so the validation "
                     "loss is too low",
                     both, sets.valid.hashes.size());
  return sets;
}

}  // namespace

Corpora load_corpora(const Host& host, const DataConfig& config, std::uint64_t seed, const TokenCache& cache,
                     const DataProgress& progress) {
  return load_corpora(host, std::vector<DataConfig>{config}, seed, cache, progress).at(0);
}

std::vector<Corpora> load_corpora(const Host& host, const std::vector<DataConfig>& configs, std::uint64_t seed,
                                  const TokenCache& cache, const DataProgress& progress,
                                  const std::optional<Tokenizer>& given) {
  std::vector<DocumentSplit> texts;
  for (const DataConfig& config : configs) texts.push_back(checked_texts(host, config, seed, progress));
  // A text that occurs twice is used once.
  std::vector<const DocumentSet*> distinct;
  for (const DocumentSplit& one : texts) {
    const bool seen = std::any_of(distinct.begin(), distinct.end(),
                                  [&](const DocumentSet* set) { return set->text_hash() == one.train.text_hash(); });
    if (!seen) distinct.push_back(&one.train);
  }
  const Tokenizer tokenizer = given ? *given : get_tokenizer(host, configs.at(0), distinct, progress);
  tokenizer.pad_id();  // fails here, where the file is known, if the vocabulary lacks [PAD] or [EOS]
  tokenizer.eos_id();
  std::vector<Corpora> out;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const auto tokens = [&](const DocumentSet& set, const char* what) {
      return tokens_of(host, set, tokenizer, configs[i].eos, cache, what, progress);
    };
    TokenData train = tokens(texts[i].train, "tokenizing the training text");
    TokenData valid = tokens(texts[i].valid, "tokenizing the validation text");
    out.push_back({tokenizer, std::move(train), std::move(valid)});
  }
  return out;
}

TokenData load_tokens(const Host& host, const std::string& source, const DataConfig& config, const Tokenizer& tokenizer,
                      std::int64_t limit, const TokenCache& cache) {
  const std::string what = "reading " + source;
  const DocumentSet set = scan_documents(host, other_source(source, config, limit), what, {});
  return tokens_of(host, set, tokenizer, config.eos, cache, what, {});
}

}  // namespace some
