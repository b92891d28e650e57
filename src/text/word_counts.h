// Counts of distinct words, in about 40 bytes per word besides the word itself.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

namespace some {

// If memory runs out, add() throws and the counts can only be destroyed.
class WordCounts {
 public:
  struct Entry {
    std::string_view word;
    std::uint64_t count = 0;
  };

  WordCounts() { resize(1u << 10); }

  void add(std::string_view word, std::uint64_t count = 1) {
    const std::uint64_t hash = hash_of(word);
    const std::uint8_t tag = tag_of(hash);
    std::size_t i = hash & mask_;
    for (; index_[i] != 0; i = (i + 1) & mask_) {
      if (tags_[i] != tag) continue;
      Entry& entry = entries_[index_[i] - 1];
      if (entry.word == word) {
        entry.count += count;
        return;
      }
    }
    entries_.push_back({store(word), count});
    index_[i] = static_cast<std::uint32_t>(entries_.size());
    tags_[i] = tag;
    if (entries_.size() * 4 > index_.size() * 3) resize(index_.size() * 2);
  }

  // In the order of their first occurrence.
  const std::deque<Entry>& entries() const { return entries_; }
  // Total length of the words.
  std::size_t bytes() const { return bytes_; }
  // Frees the table for lookups; entries() remains valid, but no word can be added.
  void finish() {
    index_ = {};
    tags_ = {};
  }

 private:
  static constexpr std::size_t chunk_bytes = 1u << 20;

  static std::uint64_t hash_of(std::string_view word) { return XXH3_64bits(word.data(), word.size()); }
  static std::uint8_t tag_of(std::uint64_t hash) { return static_cast<std::uint8_t>(hash >> 56); }

  std::string_view store(std::string_view word) {
    if (word.size() > left_) {
      const std::size_t size = std::max(chunk_bytes, word.size());
      chunks_.push_back(std::make_unique_for_overwrite<char[]>(size));
      free_ = chunks_.back().get();
      left_ = size;
    }
    std::memcpy(free_, word.data(), word.size());
    const std::string_view stored(free_, word.size());
    free_ += word.size();
    left_ -= word.size();
    bytes_ += word.size();
    return stored;
  }

  void resize(std::size_t size) {
    index_.assign(size, 0);
    tags_.assign(size, 0);
    mask_ = size - 1;
    std::uint32_t number = 0;
    for (const Entry& entry : entries_) {
      const std::uint64_t hash = hash_of(entry.word);
      std::size_t i = hash & mask_;
      while (index_[i] != 0) i = (i + 1) & mask_;
      index_[i] = ++number;
      tags_[i] = tag_of(hash);
    }
  }

  std::deque<Entry> entries_;  // grows without copies
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;
  std::size_t left_ = 0, bytes_ = 0, mask_ = 0;
  std::vector<std::uint32_t> index_;  // hash table: 1 + number of the entry; 0 = free
  std::vector<std::uint8_t> tags_;    // first byte of the hash of each slot, to avoid most comparisons
};

}  // namespace some
