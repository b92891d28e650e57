// Arithmetic coding of binary decisions with a 64-bit interval. Bytes that both ends of the interval share are written
// immediately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compress/context_mixer.h"

namespace some {

// The part of an interval [low, high] assigned to a 1, whose probability has 16 bits (1..65535).
inline std::uint64_t split_interval(std::uint64_t low, std::uint64_t high, std::uint32_t probability) {
  const std::uint64_t range = high - low;
  return low + (range >> 16) * probability + (((range & 0xffff) * probability) >> 16);
}

// True for an interval between two decisions: its ends differ in their first byte.
inline bool interval_valid(std::uint64_t low, std::uint64_t high) { return low >> 56 < high >> 56; }

class BinaryEncoder {
 public:
  void encode(bool one, std::uint32_t probability) {
    const std::uint64_t middle = split_interval(low_, high_, probability);
    if (one)
      high_ = middle;
    else
      low_ = middle + 1;
    while ((low_ ^ high_) >> 56 == 0) {
      bytes_.push_back(static_cast<char>(high_ >> 56));
      low_ <<= 8;
      high_ = high_ << 8 | 255;
    }
  }
  // Ends the stream with as few bytes as possible: a decoder reads zeros after the last byte.
  void finish() {
    for (int kept = 0; kept <= 8; ++kept) {
      const std::uint64_t mask = kept == 0 ? 0 : ~std::uint64_t{0} << (64 - 8 * kept);
      std::uint64_t value = high_ & mask;
      if (value < low_) continue;
      for (int i = 0; i < kept; ++i, value <<= 8) bytes_.push_back(static_cast<char>(value >> 56));
      while (!bytes_.empty() && bytes_.back() == 0) bytes_.pop_back();
      break;
    }
    low_ = 0;
    high_ = ~std::uint64_t{0};
  }
  const std::string& bytes() const { return bytes_; }
  std::string& bytes() { return bytes_; }

  std::vector<StateField> state() { return {{"low", &low_, sizeof(low_)}, {"high", &high_, sizeof(high_)}}; }
  bool state_valid() const { return interval_valid(low_, high_); }

 private:
  std::uint64_t low_ = 0, high_ = ~std::uint64_t{0};
  std::string bytes_;
};

// Decodes any bytes without failing: checksums detect damage.
class BinaryDecoder {
 public:
  explicit BinaryDecoder(std::string_view bytes) : bytes_(bytes) {
    for (int i = 0; i < 8; ++i) value_ = value_ << 8 | next();
  }
  bool decode(std::uint32_t probability) {
    const std::uint64_t middle = split_interval(low_, high_, probability);
    const bool one = value_ <= middle;
    if (one)
      high_ = middle;
    else
      low_ = middle + 1;
    while ((low_ ^ high_) >> 56 == 0) {
      low_ <<= 8;
      high_ = high_ << 8 | 255;
      value_ = value_ << 8 | next();
    }
    return one;
  }
  std::vector<StateField> state() {
    return {{"low", &low_, sizeof(low_)},
            {"high", &high_, sizeof(high_)},
            {"value", &value_, sizeof(value_)},
            {"at", &at_, sizeof(at_)}};
  }
  bool state_valid() const { return interval_valid(low_, high_) && low_ <= value_ && value_ <= high_ && at_ >= 8; }

 private:
  std::uint64_t next() {
    const std::uint64_t byte = at_ < bytes_.size() ? static_cast<unsigned char>(bytes_[at_]) : 0;
    ++at_;
    return byte;
  }
  std::string_view bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t low_ = 0, high_ = ~std::uint64_t{0}, value_ = 0;
};

}  // namespace some
