// Incremental reader of one run's files, used to watch it from another process.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "board/curves.h"
#include "board/json_walk.h"
#include "core/files/json_lines.h"
#include "runs/run_labels.h"
#include "runs/run_list.h"

namespace some {

// The horizontal axis of a curve.
struct XAxis {
  enum class Kind { step, tokens, time, elapsed, clock, metric };
  Kind kind = Kind::step;
  std::string metric;  // such as "train.lr"; its value at the step of each point
};
// "step", "tokens", "time" (of training), "elapsed" (since the first line, with pauses), "clock" (milliseconds since
// 1970), or a metric.
std::optional<XAxis> x_axis(const std::string& name);

// Location of a line in metrics.jsonl or samples.jsonl.
struct LinePlace {
  std::int64_t step = 0;
  std::uint64_t offset = 0;
  std::size_t length = 0;
};

class RunLog {
 public:
  // `place`: the folder's name as shown to viewers.
  RunLog(std::string id, std::string folder, std::string place);

  const std::string& id() const { return id_; }
  const std::string& folder() const { return folder_; }
  std::string run_id() const;  // that of config.toml, which the run's files name

  // Reads new data. Returns true if there are changes for `news`.
  bool poll();
  // Returns the changes since the last call: the summary and the new rows, or a request to reload everything.
  nlohmann::json news();

  nlohmann::json summary() const;
  std::map<std::string, std::string> settings() const;
  // Returns the curve of a metric such as "eval.loss".
  std::vector<XY> curve(const std::string& metric, const XAxis& axis, const Range& range) const;
  std::size_t rows(const std::string& metric) const;  // rows of its table, whether or not they contain the metric
  std::int64_t version() const;                       // increases with every change
  int layers() const;
  int experts() const;
  // Load of each expert of a layer at one step, as multiples of the uniform load.
  struct Load {
    double step = 0;
    std::vector<float> of_expert;
  };
  std::vector<Load> load(int layer) const;
  std::string memory() const;  // the memory's file; empty if there is none
  std::vector<LinePlace> evaluations() const;
  nlohmann::json evaluation(const LinePlace& place) const;  // null if it no longer exists
  std::vector<LinePlace> samples() const;                   // texts generated at evaluations
  nlohmann::json sample(const LinePlace& place) const;      // null if they no longer exist
  RunLabels labels();                                       // as they are in the file now
  // Sets the labels and writes them to the run's folder.
  void set_labels(const RunLabels& labels);

 private:
  struct Matches;
  class Numbers;
  struct Memo {
    std::string group, name;
    std::size_t layer = 0;
    int depth = 0;
    CurveTable::Column* column = nullptr;
  };
  struct Kept {
    CurveTable table;
    std::vector<Memo> memo;
    std::size_t reported = 0;  // rows already reported by `news`
  };
  void clear_metrics();
  void metrics_line(std::string_view line, std::uint64_t offset);
  void rates_line(std::string_view line);
  void load_line(std::string_view line);
  void samples_line(std::string_view line, std::uint64_t offset);
  void put(Kept& kept, const std::vector<Matches>& numbers, double step, double tokens);
  double tokens_at(double epoch, std::size_t stage);
  double at_step(const std::vector<double>& times, double step) const;
  double seconds_at(double step) const { return at_step(seconds_, step); }
  double tokens_of(const CurveTable& table, std::size_t row) const;
  void read_settings();
  void read_labels();
  void look_at_keys();
  void look_at_state(bool changed);
  const Kept* table_of(const std::string& metric, std::string& column) const;

  const std::string id_, folder_, place_;
  mutable std::mutex mutex_;
  JsonLines metrics_, rates_, load_, samples_;
  std::map<std::string, Kept> tables_;  // train, eval, epoch, rates
  std::vector<double> seconds_;         // training time, by the rows of "rates"
  std::vector<double> clock_;           // milliseconds since 1970; NaN in runs of earlier versions
  double sitting_before_ = 0;
  std::vector<LinePlace> evaluations_, sample_places_;
  struct LoadLine {
    double step = 0;
    std::vector<std::vector<float>> layers;
  };
  std::vector<LoadLine> loads_;
  std::vector<double> tokens_of_stage_;  // tokens per epoch
  double tokens_ = 0, epoch_ = 0;
  std::map<std::string, std::string> settings_;
  std::string title_, group_, recipe_, state_, trouble_, run_id_;
  RunLabels labels_;
  int seed_ = 0, layers_ = 0, experts_ = 0;
  std::int64_t total_steps_ = 0;
  std::optional<RunListEntry> found_;  // its state
  bool final_ = false;                 // not running
  bool reset_ = true;                  // data reported so far is no longer valid
  std::int64_t version_ = 1, reported_version_ = 0;
  struct timespec config_time_ {
  }, keys_time_{}, memory_time_{}, labels_time_{};
  std::vector<std::int64_t> key_steps_;
  std::int64_t memory_version_ = 0;  // 0: no memory
  std::chrono::steady_clock::time_point state_when_{}, polled_{}, stirred_{};
};

}  // namespace some
