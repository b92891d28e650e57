#include "runs/metrics.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/log.h"
#include "core/system_error.h"
#include "evaluation/json.h"

namespace some {
namespace fs = std::filesystem;

namespace {

void add_stage(nlohmann::json& out, const std::optional<StageTag>& stage) {
  if (!stage) return;
  out["stage"] = stage->number;
  out["stage_title"] = stage->title;
}

}  // namespace

nlohmann::json to_json(const TrainLine& line) {
  nlohmann::json out{{"kind", "train"},   {"step", line.step}, {"epoch", line.epoch},
                     {"loss", line.loss}, {"lr", line.lr},     {"gradient_norm", line.gradient_norm}};
  add_stage(out, line.stage);
  if (line.auxiliary_loss) out["auxiliary_loss"] = *line.auxiliary_loss;
  for (const UsageMeasures& layer : line.layers) out["layers"].push_back(to_json(layer));
  return out;
}

nlohmann::json to_json(const EpochLine& line) {
  nlohmann::json out{{"kind", "epoch"}, {"step", line.step}, {"epoch", line.epoch}, {"train_loss", line.train_loss}};
  add_stage(out, line.stage);
  return out;
}

nlohmann::json to_json(const EvaluationReport& report) {
  nlohmann::json out{{"kind", "eval"}, {"step", report.step}, {"epoch", report.epoch}};
  add_stage(out, report.stage);
  out.update(to_json(report.evaluation, report.options));
  out["layers"] = to_json(report.layers);
  out["middle_layer"] = report.middle_layer;
  return out;
}

nlohmann::json to_json(const StageReport& report) {
  nlohmann::json out{{"kind", "stage"}, {"step", report.step}, {"epoch", report.epoch}};
  add_stage(out, report.stage);
  for (const StageReport::OnText& text : report.texts) {
    nlohmann::json one{{"loss", text.evaluation.loss},
                       {"perplexity", text.evaluation.perplexity()},
                       {"bits_per_byte", text.evaluation.bits_per_byte},
                       {"compared", text.loss}};
    add_stage(one, text.stage);
    out["texts"].push_back(one);
  }
  return out;
}

namespace {

void cut_file(const std::string& path, std::int64_t bytes) {
  std::error_code error;
  fs::resize_file(path, static_cast<std::uintmax_t>(bytes), error);
  if (error) failed(Code::file_unwritable, "cannot truncate {} to {} bytes: {}", path, bytes, reason_of(error.value()));
}

// Restores the file to its content at the checkpoint, as far as known; returns its length.
std::int64_t restore(const Log& log, const std::string& path, std::int64_t bytes,
                     const std::optional<std::string>& kept) {
  const bool there = exists_path(path);
  const std::string now = there ? read_file(path) : "";
  if (kept && static_cast<std::int64_t>(kept->size()) == bytes) {
    if (now.starts_with(*kept)) {
      if (there) cut_file(path, bytes);
      return bytes;
    }
    const bool only_shorter = kept->starts_with(now);
    if (!only_shorter) write_file_atomic(path + ".replaced", now);
    log.warning(Code::metrics_damaged, "{} was {}; restored to its state at the checkpoint{}", path,
                !there         ? "gone"
                : only_shorter ? "shorter than at the checkpoint"
                               : "different from its state at the checkpoint",
                only_shorter ? "" : fmt::format("; the previous content is kept in {}.replaced", path));
    write_file_atomic(path, *kept);
    return bytes;
  }
  if (static_cast<std::int64_t>(now.size()) >= bytes) {
    if (there) cut_file(path, bytes);
    return bytes;
  }
  // Checkpoints of older versions have no copy: complete lines stay, anything after them is lost.
  const auto whole = static_cast<std::int64_t>(now.rfind('\n') + 1);
  log.warning(Code::metrics_damaged, "{} is {}: {} of its bytes are lost; the run continues with the remaining lines",
              path, there ? "shorter than at the checkpoint" : "gone", bytes - whole);
  if (there) cut_file(path, whole);
  return whole;
}

}  // namespace

MetricsFile::MetricsFile(const Log& log, const RunPaths& paths, std::int64_t bytes,
                         const std::optional<std::string>& kept)
    : path_(paths.metrics()), bytes_(restore(log, path_, bytes, kept)) {
  events_.emplace(paths.events(), path_, paths.samples());
}

std::string MetricsFile::flushed() {
  if (bytes_ == 0) return "";
  flush_file(path_);
  flush_folder(fs::path(path_).parent_path().string());
  return read_file(path_);
}

void MetricsFile::write(const TrainLine& line) { write_json(to_json(line)); }
void MetricsFile::write(const EpochLine& line) { write_json(to_json(line)); }
void MetricsFile::write(const EvaluationReport& report) { write_json(to_json(report)); }
void MetricsFile::write(const StageReport& report) { write_json(to_json(report)); }

void MetricsFile::show_samples(const nlohmann::json& line) { events_->add_samples(line); }

void MetricsFile::write_json(const nlohmann::json& line) {
  const std::string text = line.dump();
  append_line(path_, text);
  events_->add(line);
  bytes_ += static_cast<std::int64_t>(text.size()) + 1;
}

}  // namespace some
