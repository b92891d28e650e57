// Logistic functions in fixed point, in integer arithmetic, so that every machine and compiler gives the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace some {

// Probabilities have 16 fractional bits and are never 0 or 1: 1..65535. Log-odds ("stretched" probabilities) are in
// units of 1/256 nat.
inline constexpr int log_odds_unit = 256;
inline constexpr int max_log_odds = 12 * log_odds_unit - 1;
inline constexpr std::int32_t probability_one = 65536;

struct LogisticTables {
  std::uint16_t squash[2 * max_log_odds + 1];
  std::int16_t stretch[65536];
};
const LogisticTables& logistic_tables();

// Returns 1 / (1 + e^-x).
inline std::int32_t squash(std::int64_t log_odds) {
  const auto bounded = std::clamp<std::int64_t>(log_odds, -max_log_odds, max_log_odds);
  return logistic_tables().squash[bounded + max_log_odds];
}
// Returns ln(p / (1 - p)).
inline std::int32_t stretch(std::uint32_t probability) { return logistic_tables().stretch[probability]; }

// Returns e^(-x / 65536) with 32 fractional bits; 0 if it is below 2^-32.
std::uint64_t exp_minus(std::uint64_t x);

}  // namespace some
