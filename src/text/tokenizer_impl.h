// Internal state of a Tokenizer, shared by the code that trains, reads, writes and uses it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/bpe_merge.h"
#include "text/tokenizer.h"
#include "text/word_cache.h"

namespace some {

// Returns GPT-2's spelling of a byte: printable Latin-1 characters represent themselves, other bytes are U+0100 and up.
std::uint32_t byte_to_char(std::uint8_t byte);
// Returns the byte that a character spells; empty if none.
std::optional<std::uint8_t> char_to_byte(std::uint32_t code_point);
// Returns the bytes that a token of the bytelevel kind spells; empty if one of its characters spells no byte.
std::optional<std::string> spelled_bytes(std::string_view token);

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
using Vocabulary = std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>;

// A token that is matched in the text before pre-tokenization.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool normalized = false;  // without a normalizer, only determines which tokens are matched first
  bool special = false;
};

// The relevant parts of a tokenizer.json, validated.
struct TokenizerParts {
  TokenizerKind kind = TokenizerKind::bytelevel;
  std::vector<std::string> tokens;                  // by id: the model's vocabulary, then added tokens outside it
  std::size_t model_tokens = 0;                     // size of the model's vocabulary
  std::vector<std::pair<TokenId, TokenId>> merges;  // by rank, without duplicates
  std::vector<AddedToken> added;
  std::optional<std::string> unk_token;
  // Stored as read, to be written again.
  nlohmann::ordered_json pre_tokenizer, post_processor, decoder;
};

struct Tokenizer::Impl {
  // Throws if a merge results in a token outside the vocabulary.
  explicit Impl(TokenizerParts given);

  void encode_plain(std::string_view text, WordCache& cache, std::vector<TokenId>& ids,
                    std::vector<std::uint32_t>& byte_lengths, const char*& covered) const;
  void split_word(std::string_view word, std::vector<Piece>& pieces) const;
  TokenId special_id(std::string_view content) const;

  TokenizerParts parts;
  Vocabulary ids;
  std::vector<std::string> bytes;  // by id
  std::vector<bool> special;       // by id
  MergeTable merges;
  std::array<TokenId, 256> byte_ids;  // bytelevel: id of every byte; whitespace: id of every ASCII character; -1: none
  std::unordered_map<std::uint32_t, TokenId> char_ids;  // whitespace: ids of other characters
  TokenId unk = -1;

  // Added tokens by pass (not normalized first), each sorted by decreasing length, and their possible first bytes.
  struct Pass {
    std::vector<std::pair<std::string, TokenId>> tokens;
    std::array<bool, 256> begins{};
    int single_begin = -1;  // the first byte of all of them, if it is the same; otherwise -1
  };
  std::array<Pass, 2> passes_with_specials, passes_without_specials;

  // Pool of caches between calls. Each call takes one, so threads never share a cache.
  mutable std::mutex cache_mutex;
  mutable std::vector<std::unique_ptr<WordCache>> caches;
};

}  // namespace some
