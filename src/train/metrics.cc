#include "train/metrics.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "train/json.h"

namespace some::train {
namespace fs = std::filesystem;

nlohmann::json to_json(const TrainLine& line) {
  nlohmann::json out{{"kind", "train"},   {"step", line.step}, {"epoch", line.epoch},
                     {"loss", line.loss}, {"lr", line.lr},     {"gradient_norm", line.gradient_norm}};
  if (line.auxiliary_loss) out["auxiliary_loss"] = *line.auxiliary_loss;
  for (const UsageMeasures& layer : line.layers) out["layers"].push_back(to_json(layer));
  return out;
}

nlohmann::json to_json(const EpochLine& line) {
  return {{"kind", "epoch"}, {"step", line.step}, {"epoch", line.epoch}, {"train_loss", line.train_loss}};
}

nlohmann::json to_json(const EvaluationReport& report) {
  nlohmann::json out{{"kind", "eval"}, {"step", report.step}, {"epoch", report.epoch}};
  out.update(to_json(report.evaluation, report.options));
  out["layers"] = to_json(report.layers);
  out["middle_layer"] = report.middle_layer;
  return out;
}

MetricsFile::MetricsFile(const RunPaths& paths, std::int64_t bytes) : path_(paths.metrics()), bytes_(bytes) {
  if (fs::exists(path_)) {
    if (static_cast<std::int64_t>(fs::file_size(path_)) < bytes)
      bad_input("{} is shorter than it was at the checkpoint; it was changed by hand", path_);
    fs::resize_file(path_, static_cast<std::uintmax_t>(bytes));
  }
  events_.emplace(paths.events(), path_);
}

void MetricsFile::write(const TrainLine& line) { write_json(to_json(line)); }
void MetricsFile::write(const EpochLine& line) { write_json(to_json(line)); }
void MetricsFile::write(const EvaluationReport& report) { write_json(to_json(report)); }

void MetricsFile::write_json(const nlohmann::json& line) {
  const std::string text = line.dump();
  append_line(path_, text);
  events_->add(line);
  bytes_ += static_cast<std::int64_t>(text.size()) + 1;
}

}  // namespace some::train
