// Binary format of a tokenized corpus, the same in memory and on disk, so that a corpus larger than memory is only
// memory-mapped:
//
//   head     magic, version
//   stories  the documents, concatenated: ids, byte lengths if they must be stored, padding to 8 bytes
//   table    per document: offset, number of tokens, bytes of its text, whether its byte lengths are stored
//   lengths  the byte length of each id (u16) for documents without stored byte lengths, padding to 8 bytes
//   tail     offset of the table, counts, the key, hash of the ids, checksum of all preceding bytes
//
// An id takes 2 bytes if the vocabulary has at most 65,536 tokens, otherwise 4. The number of text bytes of an id is
// usually a function of the id (in a byte-level vocabulary always, except after very long runs of blanks). So a
// document stores a u16 per token only if one of its tokens differs, because blanks or unknown characters precede it.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/files/files.h"
#include "data/token_data.h"

namespace some {

// Identifies the inputs of a token file, which is used only if all of them match.
struct TokenKey {
  std::uint64_t text = 0;
  std::uint64_t tokenizer = 0;
  std::uint64_t eos = 1;
};

struct DocumentEntry {
  std::uint64_t position;  // offset from the beginning of the file
  std::uint64_t tokens;
  std::uint64_t text_bytes;
  std::uint64_t lengths;  // 1: a byte length per token follows the ids; 0: the byte lengths of the ids apply
};

// Returns the bytes per id for a vocabulary of this size.
constexpr std::size_t id_size(std::int64_t vocab) { return vocab <= 65536 ? 2 : 4; }

struct TokenData::Impl {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  const DocumentEntry* table = nullptr;
  std::span<const std::uint16_t> lengths;  // byte lengths by id
  std::size_t id_size = 4;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::uint64_t hash = 0;
};

class TokenWriter {
 public:
  // All ids must be in [0, vocab).
  TokenWriter(ByteSink sink, const TokenKey& key, std::int64_t vocab);
  void add(std::span<const std::int32_t> ids, std::span<const std::uint32_t> byte_lengths, std::int64_t text_bytes);
  // The same for a document in parts, so that a long one never exists as ids and byte lengths of four bytes each.
  void add_part(std::span<const std::int32_t> ids, std::span<const std::uint32_t> byte_lengths);
  void end_document(std::int64_t text_bytes);
  std::uint64_t open_tokens() const { return open_tokens_; }  // of the parts since the last end of a document
  void finish();
  std::int64_t documents() const { return static_cast<std::int64_t>(table_.size()); }

 private:
  void write(const void* data, std::size_t size);
  void pad();
  void keep_id(std::int32_t id);
  bool matches_id(std::int32_t id, std::uint16_t length);
  void write_own_lengths();
  ByteSink sink_;
  TokenKey key_;
  std::int64_t vocab_;
  std::vector<std::uint16_t> id_lengths_;
  std::vector<DocumentEntry> table_;
  // The open document: its ids as the file stores them, in blocks that never move (a growing array would need twice its
  // size), and the byte lengths that are not those of their ids, each with its position in the document.
  std::vector<std::vector<char>> id_blocks_;
  std::vector<std::pair<std::uint64_t, std::uint16_t>> own_lengths_;
  std::uint64_t open_tokens_ = 0, carried_ = 0;
  bool lengths_match_ = true;
  std::uint64_t position_ = 0;
  std::uint64_t tokens_ = 0;
  std::shared_ptr<XXH3_state_t> checksum_, ids_hash_;
};

// Opens an image and checks everything, including the checksum. Returns null and sets `problem` if the image is damaged
// or does not match `key`.
std::shared_ptr<const TokenData::Impl> open_token_image(const MappedFile& image, const TokenKey& key,
                                                        std::string* problem);

// Builds the same image in memory, for data without a cache.
TokenData tokens_in_memory(const TokenKey& key, std::int64_t vocab, const std::function<void(TokenWriter&)>& produce);

}  // namespace some
