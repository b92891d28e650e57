// A run's metrics as a TensorBoard event file, for those who watch their runs there. It says nothing that metrics.jsonl
// does not say, and is written anew from it whenever a run goes on; only its clock times differ between identical runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace some {

std::uint32_t crc32c(std::string_view bytes);

// The numbers of one metrics line under the names they are drawn by: "train/loss" for the whole model, and for a layer
// "gini/train layer 3", so that one measure of all layers stands together.
std::vector<std::pair<std::string, double>> event_scalars(const nlohmann::json& line);

class EventFile {
 public:
  // What metrics.jsonl already holds comes first; no file of metrics is the same as an empty one.
  EventFile(std::string path, const std::string& metrics_path);
  void add(const nlohmann::json& line);

 private:
  std::string path_;
};

}  // namespace some
