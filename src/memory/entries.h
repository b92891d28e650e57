// The tokens of one slot, each with its count and its places (spec 8). Shared by both devices.
#pragma once

#include <cstdint>

#include "core/random.h"  // SOME_HD

namespace some {

// Number: type of the counts; Where: type of packed places. Entry j is stored `stride` after entry j - 1.
template <typename Number, typename Where>
struct Entries {
  std::int32_t* values;
  Number* entry_counts;
  Where *born, *hit;
  std::int64_t stride;
  int count;

  SOME_HD bool holds(std::int32_t token) const { return entry_of(token) < count; }
  SOME_HD int entry_of(std::int32_t token) const {
    int j = 0;
    while (j < count && values[j * stride] != token) ++j;
    return j;
  }

  // Counts one more occurrence of a token, if the slot holds it.
  SOME_HD void found(std::int32_t token, Where place) const {
    const int j = entry_of(token);
    if (j == count) return;
    entry_counts[j * stride] += Number(1);
    hit[j * stride] = place;
  }

  // Adds an occurrence of a token, which the slot may not hold yet.
  SOME_HD void meet(std::int32_t token, Where place) const {
    if (holds(token))
      found(token, place);
    else
      take(token, Number(1), place, place);
  }

  // Resets the slot to one token with count 1.
  SOME_HD void begin(std::int32_t token, Where place) const {
    put(0, token, Number(1), place, place);
    for (int j = 1; j < count; ++j) put(j, -1, Number(0), Where(-1), Where(-1));
  }

  // Merges a token of another slot, with its count. It is added to the same token if the slot holds it. Otherwise it
  // takes a free entry, or replaces the token with the lowest count (the first of them) if that count is not larger
  // than its own. Otherwise it is dropped.
  SOME_HD void take(std::int32_t token, Number token_count, Where first, Where last) const {
    const int same = entry_of(token);
    if (same < count) {
      entry_counts[same * stride] += token_count;
      return;
    }
    int least = 0;
    for (int j = 0; j < count; ++j) {
      if (values[j * stride] < 0) {
        put(j, token, token_count, first, last);
        return;
      }
      if (entry_counts[j * stride] < entry_counts[least * stride]) least = j;
    }
    if (entry_counts[least * stride] <= token_count) put(least, token, token_count, first, last);
  }
  SOME_HD void merge_all(const Entries& other) const {
    for (int j = 0; j < other.count; ++j) {
      const std::int64_t at = j * other.stride;
      if (other.values[at] >= 0) take(other.values[at], other.entry_counts[at], other.born[at], other.hit[at]);
    }
  }

  SOME_HD Number total() const {
    Number sum = entry_counts[0];
    for (int j = 1; j < count; ++j) sum += entry_counts[j * stride];
    return sum;
  }

 private:
  SOME_HD void put(int j, std::int32_t token, Number token_count, Where first, Where last) const {
    values[j * stride] = token;
    entry_counts[j * stride] = token_count;
    born[j * stride] = first;
    hit[j * stride] = last;
  }
};

}  // namespace some
