// samples.jsonl: the texts that a run writes at each evaluation (train.samples), one line per evaluation.
// Byte-identical after a stop and resume, like metrics.jsonl.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/log.h"
#include "runs/metrics.h"

namespace some {

struct TextSample {
  std::string prompt, text;  // text: the continuation
};

struct SampleReport {
  std::int64_t step = 0;
  double epoch = 0;
  std::optional<StageTag> stage;
  std::vector<TextSample> samples;
};

nlohmann::json to_json(const SampleReport& report);

class SamplesFile {
 public:
  // Continues after the first `bytes` bytes, the length at the checkpoint; later lines will be written again. Warns if
  // the file is shorter, gone or different: `checksum` is that at the checkpoint, empty if unknown.
  SamplesFile(const Log& log, std::string path, std::int64_t bytes, const std::string& checksum);
  nlohmann::json write(const SampleReport& report);  // returns the line
  void flush() const;                                // makes all lines durable
  std::int64_t bytes() const { return bytes_; }
  std::string checksum() const;

 private:
  std::string path_;
  std::int64_t bytes_ = 0;
};

}  // namespace some
