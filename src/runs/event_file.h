// A run's metrics and samples as a TensorBoard event file. It contains only what metrics.jsonl and samples.jsonl
// contain, and is rewritten from them whenever a run is resumed; only its wall-clock times differ between identical
// runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace some {

std::uint32_t crc32c(std::string_view bytes);

// Returns the numbers of one metrics line with their names in TensorBoard: "train/loss" for the whole model, and for a
// layer "gini/train layer 3", so that one measure of all layers is grouped together.
std::vector<std::pair<std::string, double>> event_scalars(const nlohmann::json& line);

// Returns the texts of one line of samples.jsonl as Markdown with their names in TensorBoard: "samples/1".
std::vector<std::pair<std::string, std::string>> event_texts(const nlohmann::json& line);

class EventFile {
 public:
  // Writes the existing content of metrics.jsonl and samples.jsonl first; a missing file counts as empty.
  EventFile(std::string path, const std::string& metrics_path, const std::string& samples_path);
  void add(const nlohmann::json& line);
  void add_samples(const nlohmann::json& line);

 private:
  std::string path_;
};

}  // namespace some
