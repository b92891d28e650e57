// The binary form of a tokenised corpus, the same in memory and on disk, so that a corpus larger than memory is only
// mapped:
//
//   head     magic, version
//   stories  one after another: ids, byte lengths where they have to be kept, padding to 8 bytes
//   table    where each story begins, its tokens, the bytes of its text, whether its byte lengths are there
//   lengths  the byte length of each id (u16) in the stories without their own, padding to 8 bytes
//   tail     place of the table, counts, the key it was made for, hash of the ids, checksum of all before it
//
// An id takes 2 bytes where the vocabulary has at most 65,536, otherwise 4. How many bytes of text an id stands for is
// mostly a function of the id (always, but for the largest numbers of blanks, in a byte-level vocabulary), so a story
// has a u16 for each of its tokens only where one of them differs: where blanks or unknown characters come before it.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/token_data.h"

namespace some {

// What a token file was made from. It is used only when all of it is the same.
struct TokenKey {
  std::uint64_t text = 0;
  std::uint64_t tokenizer = 0;
  std::uint64_t eos = 1;
};

struct StoryEntry {
  std::uint64_t position;  // from the beginning of the file
  std::uint64_t tokens;
  std::uint64_t text_bytes;
  std::uint64_t lengths;  // 1: a byte length for each token follows the ids; 0: those of the ids
};

// Bytes of an id in a vocabulary of this size.
constexpr std::size_t id_size(std::int64_t vocab) { return vocab <= 65536 ? 2 : 4; }

struct TokenData::Impl {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  const StoryEntry* table = nullptr;
  std::span<const std::uint16_t> lengths;  // of ids
  std::size_t id_size = 4;
  std::int64_t stories = 0;
  std::int64_t tokens = 0;
  std::uint64_t hash = 0;
};

class TokenWriter {
 public:
  // vocab: ids are below it.
  TokenWriter(ByteSink sink, const TokenKey& key, std::int64_t vocab);
  void add(std::span<const std::int32_t> ids, std::span<const std::uint32_t> byte_lengths, std::int64_t text_bytes);
  void finish();
  std::int64_t stories() const { return static_cast<std::int64_t>(table_.size()); }

 private:
  void write(const void* data, std::size_t size);
  void pad();
  bool lengths_follow_from(std::span<const std::int32_t> ids);
  ByteSink sink_;
  TokenKey key_;
  std::int64_t vocab_;
  std::vector<std::uint16_t> narrow_, id_lengths_;
  std::vector<StoryEntry> table_;
  std::vector<std::uint16_t> lengths_;
  std::uint64_t position_ = 0;
  std::uint64_t tokens_ = 0;
  std::shared_ptr<XXH3_state_t> checksum_, ids_hash_;
};

// Checks everything, the checksum too. Returns nothing and says why when it is not whole or not made for `key`.
std::shared_ptr<const TokenData::Impl> open_token_image(const MappedFile& image, const TokenKey& key,
                                                        std::string* problem);

// The same image in memory, for data without a cache.
TokenData tokens_in_memory(const TokenKey& key, std::int64_t vocab, const std::function<void(TokenWriter&)>& produce);

}  // namespace some
