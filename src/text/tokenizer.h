// Byte-pair tokenizers in the two kinds the project uses, read from and written to Hugging Face tokenizer.json files.
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
  whitespace,  // words and runs of punctuation (\w+|[^\w\s]+), whitespace is lost: what the published runs used
  bytelevel,   // GPT-2 style, every byte string comes back unchanged: the default
};

// "whitespace" or "bytelevel"; any other name is bad input.
TokenizerKind tokenizer_kind(std::string_view name);
std::string_view tokenizer_kind_name(TokenizerKind kind);

struct EncodeOptions {
  // Special tokens standing literally in the text ("[EOS]") become their ids, as Hugging Face does it. Without
  // this they are text like any other.
  bool specials = true;
};

struct DecodeOptions {
  // Leave special tokens out of the text. Off by default, so that decode(encode(text)) is the text (bytelevel).
  bool skip_specials = false;
};

// A value that is cheap to copy (copies share one vocabulary) and safe to use from many threads at once.
class Tokenizer {
 public:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // Reads a tokenizer.json. A part that is not supported here is bad input that names the part; so is any damage.
  static Tokenizer load(const std::filesystem::path& path);
  // `origin` names the text in error messages.
  static Tokenizer from_json(std::string_view text, std::string_view origin = "tokenizer.json");
  // The layout Hugging Face's library writes, byte for byte.
  std::string to_json() const;
  // Written to a temporary name and renamed, so that a reader never meets half a file.
  void save(const std::filesystem::path& path) const;

  TokenizerKind kind() const;
  std::size_t vocab_size() const;
  // xxh64 of to_json(): the key of caches made with this tokenizer.
  std::uint64_t hash() const;

  // Ids of the text. `ids` and `byte_lengths` are replaced. byte_lengths[i] is the number of bytes of text from the
  // end of the token before to the end of token i, so the lengths add up to the offset where the last token ends:
  // the whole text in the bytelevel kind, all but trailing whitespace in the whitespace kind.
  void encode(std::string_view text, std::vector<TokenId>& ids, std::vector<std::uint32_t>& byte_lengths,
              EncodeOptions options = {}) const;
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  // Whether a long text may be encoded in parts (part_end in pretokenize.h), without specials, to the same ids. Not
  // where the vocabulary has added tokens with whitespace in them, which a border could cut in two.
  bool encodes_in_parts() const;

  // bytelevel: the bytes of the tokens; whitespace: the tokens with one space between them. An id outside the
  // vocabulary is bad input.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // The token as it stands in the vocabulary (bytelevel: bytes as printable characters, a space is "Ġ").
  const std::string& token(TokenId id) const;
  // The bytes the token stands for in a text.
  std::string_view token_bytes(TokenId id) const;
  std::optional<TokenId> find(std::string_view token) const;
  bool is_special(TokenId id) const;

  // The special ids, found by content; a vocabulary that lacks the token is bad input that says so.
  TokenId unk_id() const;  // [UNK]
  TokenId pad_id() const;  // [PAD]
  TokenId eos_id() const;  // [EOS]

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace some
