// Cache of encoded words: texts repeat their words, and a lookup is faster than merging.
#pragma once

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/bpe_merge.h"

namespace some {

// Maps words to their tokens. Not thread-safe. Bounded: a full cache is cleared, which limits memory and makes room for
// the words of the current text.
class WordCache {
 public:
  // Longer words rarely repeat.
  static constexpr std::size_t max_cached_word = 64;

  WordCache() { clear(); }

  static std::uint64_t hash(std::string_view word) { return XXH3_64bits(word.data(), word.size()); }

  // Returns the tokens of the word, or an empty span. Valid until the next insert.
  std::span<const Piece> find(std::string_view word, std::uint64_t hash) const {
    for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.pieces == 0) return {};
      if (entry.hash == hash && entry.length == word.size() &&
          std::memcmp(keys_.data() + entry.key, word.data(), word.size()) == 0) {
        return {values_.data() + entry.value, entry.pieces};
      }
    }
  }

  // Adds a word that is not in the cache. Words without tokens are not stored.
  void insert(std::string_view word, std::uint64_t hash, std::span<const Piece> pieces) {
    if (pieces.empty() || word.size() > max_cached_word) return;
    if (used_ == max_words) clear();
    if ((used_ + 1) * 2 > entries_.size()) grow();
    place({hash, static_cast<std::uint32_t>(keys_.size()), static_cast<std::uint32_t>(values_.size()),
           static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(pieces.size())});
    keys_.insert(keys_.end(), word.begin(), word.end());
    values_.insert(values_.end(), pieces.begin(), pieces.end());
    ++used_;
  }

 private:
  static constexpr std::size_t max_words = 1u << 17;
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t key = 0, value = 0;
    std::uint16_t length = 0, pieces = 0;
  };

  void clear() {
    entries_.assign(1u << 12, Entry{});
    mask_ = entries_.size() - 1;
    keys_.clear();
    values_.clear();
    used_ = 0;
  }
  void place(const Entry& entry) {
    std::size_t i = entry.hash & mask_;
    while (entries_[i].pieces != 0) i = (i + 1) & mask_;
    entries_[i] = entry;
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    for (const Entry& entry : old) {
      if (entry.pieces != 0) place(entry);
    }
  }

  std::vector<Entry> entries_;
  std::vector<char> keys_;
  std::vector<Piece> values_;
  std::size_t mask_ = 0, used_ = 0;
};

}  // namespace some
