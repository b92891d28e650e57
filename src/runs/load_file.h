// load.jsonl: load of every expert during a run, for monitoring. The measures in metrics.jsonl are computed from the
// same numbers; this file has each number, but a line is written rarely, so that the file stays small.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace some {

constexpr std::int64_t max_load_lines = 1000;  // per run
// Returns the steps between lines, a multiple of those between lines of metrics.jsonl.
std::int64_t load_every(std::int64_t total_steps, std::int64_t measure_every);

class LoadFile {
 public:
  // Keeps the lines up to `step` and removes later ones, which will be written again with the same content.
  LoadFile(std::string path, std::int64_t step);
  // usage: per layer and expert. Writes a line {"load": [[103, 97, ...], ...], "step": 50}: percent of the uniform
  // load.
  void write(std::int64_t step, const std::vector<std::vector<double>>& usage) const;
  void flush() const;  // makes all lines durable

 private:
  std::string path_;
};

}  // namespace some
