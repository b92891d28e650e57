#include "train/train_state.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace some::train {
namespace {

std::uint64_t hash_from(const std::string& digits, const std::string& origin) {
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, 16);
  if (read.ec != std::errc() || read.ptr != end) bad_input("{}: data_hash '{}' is no hash", origin, digits);
  return value;
}

}  // namespace

nlohmann::json to_json(const TrainState& s) {
  nlohmann::json out{{"step", s.step},
                     {"epoch_loss", s.epoch_loss},
                     {"epoch_steps", s.epoch_steps},
                     {"epoch_closed_at", s.epoch_closed_at},
                     {"line_loss", s.line_loss},
                     {"line_steps", s.line_steps},
                     {"since_best", s.since_best},
                     {"metrics_bytes", s.metrics_bytes},
                     {"data_hash", hex(s.data_hash)},
                     {"recipe", s.recipe},
                     {"computed_by", s.computed_by},
                     {"finished", s.finished}};
  if (std::isfinite(s.best)) out["best"] = s.best;
  if (s.best_step) out["best_step"] = *s.best_step;
  return out;
}

TrainState train_state_from(const nlohmann::json& j, const std::string& origin) {
  try {
    TrainState s;
    s.step = j.at("step");
    s.epoch_loss = j.at("epoch_loss");
    s.epoch_steps = j.at("epoch_steps");
    // Checkpoints written before this was kept were made after the end of an epoch was dealt with.
    s.epoch_closed_at = j.value("epoch_closed_at", s.step);
    s.line_loss = j.at("line_loss");
    s.line_steps = j.at("line_steps");
    if (j.contains("best")) s.best = j.at("best");
    if (const std::int64_t step = j.value("best_step", std::int64_t{-1}); step >= 0) s.best_step = step;
    s.since_best = j.at("since_best");
    s.metrics_bytes = j.at("metrics_bytes");
    s.data_hash = hash_from(j.at("data_hash").get<std::string>(), origin);
    s.recipe = j.value("recipe", s.recipe);  // older checkpoints do not tell these two
    s.computed_by = j.value("computed_by", "");
    s.finished = j.at("finished");
    return s;
  } catch (const nlohmann::json::exception&) {
    bad_input("{}: the trainer's state in its header is not whole: the file is damaged", origin);
  }
}

}  // namespace some::train
