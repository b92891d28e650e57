#include "runs/load_file.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "core/system_error.h"

namespace some {
namespace fs = std::filesystem;

std::int64_t load_every(std::int64_t total_steps, std::int64_t measure_every) {
  const std::int64_t lines = total_steps / measure_every;
  return measure_every * ((lines + max_load_lines - 1) / max_load_lines + (lines == 0 ? 1 : 0));
}

LoadFile::LoadFile(std::string path, std::int64_t step) : path_(std::move(path)) {
  if (!exists_path(path_)) return;
  const std::string text = read_file(path_);
  std::size_t stays = 0;
  while (stays < text.size()) {
    const std::size_t end = text.find('\n', stays);
    if (end == std::string::npos) break;
    const auto line = parse_json_line(std::string_view(text).substr(stays, end - stays));
    if (!line || !line->is_object() || !line->contains("step") || !(*line)["step"].is_number_integer() ||
        (*line)["step"].get<std::int64_t>() > step)
      break;
    stays = end + 1;
  }
  if (stays == text.size()) return;
  std::error_code error;
  if (stays == 0)
    fs::remove(path_, error);
  else
    fs::resize_file(path_, stays, error);
  if (error)
    failed(Code::file_unwritable, "cannot truncate {} to {} bytes: {}", path_, stays, reason_of(error.value()));
}

void LoadFile::write(std::int64_t step, const std::vector<std::vector<double>>& usage) const {
  nlohmann::json layers = nlohmann::json::array();
  for (const std::vector<double>& of_layer : usage) {
    const double sum = std::accumulate(of_layer.begin(), of_layer.end(), 0.0);
    const double scale = sum > 0 ? 100 * static_cast<double>(of_layer.size()) / sum : 0;
    nlohmann::json shares = nlohmann::json::array();
    for (const double one : of_layer) shares.push_back(static_cast<std::int64_t>(std::llround(one * scale)));
    layers.push_back(std::move(shares));
  }
  append_line(path_, nlohmann::json{{"load", layers}, {"step", step}}.dump());
}

void LoadFile::flush() const {
  if (exists_path(path_)) flush_file(path_);
}

}  // namespace some
