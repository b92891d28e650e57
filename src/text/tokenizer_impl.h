// What a Tokenizer holds; shared by the parts that make, read, write and use one.
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

// GPT-2's spelling of bytes: printable Latin-1 characters stand for themselves, the other bytes for U+0100 onwards.
std::uint32_t byte_to_char(std::uint8_t byte);
// The byte a character stands for, or nothing.
std::optional<std::uint8_t> char_to_byte(std::uint32_t code_point);
// The bytes that a token of the bytelevel kind spells; nothing when a character stands for no byte.
std::optional<std::string> spelled_bytes(std::string_view token);

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
using Vocabulary = std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>;

// A token that is looked for in the text before anything else.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool normalized = false;  // without a normalizer it only decides which tokens are looked for first
  bool special = false;
};

// The parts of a tokenizer.json that matter here, checked.
struct TokenizerParts {
  TokenizerKind kind = TokenizerKind::bytelevel;
  std::vector<std::string> tokens;                  // by id: vocabulary, then added tokens outside of it
  std::size_t model_tokens = 0;                     // how many of them belong to the model's vocabulary
  std::vector<std::pair<TokenId, TokenId>> merges;  // by rank, no pair twice
  std::vector<AddedToken> added;
  std::optional<std::string> unk_token;
  // Kept as they were read, to be written again.
  nlohmann::ordered_json pre_tokenizer, post_processor, decoder;
};

struct Tokenizer::Impl {
  // Throws when merges name tokens that do not fit together.
  explicit Impl(TokenizerParts parts);

  void encode_plain(std::string_view text, WordCache& cache, std::vector<TokenId>& ids,
                    std::vector<std::uint32_t>& byte_lengths, const char*& covered) const;
  void split_word(std::string_view word, std::vector<Piece>& pieces) const;
  TokenId special_id(std::string_view content) const;

  TokenizerParts parts;
  Vocabulary ids;
  std::vector<std::string> bytes;  // by id
  std::vector<bool> special;       // by id
  MergeTable merges;
  std::array<TokenId, 256> byte_ids;  // bytelevel: of every byte; whitespace: of every ASCII character; -1: none
  std::unordered_map<std::uint32_t, TokenId> char_ids;  // whitespace: of other characters
  TokenId unk = -1;

  // Added tokens by pass (not normalized first), each sorted by length, longest first, and the bytes they begin with.
  struct Pass {
    std::vector<std::pair<std::string, TokenId>> tokens;
    std::array<bool, 256> begins{};
    int single_begin = -1;  // the byte they all begin with
  };
  std::array<Pass, 2> passes_with_specials, passes_without_specials;

  // Caches wait here between calls; a call takes one, so threads never share one.
  mutable std::mutex cache_mutex;
  mutable std::vector<std::unique_ptr<WordCache>> caches;
};

}  // namespace some
