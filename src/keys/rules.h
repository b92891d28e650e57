// What the CPU and the GPU version of the key store must agree on beyond the formulas of spec 4: which positions take
// part, which are drawn for rebirth, and the choices where the specification leaves one.
//
// - Flux: the factor E/(P*k) is E / (sum of all slot counts), which is the same number, and stays right while
//   topk_warmup routes by fewer than k choices.
// - Percentile theta: of n used experts sorted upwards, at place q*(n-1), linear between neighbours; nothing decays
//   when none is used.
// - key_ema: average <- key_ema * average + (1 - key_ema) * K.
// - Rebirth: the dead keys, by rising expert number, take the sampled positions, by rising priority. A reborn key's
//   average starts anew at the new key, otherwise the expert would be found at the old place for as long as the
//   average remembers it.
// - KeyState::counts after an update: [0] += keys reborn, [1] += keys found shorter than respawn_threshold (reborn or
//   not), [2] = these of this update, [3] = P. When no position took part, [2] and [3] become 0 and nothing else
//   changes but KeyState::steps.
// - Arithmetic is in double precision between master tensors, rounded once at the end, except that usage and mass are
//   rounded before they are used.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "base/rooms.h"

namespace some::keys {

// position: the number of the row among the step's positions (SumOptions::first_position + row).
SOME_HD inline bool takes_part(const RandomStream& stream, double fraction, std::int64_t position) {
  return fraction >= 1.0 || static_cast<double>(stream.uniform(static_cast<std::uint64_t>(position))) < fraction;
}

// In [0, INT64_MAX - 1]; of equal ones the earlier position wins. From blocks that uniform() does not use.
SOME_HD inline std::int64_t sample_priority(const RandomStream& stream, std::int64_t position) {
  const Philox block = philox(stream.key, static_cast<std::uint64_t>(position), 1);
  const std::uint64_t bits = (static_cast<std::uint64_t>(block.v[1]) << 32 | block.v[0]) >> 1;
  const std::uint64_t largest = 0x7FFFFFFFFFFFFFFEull;
  return static_cast<std::int64_t>(bits < largest ? bits : largest);
}
inline constexpr std::int64_t kNoSample = 0x7FFFFFFFFFFFFFFFll;

// N(0, 0.01^2) for element `column` of the reborn key of `expert`.
SOME_HD inline double rebirth_noise(const RandomStream& stream, std::int64_t expert, std::int64_t query_size,
                                    std::int64_t column) {
  return 0.01 * static_cast<double>(stream.normal(static_cast<std::uint64_t>(expert * query_size + column)));
}

// Below this a vector is not made longer (spec 3.2).
inline constexpr double kSmallestLength = 1e-12;

}  // namespace some::keys
