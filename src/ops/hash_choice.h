// Hash routing (Hash Layers): the experts of a token depend only on its id. One definition for all devices, so that
// they agree.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace some {

// Fills chosen[0..k-1] with distinct experts for token id `token`, in random order: a random subset by Floyd's method,
// then a shuffle. Uses no memory other than the result; k <= experts.
SOME_HD inline void hash_route_token(std::uint64_t seed, int layer, std::int32_t token, int experts, int k,
                                     std::int32_t* chosen) {
  const std::uint64_t place =
      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(layer)) << 32) | static_cast<std::uint32_t>(token);
  const RandomStream stream{mix64(mix64(seed ^ 0x726F757465ull) ^ place)};
  std::uint64_t drawn = 0;
  for (int count = 0; count < k; ++count) {
    const int last = experts - k + count;
    std::int32_t pick = static_cast<std::int32_t>(stream.below(drawn++, static_cast<std::uint32_t>(last + 1)));
    for (int i = 0; i < count; ++i) {
      if (chosen[i] == pick) {
        pick = last;  // not chosen yet: all chosen experts are smaller
        break;
      }
    }
    chosen[count] = pick;
  }
  for (int i = k - 1; i > 0; --i) {
    const int j = static_cast<int>(stream.below(drawn++, static_cast<std::uint32_t>(i + 1)));
    const std::int32_t other = chosen[j];
    chosen[j] = chosen[i];
    chosen[i] = other;
  }
}

}  // namespace some
