// Writes metrics.jsonl and the TensorBoard event file: one line per event of a run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "evaluation/evaluate.h"
#include "runs/event_file.h"
#include "runs/run.h"

namespace some {

struct StageTag {
  std::int64_t number = 0;  // counted from 1
  std::string title;
};

struct TrainLine {  // covers the steps since the last line
  std::int64_t step = 0;
  double epoch = 0;
  std::optional<StageTag> stage;  // here and below: set if the run has stages
  double loss = 0;                // mean loss
  double lr = 0, gradient_norm = 0;
  std::optional<double> auxiliary_loss;
  std::vector<UsageMeasures> layers;
};

struct EpochLine {
  std::int64_t step = 0, epoch = 0;
  std::optional<StageTag> stage;
  double train_loss = 0;
};

struct EvaluationReport {
  std::int64_t step = 0;
  double epoch = 0;
  std::optional<StageTag> stage;
  Evaluation evaluation;
  EvaluateOptions options;  // options of this evaluation
  std::vector<LayerMeasures> layers;
  int middle_layer = 0;
  const LayerMeasures* middle() const {
    return layers.empty() ? nullptr : &layers.at(static_cast<std::size_t>(middle_layer));
  }
};

// End of a stage: losses on every stage's validation text, to show forgetting.
struct StageReport {
  struct OnText {
    StageTag stage;
    Evaluation evaluation;
    double loss = 0;  // the loss that compares runs
  };
  std::int64_t step = 0;
  double epoch = 0;
  StageTag stage;  // the one that ended
  std::vector<OnText> texts;
};

nlohmann::json to_json(const TrainLine& line);
nlohmann::json to_json(const EpochLine& line);
nlohmann::json to_json(const EvaluationReport& report);
nlohmann::json to_json(const StageReport& report);

class MetricsFile {
 public:
  // Continues after the first `bytes` bytes; later bytes are removed, since they will be written again. `kept`: those
  // first bytes as stored in the checkpoint. A file that is missing, shorter or different is restored from it.
  // samples.jsonl must have been cut to the checkpoint, because the TensorBoard file shows it as well.
  MetricsFile(const Log& log, const RunPaths& paths, std::int64_t bytes, const std::optional<std::string>& kept);
  void write(const TrainLine& line);
  void write(const EpochLine& line);
  void write(const EvaluationReport& report);
  void write(const StageReport& report);
  // Adds the texts of a line of samples.jsonl to the TensorBoard file.
  void show_samples(const nlohmann::json& line);
  std::int64_t bytes() const { return bytes_; }
  // Returns the whole file, after what was appended is safely on disk.
  std::string flushed();

 private:
  void write_json(const nlohmann::json& line);
  std::string path_;
  std::int64_t bytes_ = 0;
  std::optional<EventFile> events_;
};

}  // namespace some
