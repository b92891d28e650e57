// The format of compressed files (docs/compress.md): a header with checksums, then the coded text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace some {

enum class CompressionMode : std::uint8_t {
  stored,    // the bytes as they are: nothing would be saved
  portable,  // contexts only, in integers: decodes anywhere, needs no run
  model,     // a run's model as well: decodes with the same run on the same arithmetic
};
const char* name_of(CompressionMode mode);

struct CompressedHeader {
  CompressionMode mode = CompressionMode::stored;
  std::uint64_t length = 0;          // bytes of the text
  std::uint64_t checksum = 0;        // of the text (XXH3)
  std::vector<std::uint64_t> parts;  // borders of the parts coded side by side, from 0 to length; not if stored
  // Model only:
  std::string model;        // fingerprint of the model with its tokenizer (memory/memory.h)
  std::string arithmetic;   // describe_arithmetic()
  std::uint64_t probe = 0;  // probe_arithmetic()
};

// The largest file that is compressed at once.
inline constexpr std::uint64_t max_compressed_bytes = std::uint64_t{1} << 31;
inline constexpr int max_coded_parts = 64;

std::string write_compressed(const CompressedHeader& header, std::string_view payload);

struct CompressedFile {
  CompressedHeader header;
  std::string_view payload;  // within the bytes that were parsed
  std::uint64_t header_bytes = 0;
};
// Throws bad_input (compressed_invalid) that names `where` if the bytes are not a whole, undamaged file.
CompressedFile parse_compressed(std::string_view bytes, const std::string& where);

}  // namespace some
