// The format of compressed files (docs/compressed-file.md): a header with checksums, then the coded text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace some {

enum class CompressionMode : std::uint8_t {
  stored,    // uncompressed bytes, if compression saves nothing
  portable,  // contexts only, in integer arithmetic: decodes on any machine without a run
  model,     // also uses a run's model: decodes only with the same run and the same arithmetic
};
const char* name_of(CompressionMode mode);

struct CompressedHeader {
  CompressionMode mode = CompressionMode::stored;
  std::uint64_t length = 0;          // size of the text in bytes
  std::uint64_t checksum = 0;        // XXH3 of the text
  std::vector<std::uint64_t> parts;  // borders of the parts coded side by side, from 0 to length; empty if stored
  // Only with a model:
  std::string model;        // fingerprint of the model with its tokenizer (memory/memory.h)
  std::string arithmetic;   // describe_arithmetic()
  std::uint64_t probe = 0;  // probe_arithmetic()
};

// Maximum size of a file to compress.
inline constexpr std::uint64_t max_compressed_bytes = std::uint64_t{1} << 31;
inline constexpr int max_coded_parts = 64;

std::string write_compressed(const CompressedHeader& header, std::string_view payload);

struct CompressedFile {
  CompressedHeader header;
  std::string_view payload;  // size of the parsed header
  std::uint64_t header_bytes = 0;
};
// Throws bad_input (compressed_invalid), naming `where`, if the bytes are not a complete, undamaged file.
CompressedFile parse_compressed(std::string_view bytes, const std::string& where);

}  // namespace some
