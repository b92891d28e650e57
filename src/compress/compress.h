// Lossless compression of arbitrary bytes by arithmetic coding: with a model that reads the text while it is coded, or
// portable, with contexts only. Both learn from each byte after it was coded (docs/compress.md).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "compress/compressed_file.h"
#include "runs/run.h"

namespace some {

struct CompressOptions {
  int parts = 0;           // parts of the text coded side by side; 0: one per 16 KiB, at most 8
  std::string state = {};  // file for the state, from which an interrupted command continues; empty: none
  double state_seconds = 30;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  // in bytes of the text
  std::function<bool()> stop = {};                                             // polled before every token
};

struct CompressReport {
  CompressionMode mode = CompressionMode::stored;
  std::uint64_t bytes = 0, compressed = 0, header = 0;
  std::int64_t tokens = 0;       // with a model only
  double model_bytes = 0;        // size that the model would reach without contexts: the sum of its losses
  std::uint64_t resumed_at = 0;  // bytes already coded before an interruption
  int parts = 0;
  double seconds = 0;
  bool stopped = false;
  double bits_per_byte() const {
    return bytes > 0 ? 8.0 * static_cast<double>(compressed) / static_cast<double>(bytes) : 0;
  }
};

// Returns the compressed file. run: null for the portable mode. Empty if `stop` interrupted it (report.stopped).
std::string compress_text(OpenedRun* run, std::string_view text, const CompressOptions& options,
                          CompressReport& report);
// Returns the text of a compressed file. run: may be null if the file does not need one. Throws bad_input:
// compressed_invalid if the file is damaged, compressed_mismatch if it requires another run or other arithmetic.
std::string decompress_text(OpenedRun* run, std::string_view file, const std::string& where,
                            const CompressOptions& options, CompressReport& report);
nlohmann::json to_json(const CompressReport& report);

}  // namespace some
