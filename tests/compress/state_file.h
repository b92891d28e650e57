// Changes the fields of a state file of `some compress` and gives it the hash of its new contents.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/files/files.h"

namespace some {

class StateFile {
 public:
  struct Field {
    std::size_t at = 0, size = 0;
  };
  static constexpr std::size_t strings = 2;

  // The bytes must be a valid state file.
  explicit StateFile(std::string bytes) : bytes_(std::move(bytes)) {
    std::size_t at = 0;
    const auto piece = [&](std::size_t size) {
      pieces_.push_back({at, size});
      at += size;
    };
    const auto number = [&] {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes_.data() + at, sizeof(value));
      piece(sizeof(value));
      return value;
    };
    piece(8);  // magic
    number();  // key
    const std::uint64_t count = number();
    std::vector<std::uint64_t> sizes, lengths;
    for (std::size_t i = 0; i < strings; ++i) lengths.push_back(number());
    for (std::uint64_t i = 0; i < count; ++i) sizes.push_back(number());
    sizes.insert(sizes.end(), lengths.begin(), lengths.end());
    for (const std::uint64_t size : sizes) {
      fields_.push_back({at, size});
      piece(size);
    }
  }

  // The fields of fixed size in their order, then the strings.
  const std::vector<Field>& fields() const { return fields_; }
  std::string& bytes() { return bytes_; }

  template <typename Number>
  void set(std::size_t field, std::size_t index, Number value) {
    std::memcpy(bytes_.data() + fields_[field].at + index * sizeof(value), &value, sizeof(value));
  }

  // Returns the file with the hash of its contents: that of each piece continues the one before it.
  std::string sealed() const {
    std::string out = bytes_;
    std::uint64_t hash = 0;
    for (const Field& one : pieces_) hash = hash_bytes(out.data() + one.at, one.size, hash);
    std::memcpy(out.data() + out.size() - sizeof(hash), &hash, sizeof(hash));
    return out;
  }

 private:
  std::string bytes_;
  std::vector<Field> pieces_, fields_;
};

}  // namespace some
