#include "text/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace some {

MergeTable::MergeTable(std::size_t expected) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(16, expected * 2));
  slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
  if ((used_ + 1) * 2 > slots_.size()) grow();
  const std::uint64_t key = key_of(left, right);
  for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
    if (slots_[i].key == empty_key) {
      slots_[i] = {key, merge};
      ++used_;
      return;
    }
    if (slots_[i].key == key) {
      slots_[i].merge = merge;
      return;
    }
  }
}

void MergeTable::grow() {
  std::vector<Slot> old = std::move(slots_);
  *this = MergeTable(old.size());
  for (const Slot& slot : old) {
    if (slot.key == empty_key) continue;
    set(static_cast<TokenId>(slot.key >> 32), static_cast<TokenId>(slot.key & 0xFFFFFFFFu), slot.merge);
  }
}

namespace {

constexpr std::size_t short_word = 64;

// Nearly all words have a few characters, for which a linear scan over all ranks per merge is fastest.
void merge_short(const MergeTable& table, std::vector<Piece>& pieces) {
  MergeTable::Merge merges[short_word];
  std::size_t count = pieces.size();
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = table.find(pieces[i].id, pieces[i + 1].id);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::no_rank) break;
    pieces[best] = {merges[best].id, pieces[best].bytes + pieces[best + 1].bytes};
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      pieces[i] = pieces[i + 1];
      merges[i] = merges[i + 1];
    }
    if (best > 0) merges[best - 1] = table.find(pieces[best - 1].id, pieces[best].id);
    if (best + 1 < count) merges[best] = table.find(pieces[best].id, pieces[best + 1].id);
  }
  pieces.resize(count);
}

// Positions at which merges of one rank apply, from left to right; those before `done` are finished.
struct Places {
  std::vector<std::uint32_t> at;
  std::size_t done = 0;
  bool sorted = true;

  void add(std::uint32_t place) {
    if (!at.empty() && place < at.back()) sorted = false;
    at.push_back(place);
  }
  void sort() {
    if (!sorted) std::sort(at.begin() + static_cast<std::ptrdiff_t>(done), at.end());
    sorted = true;
  }
};

// Merges a long word (a text without spaces may be one word of many megabytes). A linked list with the positions per
// rank keeps the work from growing with the square of the length.
void merge_long(const MergeTable& table, std::vector<Piece>& pieces) {
  constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  const auto count = static_cast<std::uint32_t>(pieces.size());
  std::vector<std::uint32_t> next(count), previous(count);
  std::map<std::uint32_t, Places> places;
  const auto note = [&](std::uint32_t left, std::uint32_t right) {
    const MergeTable::Merge merge = table.find(pieces[left].id, pieces[right].id);
    if (merge.rank != MergeTable::no_rank) places[merge.rank].add(left);
    return merge.rank;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? none : i - 1;
    next[i] = i + 1 == count ? none : i + 1;
    if (i + 1 < count) note(i, i + 1);
  }
  while (!places.empty()) {
    auto lowest = places.extract(places.begin());
    const std::uint32_t rank = lowest.key();
    Places& here = lowest.mapped();
    here.sort();
    bool interrupted = false;
    while (here.done < here.at.size() && !interrupted) {
      const std::uint32_t left = here.at[here.done++];
      const std::uint32_t right = next[left];
      // The pieces at this position may have been merged otherwise since it was recorded; merged pieces have id -1.
      if (pieces[left].id < 0 || right == none) continue;
      const MergeTable::Merge merge = table.find(pieces[left].id, pieces[right].id);
      if (merge.rank != rank) continue;
      pieces[left] = {merge.id, pieces[left].bytes + pieces[right].bytes};
      pieces[right].id = -1;
      next[left] = next[right];
      if (next[left] != none) previous[next[left]] = left;
      // In a vocabulary from elsewhere, a pair formed here may have a lower rank than the rest of this list. (It cannot
      // be the same pair again, because tokens only grow.)
      if (previous[left] != none) interrupted = note(previous[left], left) < rank;
      if (next[left] != none) interrupted = note(left, next[left]) < rank || interrupted;
    }
    if (interrupted) places.insert(std::move(lowest));
  }
  std::erase_if(pieces, [](const Piece& piece) { return piece.id < 0; });
}

}  // namespace

void merge_pieces(const MergeTable& table, std::vector<Piece>& pieces) {
  if (pieces.size() <= short_word) {
    merge_short(table, pieces);
  } else {
    merge_long(table, pieces);
  }
}

}  // namespace some
