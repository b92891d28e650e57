// Damages a file like a faulty disk: flips every bit, one at a time.
#pragma once

#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>

namespace some {

// Calls `look` with each bit of the file flipped once; restores the file at the end.
inline void flip_every_bit(const std::string& path, const std::function<void(std::size_t byte, int bit)>& look) {
  std::ifstream whole(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  };
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      put(at, static_cast<char>(bytes[at] ^ (1 << bit)));
      look(at, bit);
    }
    put(at, bytes[at]);
  }
}

}  // namespace some
