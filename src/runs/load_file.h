// load.jsonl: what every expert carries while a run goes on, for those who watch it. The measures of metrics.jsonl are
// made of the same numbers; here is each of them, seldom enough that the file stays small.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace some {

constexpr std::int64_t max_load_lines = 1000;  // of a run
// Steps between lines: a multiple of those between lines of metrics.jsonl.
std::int64_t load_every(std::int64_t total_steps, std::int64_t measure_every);

class LoadFile {
 public:
  // Goes on behind the lines up to `step`; later ones will be written again, the same.
  LoadFile(std::string path, std::int64_t step);
  // usage: of every layer, by expert. A line {"load": [[103, 97, ...], ...], "step": 50}: percent of a fair share.
  void write(std::int64_t step, const std::vector<std::vector<double>>& usage) const;

 private:
  std::string path_;
};

}  // namespace some
