#include "compress/logistic.h"

#include <array>
#include <memory>

namespace some {

namespace {

__extension__ using Wide = unsigned __int128;

// Computes e^(-1/256) and e^(-1/65536) with 64 fractional bits, by the Taylor series of e^-x for x = 1 / 2^shift.
std::uint64_t exp_of_minus_power(int shift) {
  Wide sum = Wide{1} << 64, term = Wide{1} << 64;
  for (int n = 1; term != 0; ++n) {
    term = (term >> shift) / static_cast<unsigned>(n);
    sum = n % 2 == 1 ? sum - term : sum + term;
  }
  return static_cast<std::uint64_t>(sum);
}

std::uint64_t times(std::uint64_t a, std::uint64_t b) { return static_cast<std::uint64_t>((Wide{a} * b) >> 64); }

std::unique_ptr<LogisticTables> make_tables() {
  auto tables = std::make_unique<LogisticTables>();
  const std::uint64_t step = exp_of_minus_power(8);
  std::uint64_t power = ~std::uint64_t{0};  // e^-x, 64 fractional bits
  for (int x = 0; x <= max_log_odds; ++x) {
    // Table of 65536 / (1 + e^-x), rounded.
    const Wide below = (Wide{1} << 32) + (power >> 32);
    const auto p = static_cast<std::int64_t>(((Wide{1} << 49) / below + 1) / 2);
    tables->squash[max_log_odds + x] = static_cast<std::uint16_t>(std::min<std::int64_t>(p, 65535));
    tables->squash[max_log_odds - x] = static_cast<std::uint16_t>(std::max<std::int64_t>(65536 - p, 1));
    power = times(power, step);
  }
  // Returns the inverse: the log-odds with the nearest probability from below, or the middle of several.
  int x = -max_log_odds;
  for (int p = 0; p < 65536; ++p) {
    while (x < max_log_odds && tables->squash[x + 1 + max_log_odds] <= p) ++x;
    int first = x;
    while (first > -max_log_odds && tables->squash[first - 1 + max_log_odds] == tables->squash[x + max_log_odds])
      --first;
    tables->stretch[p] = static_cast<std::int16_t>((first + x) / 2);
  }
  return tables;
}

// Powers of e for three groups of 8 bits of x, with 64 fractional bits (the value 1 is stored as the largest number
// below 1).
struct Powers {
  std::array<std::array<std::uint64_t, 256>, 3> group;
};
Powers make_powers() {
  Powers powers{};
  std::uint64_t step = exp_of_minus_power(16);
  for (auto& group : powers.group) {
    std::uint64_t power = ~std::uint64_t{0};
    for (std::uint64_t& one : group) {
      one = power;
      power = times(power, step);
    }
    step = power;  // e^(-256 steps)
  }
  return powers;
}

}  // namespace

const LogisticTables& logistic_tables() {
  static const std::unique_ptr<const LogisticTables> tables = make_tables();
  return *tables;
}

std::uint64_t exp_minus(std::uint64_t x) {
  static const Powers powers = make_powers();
  if (x >> 24 != 0) return 0;
  return times(times(powers.group[0][x & 255], powers.group[1][x >> 8 & 255]), powers.group[2][x >> 16]) >> 32;
}

}  // namespace some
