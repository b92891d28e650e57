// BPE tokenizers of the two kinds used in this project, read from and written to Hugging Face tokenizer.json files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace some {

using TokenId = std::int32_t;

enum class TokenizerKind {
  whitespace,  // words and runs of punctuation (\w+|[^\w\s]+), loses whitespace: used by the published runs
  bytelevel,   // GPT-2 style, lossless for every byte string: the default
};

// Parses "whitespace" or "bytelevel"; any other name is bad input.
TokenizerKind tokenizer_kind(std::string_view name);
std::string_view tokenizer_kind_name(TokenizerKind kind);

struct EncodeOptions {
  // Convert special tokens in the text ("[EOS]") to their ids, as Hugging Face tokenizers does. If false, they are
  // encoded as ordinary text.
  bool specials = true;
};

struct DecodeOptions {
  // Omit special tokens from the text. Off by default, so that decode(encode(text)) == text (bytelevel).
  bool skip_specials = false;
};

// An immutable value that is cheap to copy (copies share one vocabulary) and safe to use from many threads
// concurrently.
class Tokenizer {
 public:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // Reads a tokenizer.json. Unsupported or damaged parts are bad input; the message names the part.
  static Tokenizer load(const std::filesystem::path& path);
  // The same from memory; `origin` names the text in error messages.
  static Tokenizer from_json(std::string_view text, std::string_view origin = "tokenizer.json");
  // Returns the layout of Hugging Face tokenizers, byte for byte.
  std::string to_json() const;
  // Writes a tokenizer.json atomically.
  void save(const std::filesystem::path& path) const;

  TokenizerKind kind() const;
  std::size_t vocab_size() const;
  // Returns the xxh64 hash of to_json(): the key of caches made with this tokenizer.
  std::uint64_t hash() const;

  // Encodes a text and replaces the contents of `ids` and `byte_lengths`. byte_lengths[i] is the number of text bytes
  // from the end of the previous token to the end of token i, so the lengths add up to the offset at which the last
  // token ends: the whole text in the bytelevel kind, all except trailing whitespace in the whitespace kind.
  void encode(std::string_view text, std::vector<TokenId>& ids, std::vector<std::uint32_t>& byte_lengths,
              EncodeOptions options = {}) const;
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  // True if a long text may be encoded in parts (part_end in text/pretokenize.h), without specials, with the same
  // result. False if the vocabulary has added tokens that contain whitespace, which a border could cut in two.
  bool encodes_in_parts() const;

  // Decodes ids. bytelevel: the concatenated bytes of the tokens; whitespace: the tokens separated by one space. An id
  // outside the vocabulary is bad input.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // Returns the token as spelled in the vocabulary (bytelevel: bytes as printable characters, a space is "Ġ").
  const std::string& token(TokenId id) const;
  // Returns the bytes of text that the token represents.
  std::string_view token_bytes(TokenId id) const;
  std::optional<TokenId> find(std::string_view token) const;
  bool is_special(TokenId id) const;

  // Return the ids of special tokens, found by content. bad_input if the vocabulary lacks the token.
  TokenId unk_id() const;  // [UNK]
  TokenId pad_id() const;  // [PAD]
  TokenId eos_id() const;  // [EOS]

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace some
