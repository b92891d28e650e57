#include "text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "text/pretokenize.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace some {

TokenizerKind tokenizer_kind(std::string_view name) {
  if (name == "whitespace") return TokenizerKind::whitespace;
  if (name == "bytelevel") return TokenizerKind::bytelevel;
  bad_input(Code::tokenizer_unknown, "unknown tokenizer kind \"{}\"; must be \"bytelevel\" or \"whitespace\"", name);
}

std::string_view tokenizer_kind_name(TokenizerKind kind) {
  return kind == TokenizerKind::bytelevel ? "bytelevel" : "whitespace";
}

namespace {

struct ByteSpelling {
  std::array<std::uint32_t, 256> chars;
  std::array<int, 512> bytes;
};

const ByteSpelling& byte_spelling() {
  static const ByteSpelling spelling = [] {
    ByteSpelling made;
    made.bytes.fill(-1);
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      made.chars[byte] = printable ? byte : next++;
      made.bytes[made.chars[byte]] = static_cast<int>(byte);
    }
    return made;
  }();
  return spelling;
}

}  // namespace

std::uint32_t byte_to_char(std::uint8_t byte) { return byte_spelling().chars[byte]; }

std::optional<std::uint8_t> char_to_byte(std::uint32_t code_point) {
  if (code_point >= 512 || byte_spelling().bytes[code_point] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(byte_spelling().bytes[code_point]);
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string bytes;
  const char* const end = token.data() + token.size();
  for (const char* p = token.data(); p < end;) {
    const CodePoint point = decode_utf8(p, end);
    const auto byte = char_to_byte(point.value);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    p += point.length;
  }
  return bytes;
}

Tokenizer::Impl::Impl(TokenizerParts given) : parts(std::move(given)), merges(parts.merges.size()) {
  const std::size_t count = parts.tokens.size();
  ids.reserve(count);
  bytes.reserve(count);
  special.assign(count, false);
  std::vector<bool> is_added(count, false);
  for (const AddedToken& token : parts.added) {
    is_added[static_cast<std::size_t>(token.id)] = true;
    special[static_cast<std::size_t>(token.id)] = token.special;
  }
  byte_ids.fill(-1);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& token = parts.tokens[i];
    const auto id = static_cast<TokenId>(i);
    ids.emplace(token, id);
    // Added tokens represent their own spelling, as does a token that spells no bytes.
    std::optional<std::string> spelled;
    if (parts.kind == TokenizerKind::bytelevel && !is_added[i]) spelled = spelled_bytes(token);
    bytes.push_back(spelled ? *spelled : token);
    if (i >= parts.model_tokens || token.empty()) continue;
    const CodePoint first = decode_utf8(token.data(), token.data() + token.size());
    if (first.length != token.size()) continue;
    if (parts.kind == TokenizerKind::bytelevel) {
      if (const auto byte = char_to_byte(first.value)) byte_ids[*byte] = id;
    } else if (first.value < 0x80) {
      byte_ids[first.value] = id;
    } else {
      char_ids.emplace(first.value, id);
    }
  }
  if (parts.unk_token) unk = ids.find(*parts.unk_token)->second;
  std::string joined;
  for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto [left, right] = parts.merges[rank];
    joined = parts.tokens[static_cast<std::size_t>(left)];
    joined += parts.tokens[static_cast<std::size_t>(right)];
    const auto found = ids.find(joined);
    if (found == ids.end() || static_cast<std::size_t>(found->second) >= parts.model_tokens) {
      bad_input(Code::tokenizer_invalid, "merge {} makes \"{}\", which is not in the vocabulary", rank, joined);
    }
    merges.set(left, right, {static_cast<std::uint32_t>(rank), found->second});
  }
  for (const bool with_specials : {true, false}) {
    auto& passes = with_specials ? passes_with_specials : passes_without_specials;
    for (const AddedToken& token : parts.added) {
      if (!with_specials && token.special) continue;
      Pass& pass = passes[token.normalized ? 1 : 0];
      pass.tokens.emplace_back(token.content, token.id);
      pass.begins[static_cast<unsigned char>(token.content[0])] = true;
    }
    for (Pass& pass : passes) {
      std::stable_sort(pass.tokens.begin(), pass.tokens.end(),
                       [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
      if (std::count(pass.begins.begin(), pass.begins.end(), true) == 1) {
        pass.single_begin = static_cast<unsigned char>(pass.tokens[0].first[0]);
      }
    }
  }
}

TokenId Tokenizer::Impl::special_id(std::string_view content) const {
  const auto found = ids.find(content);
  if (found == ids.end()) {
    bad_input(Code::tokenizer_invalid,
              "the vocabulary of the tokenizer has no {} token; models require [UNK], [PAD] and [EOS]", content);
  }
  return found->second;
}

// Splits a word into single-character tokens. A character that is not in the vocabulary becomes the unknown token, or
// is omitted if the model has none (its bytes then count for the next token).
void Tokenizer::Impl::split_word(std::string_view word, std::vector<Piece>& pieces) const {
  pieces.clear();
  std::uint32_t skipped = 0;
  const char* const end = word.data() + word.size();
  for (const char* p = word.data(); p < end;) {
    const auto byte = static_cast<unsigned char>(*p);
    std::uint32_t length = 1;
    TokenId id = -1;
    if (parts.kind == TokenizerKind::bytelevel || byte < 0x80) {
      id = byte_ids[byte];
    } else {
      const CodePoint point = decode_utf8(p, end);
      length = point.length;
      const auto found = char_ids.find(point.value);
      if (found != char_ids.end()) id = found->second;
    }
    p += length;
    if (id < 0) id = unk;
    if (id < 0) {
      skipped += length;
      continue;
    }
    pieces.push_back({id, length + skipped});
    skipped = 0;
  }
  merge_pieces(merges, pieces);
}

void Tokenizer::Impl::encode_plain(std::string_view text, WordCache& cache, std::vector<TokenId>& ids,
                                   std::vector<std::uint32_t>& byte_lengths, const char*& covered) const {
  std::vector<Piece> pieces;
  for_each_word(parts.kind, text, [&](std::string_view word) {
    std::uint64_t hash = 0;
    std::span<const Piece> found;
    if (word.size() <= WordCache::max_cached_word) {
      hash = WordCache::hash(word);
      found = cache.find(word, hash);
    }
    if (found.empty()) {
      split_word(word, pieces);
      cache.insert(word, hash, pieces);
      found = pieces;
    }
    const char* end = word.data();
    for (const Piece piece : found) {
      end += piece.bytes;
      ids.push_back(piece.id);
      byte_lengths.push_back(static_cast<std::uint32_t>(end - covered));
      covered = end;
    }
  });
}

namespace {

// The first match of an added token at or after `from`, the longest one at that position; `at` is text.size() if there
// is none.
struct Matches {
  std::size_t at, length;
  TokenId id;
};

Matches find_added(const Tokenizer::Impl::Pass& pass, std::string_view text, std::size_t from) {
  if (!pass.tokens.empty()) {
    for (std::size_t i = from; i < text.size(); ++i) {
      if (pass.single_begin >= 0) {
        const void* hit = std::memchr(text.data() + i, pass.single_begin, text.size() - i);
        if (hit == nullptr) break;
        i = static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
      } else if (!pass.begins[static_cast<unsigned char>(text[i])]) {
        continue;
      }
      for (const auto& [content, id] : pass.tokens) {
        if (text.compare(i, content.size(), content) == 0) return {i, content.size(), id};
      }
    }
  }
  return {text.size(), 0, -1};
}

}  // namespace

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& ids, std::vector<std::uint32_t>& byte_lengths,
                       EncodeOptions options) const {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
    bad_input(Code::text_too_long, "a text of {} bytes is too long to encode in one piece; the maximum is 4 GiB",
              text.size());
  }
  ids.clear();
  byte_lengths.clear();
  std::unique_ptr<WordCache> cache;
  {
    const std::lock_guard lock(impl_->cache_mutex);
    if (!impl_->caches.empty()) {
      cache = std::move(impl_->caches.back());
      impl_->caches.pop_back();
    }
  }
  if (!cache) cache = std::make_unique<WordCache>();

  const char* covered = text.data();
  const auto& passes = options.specials ? impl_->passes_with_specials : impl_->passes_without_specials;
  const auto add_token = [&](const char* end, TokenId id) {
    ids.push_back(id);
    byte_lengths.push_back(static_cast<std::uint32_t>(end - covered));
    covered = end;
  };
  // Text between the tokens of the first pass is searched for tokens of the second pass; the rest is split into words.
  const auto second_pass = [&](std::string_view part) {
    for (std::size_t from = 0; from < part.size();) {
      const Matches found = find_added(passes[1], part, from);
      impl_->encode_plain(part.substr(from, found.at - from), *cache, ids, byte_lengths, covered);
      if (found.id >= 0) add_token(part.data() + found.at + found.length, found.id);
      from = found.at + found.length;
    }
  };
  for (std::size_t from = 0; from < text.size();) {
    const Matches found = find_added(passes[0], text, from);
    second_pass(text.substr(from, found.at - from));
    if (found.id >= 0) add_token(text.data() + found.at + found.length, found.id);
    from = found.at + found.length;
  }

  const std::lock_guard lock(impl_->cache_mutex);
  impl_->caches.push_back(std::move(cache));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> byte_lengths;
  encode(text, ids, byte_lengths, options);
  return ids;
}

bool Tokenizer::encodes_in_parts() const {
  for (const auto& pass : impl_->passes_without_specials) {
    for (const auto& [content, id] : pass.tokens) {
      const char* const end = content.data() + content.size();
      for (const char* p = content.data(); p < end;) {
        const ClassStep step = class_at(p, end, char_classes());
        if ((step.classes & class_space) != 0) return false;
        p += step.length;
      }
    }
  }
  return true;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string text;
  bool first = true;
  for (const TokenId id : ids) {
    const std::string_view bytes = token_bytes(id);
    if (options.skip_specials && is_special(id)) continue;
    if (!first && kind() == TokenizerKind::whitespace) text.push_back(' ');
    text += bytes;
    first = false;
  }
  return text;
}

TokenizerKind Tokenizer::kind() const { return impl_->parts.kind; }
std::size_t Tokenizer::vocab_size() const { return impl_->parts.tokens.size(); }

namespace {

std::size_t checked(const Tokenizer::Impl& impl, TokenId id) {
  if (id < 0 || static_cast<std::size_t>(id) >= impl.parts.tokens.size()) {
    bad_input(Code::token_out_of_range, "token id {} is outside the vocabulary of {} tokens", id,
              impl.parts.tokens.size());
  }
  return static_cast<std::size_t>(id);
}

}  // namespace

const std::string& Tokenizer::token(TokenId id) const { return impl_->parts.tokens[checked(*impl_, id)]; }
std::string_view Tokenizer::token_bytes(TokenId id) const { return impl_->bytes[checked(*impl_, id)]; }
bool Tokenizer::is_special(TokenId id) const { return impl_->special[checked(*impl_, id)]; }

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const auto found = impl_->ids.find(token);
  if (found == impl_->ids.end()) return std::nullopt;
  return found->second;
}

TokenId Tokenizer::unk_id() const { return impl_->special_id("[UNK]"); }
TokenId Tokenizer::pad_id() const { return impl_->special_id("[PAD]"); }
TokenId Tokenizer::eos_id() const { return impl_->special_id("[EOS]"); }

}  // namespace some
