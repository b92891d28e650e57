// The mask of dropout (spec 2): a pure function of (seed, step, place, position, channel), on both devices.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace some {

// Channels that share one block of Philox: each takes 16 of its 128 bits.
inline constexpr std::int64_t dropout_group = 8;
inline constexpr std::int64_t max_dropout_groups = 8192;  // of a position: 65,536 channels

// A channel is dropped if its 16 bits are below this. Rates are therefore rounded to 1/65536.
inline std::uint32_t dropout_threshold(double rate) {
  return static_cast<std::uint32_t>(std::min(std::lround(rate * 65536.0), 65535L));
}
inline double dropout_scale(std::uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

SOME_HD inline Philox dropout_bits(std::uint64_t key, std::uint64_t place, std::int64_t position, std::int64_t group) {
  return philox(key, static_cast<std::uint64_t>(position * max_dropout_groups + group), place);
}
SOME_HD inline bool dropout_keeps(const Philox& bits, int channel_of_group, std::uint32_t threshold) {
  return (bits.v[channel_of_group >> 1] >> (16 * (channel_of_group & 1)) & 0xFFFFu) >= threshold;
}

// The key of a step travels in device memory, so that a recorded step can be replayed with another one: four pieces of
// 16 bits, which are exact in every type of number.
inline std::array<double, 4> dropout_key_pieces(std::uint64_t seed, std::int64_t step) {
  const std::uint64_t key = random_stream(seed, "dropout").bits64(static_cast<std::uint64_t>(step));
  std::array<double, 4> pieces{};
  for (std::size_t i = 0; i < 4; ++i) pieces[i] = static_cast<double>(key >> (16 * i) & 0xFFFFu);
  return pieces;
}
template <typename T>
SOME_HD std::uint64_t dropout_key(const T* pieces) {
  std::uint64_t key = 0;
  for (int i = 0; i < 4; ++i) key |= static_cast<std::uint64_t>(pieces[i]) << (16 * i);
  return key;
}

}  // namespace some
