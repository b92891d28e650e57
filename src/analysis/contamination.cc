#include "analysis/contamination.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <unordered_map>

#include "analysis/read.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "data/source.h"

namespace some {
namespace {

using Tokens = std::span<const std::int32_t>;

// Compares the tokens that were read with the text, skipping the ends of documents that have grown since. `differs`:
// the first differing token; none if one is a prefix of the other. `next`: the first token of the text that was not
// read.
struct Comparison {
  std::size_t next = 0;
  std::optional<std::size_t> differs;
};
Comparison compare(Tokens known, Tokens tokens, std::optional<TokenId> end) {
  std::size_t next = 0;
  for (std::size_t at = 0; at < known.size() && next < tokens.size(); ++at) {
    if (known[at] == tokens[next])
      ++next;
    else if (known[at] != end)
      return {next, next};
  }
  return {next, std::nullopt};
}

// Documents are compared verbatim in pieces of at most piece_tokens tokens; texts composed of the same sentences share
// only shorter pieces. Pieces are found by the hash of their first begin_tokens tokens.
constexpr std::size_t piece_tokens = 256, begin_tokens = 32;

// Rolling hash over begin_tokens tokens.
class RollingHash {
 public:
  RollingHash() {
    for (std::size_t i = 0; i < begin_tokens; ++i) power_ *= factor;
  }
  std::uint64_t next(std::int32_t in, std::int32_t out) {
    return hash_ = hash_ * factor + value(in) - power_ * value(out);
  }
  std::uint64_t next(std::int32_t in) { return hash_ = hash_ * factor + value(in); }

 private:
  static constexpr std::uint64_t factor = 0x9E3779B97F4A7C15;
  static std::uint64_t value(std::int32_t token) { return static_cast<std::uint64_t>(token) + 1; }
  std::uint64_t hash_ = 0, power_ = 1;
};

// Index of the documents of a text, to find them in other texts.
class Documents {
 public:
  Documents(const TokenData& data, std::int64_t max_documents, std::optional<TokenId> end) : end_(end) {
    const std::int64_t count = max_documents > 0 ? std::min(max_documents, data.documents()) : data.documents();
    found_.assign(static_cast<std::size_t>(count), false);
    for (std::int64_t i = 0; i < count; ++i) add(static_cast<std::size_t>(i), documents_.emplace_back(data.ids(i)));
  }

  void look_in(Tokens text) {
    RollingHash hash;
    std::size_t begin = 0;  // of the current document
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::uint64_t now = i < begin_tokens ? hash.next(text[i]) : hash.next(text[i], text[i - begin_tokens]);
      if (i + 1 >= begin_tokens) look_for(pieces_, now, text.subspan(i + 1 - begin_tokens), false);
      if (text[i] != end_) continue;
      const Tokens document = text.subspan(begin, i - begin);
      begin = i + 1;
      if (document.size() < begin_tokens) look_for(short_ones_, hash_of(document), document, true);
    }
  }

  DocumentOverlap result() const {
    return {std::count(found_.begin(), found_.end(), true), static_cast<std::int64_t>(found_.size())};
  }

 private:
  struct Piece {
    std::size_t document;
    Tokens tokens;
  };
  using Pieces = std::unordered_multimap<std::uint64_t, Piece>;

  static std::uint64_t hash_of(Tokens tokens) {
    RollingHash hash;
    std::uint64_t now = 0;
    for (const std::int32_t token : tokens) now = hash.next(token);
    return now;
  }
  void add(std::size_t document, Tokens tokens) {
    if (!tokens.empty() && tokens.back() == end_) tokens = tokens.first(tokens.size() - 1);
    if (tokens.empty()) return;
    // Any text contains a few common words, so short documents are compared as a whole, including their ends.
    if (tokens.size() < begin_tokens) {
      if (end_) short_ones_.emplace(hash_of(tokens), Piece{document, tokens});
      return;
    }
    for (std::size_t at = 0; at < tokens.size(); at += piece_tokens) {
      const std::size_t last = tokens.size() - std::min(tokens.size(), piece_tokens);
      const Tokens piece = tokens.subspan(std::min(at, last)).first(std::min(tokens.size(), piece_tokens));
      pieces_.emplace(hash_of(piece.first(begin_tokens)), Piece{document, piece});
    }
  }
  // Marks the documents whose piece with this hash is a prefix of the text, or (`is`) the whole text.
  void look_for(Pieces& pieces, std::uint64_t hash, Tokens text, bool is) {
    auto [one, last] = pieces.equal_range(hash);
    while (one != last) {
      const Tokens tokens = one->second.tokens;
      const bool same = tokens.size() <= text.size() && (!is || tokens.size() == text.size()) &&
                        std::equal(tokens.begin(), tokens.end(), text.begin());
      if (same) found_[one->second.document] = true;
      one = found_[one->second.document] ? pieces.erase(one) : std::next(one);
    }
  }

  std::optional<TokenId> end_;
  std::deque<std::vector<std::int32_t>> documents_;  // pieces refer to these
  Pieces pieces_, short_ones_;
  std::vector<bool> found_;
};

}  // namespace

std::string file_of(const std::string& source) {
  if (is_builtin(source)) return "";
  std::error_code none;
  // A deleted file still has a path, by which its text can be named.
  const std::string place = std::filesystem::weakly_canonical(source, none).string();
  return none || place.empty() ? "" : hex(hash_bytes(place.data(), place.size()));
}

std::optional<std::size_t> find_known_text(const Memory& memory, const std::string& path, const std::string& source,
                                           Tokens tokens, std::optional<TokenId> end) {
  const std::string name = escaped(source), file = file_of(source);
  std::optional<Error> refusal;
  for (std::size_t i = 0; i < memory.texts.size(); ++i) {
    const MemoryText& known = memory.texts[i];
    // Older memories do not record the file of a text; its name may refer to this file.
    const bool told = known.name == name || (!file.empty() && known.file == file);
    if (!told && (file.empty() || !known.file.empty() || file_of(known.name) != file)) continue;
    const Comparison both = compare(known.tokens, tokens, end);
    if (!both.differs) return i;
    if (told)
      refusal = make_error(Fault::input, Code::text_changed,
                           "{} differs from the text that the memory has read{}, from token {}; to read the new "
                           "version, remove the old one first: some memory forget {} {}",
                           source, known.name == name ? "" : " as " + known.name, *both.differs + 1, path, i + 1);
  }
  if (refusal) throw *refusal;
  return std::nullopt;
}

std::vector<std::int32_t> read_on(const MemoryText& known, Tokens tokens, std::optional<TokenId> end) {
  std::vector<std::int32_t> out = known.tokens;
  const auto next = static_cast<std::ptrdiff_t>(compare(known.tokens, tokens, end).next);
  out.insert(out.end(), tokens.begin() + next, tokens.end());
  return out;
}

DocumentOverlap document_overlap(const Memory& memory, const TokenData& data, std::int64_t max_documents,
                                 std::optional<TokenId> end) {
  Documents documents(data, max_documents, end);
  for (const MemoryText& text : memory.texts) documents.look_in(text.tokens);
  return documents.result();
}

DocumentOverlap warn_about_overlap(const OpenedRun& run, const Memory& memory, const TokenData& data,
                                   std::int64_t max_documents, const std::string& text) {
  const DocumentOverlap out = document_overlap(memory, data, max_documents, document_end(run));
  if (out.known > 0)
    run.ctx->log.warning(
        Code::text_overlap,
        "{} of {} documents of {} overlap with text that the memory has read, so the loss with memory is too low",
        out.known, out.of, text);
  return out;
}

}  // namespace some
