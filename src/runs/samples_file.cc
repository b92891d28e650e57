#include "runs/samples_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/system_error.h"

namespace some {
namespace fs = std::filesystem;

nlohmann::json to_json(const SampleReport& report) {
  nlohmann::json out{{"step", report.step}, {"epoch", report.epoch}, {"samples", nlohmann::json::array()}};
  if (report.stage) {
    out["stage"] = report.stage->number;
    out["stage_title"] = report.stage->title;
  }
  for (const TextSample& one : report.samples) out["samples"].push_back({{"prompt", one.prompt}, {"text", one.text}});
  return out;
}

namespace {

std::string checksum_of_text(std::string_view text) { return hex(checksum_of(text.data(), text.size())); }

}  // namespace

SamplesFile::SamplesFile(const Log& log, std::string path, std::int64_t bytes, const std::string& checksum)
    : path_(std::move(path)), bytes_(bytes) {
  const bool there = exists_path(path_);
  if (!there && bytes == 0) return;
  const std::string now = there ? read_file(path_) : "";
  if (std::ssize(now) < bytes) {
    bytes_ = static_cast<std::int64_t>(now.rfind('\n') + 1);
    log.warning(Code::metrics_damaged, "{} is {}: {} of its bytes are lost; the run continues with the remaining lines",
                path_, there ? "shorter than at the checkpoint" : "gone", bytes - bytes_);
  } else if (!checksum.empty() &&
             checksum_of_text(std::string_view(now).substr(0, static_cast<std::size_t>(bytes))) != checksum) {
    log.warning(
        Code::metrics_damaged,
        "{} is different from its state at the checkpoint: it may belong to another run; its texts are kept, and "
        "the run continues after them",
        path_);
    bytes_ = static_cast<std::int64_t>(now.substr(0, static_cast<std::size_t>(bytes)).rfind('\n') + 1);
  }
  if (!there || bytes_ == std::ssize(now)) return;
  std::error_code error;
  if (bytes_ == 0)
    fs::remove(path_, error);
  else
    fs::resize_file(path_, static_cast<std::uintmax_t>(bytes_), error);
  if (error) failed(Code::file_unwritable, "cannot cut {} to {} bytes: {}", path_, bytes_, reason_of(error.value()));
}

nlohmann::json SamplesFile::write(const SampleReport& report) {
  // A generated token may contain a part of a character.
  const std::string line = to_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  append_line(path_, line);
  bytes_ += std::ssize(line) + 1;
  return nlohmann::json::parse(line);
}

std::string SamplesFile::checksum() const {
  return exists_path(path_) ? checksum_of_text(read_file(path_)) : checksum_of_text("");
}

void SamplesFile::flush() const {
  if (exists_path(path_)) flush_file(path_);
}

}  // namespace some
