// BPE merging within one word: lowest rank first, leftmost first among equal ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "text/tokenizer.h"

namespace some {

// A token in a word and the number of text bytes it covers.
struct Piece {
  TokenId id;
  std::uint32_t bytes;
};

// Maps a pair of adjacent tokens to the merged token and its rank. An open-addressing hash table, because encoding
// spends most of its time looking up pairs.
class MergeTable {
 public:
  static constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();
  struct Merge {
    std::uint32_t rank = no_rank;
    TokenId id = -1;
  };

  explicit MergeTable(std::size_t expected = 0);
  // Adds a merge. A pair added twice keeps the later rank, as in Hugging Face tokenizers.
  void set(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == empty_key) return {};
    }
  }

 private:
  static constexpr std::uint64_t empty_key = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = empty_key;
    Merge merge;
  };
  static std::uint64_t key_of(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> shift_) & mask_;
  }
  void grow();

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::size_t used_ = 0;
};

// Merges the pieces of one word in place until no adjacent pair is in the table.
void merge_pieces(const MergeTable& table, std::vector<Piece>& pieces);

}  // namespace some
