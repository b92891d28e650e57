// Sizes of a text compressed by other programs, the baselines for bits per byte. They are used if they are installed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace some {

struct CompressorSize {
  std::string name;                    // "zpaq -m5"
  std::string package;                 // the Debian package that has it
  std::optional<std::uint64_t> bytes;  // empty: not installed, or the program failed
};

// Runs bzip2 -9, xz -9e, brotli -q 11, PPMd (7z) and zpaq -m5 on a text, in a temporary folder that is removed.
std::vector<CompressorSize> measure_compressors(std::string_view text);
nlohmann::json to_json(const std::vector<CompressorSize>& sizes);

}  // namespace some
