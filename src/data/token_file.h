// The binary form of a tokenised corpus, the same in memory and on disk, so that a corpus larger than memory is only
// mapped:
//
//   head     magic, version
//   stories  one after another: ids (i32), byte lengths (u16), padding to 8 bytes
//   table    where each story begins, its tokens, the bytes of its text
//   tail     place of the table, counts, the key it was made for, hash of the ids, checksum of all before it
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
};

struct TokenData::Impl {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  const StoryEntry* table = nullptr;
  std::int64_t stories = 0;
  std::int64_t tokens = 0;
  std::uint64_t hash = 0;
};

class TokenWriter {
 public:
  TokenWriter(ByteSink sink, const TokenKey& key);
  void add(std::span<const std::int32_t> ids, std::span<const std::uint32_t> byte_lengths, std::int64_t text_bytes);
  void finish();
  std::int64_t stories() const { return static_cast<std::int64_t>(table_.size()); }

 private:
  void write(const void* data, std::size_t size);
  ByteSink sink_;
  TokenKey key_;
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
TokenData tokens_in_memory(const TokenKey& key, const std::function<void(TokenWriter&)>& produce);

}  // namespace some
