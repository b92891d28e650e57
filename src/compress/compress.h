// Lossless compression of any bytes by arithmetic coding: with a model that reads the text as it is coded, or portable,
// with contexts only. Both learn from every byte after it was coded (docs/compress.md).
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
  std::string state = {};  // file in which the state is kept, so that an interrupted command continues; empty: none
  double state_seconds = 30;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  // in bytes of the text
  std::function<bool()> stop = {};                                             // asked after every token
};

struct CompressReport {
  CompressionMode mode = CompressionMode::stored;
  std::uint64_t bytes = 0, compressed = 0, header = 0;
  std::int64_t tokens = 0;       // model only
  double model_bytes = 0;        // what the model alone would take: the sum of its losses
  std::uint64_t resumed_at = 0;  // bytes already coded by an interrupted command
  int parts = 0;
  double seconds = 0;
  bool stopped = false;
  double bits_per_byte() const {
    return bytes > 0 ? 8.0 * static_cast<double>(compressed) / static_cast<double>(bytes) : 0;
  }
};

// Returns the compressed file. run: null for the portable mode. Empty if `stop` ended it (report.stopped).
std::string compress_text(OpenedRun* run, std::string_view text, const CompressOptions& options,
                          CompressReport& report);
// Returns the text of a compressed file. run: may be null if the file does not need one. bad_input: compressed_invalid
// if the file is damaged, compressed_mismatch if it needs another run or other arithmetic.
std::string decompress_text(OpenedRun* run, std::string_view file, const std::string& where,
                            const CompressOptions& options, CompressReport& report);
nlohmann::json to_json(const CompressReport& report);

}  // namespace some
