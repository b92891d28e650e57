#include "runs/train_state.h"

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/json.h"

namespace some {
namespace {

std::uint64_t hash_from(const JsonObject& j) {
  const auto digits = j.need<std::string>("data_hash");
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, 16);
  if (read.ec != std::errc() || read.ptr != end) j.wrong("data_hash", "a hash of 16 hexadecimal digits");
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
                     {"metrics_checksum", s.metrics_checksum},
                     {"data_hash", hex(s.data_hash)},
                     {"recipe", s.recipe},
                     {"computed_by", s.computed_by},
                     {"finished", s.finished}};
  if (std::isfinite(s.best)) out["best"] = s.best;
  if (s.samples_bytes > 0) out.update({{"samples_bytes", s.samples_bytes}, {"samples_checksum", s.samples_checksum}});
  if (s.moments_before > 0) out["moments_before"] = s.moments_before;
  if (s.stages > 0) {
    nlohmann::json ends = nlohmann::json::array();
    for (const StageEnd& end : s.ends) ends.push_back({{"step", end.step}, {"losses", end.losses}});
    out.update({{"stages", s.stages},
                {"stage", s.stage + 1},
                {"stage_begin", s.stage_begin},
                {"epochs_before", s.epochs_before},
                {"stage_ends", ends}});
  }
  if (s.best_step) out["best_step"] = *s.best_step;
  return out;
}

TrainState train_state_from(const nlohmann::json& json, const std::string& origin) {
  const JsonObject j(json, origin);
  if (j.has("imported_from") || j.has("adapted_from"))
    bad_input(Code::checkpoint_without_optimizer,
              "{}: was saved by 'some {}', not by training, so training cannot resume from it; 'some train --from RUN' "
              "begins "
              "a new run with its weights",
              origin, j.has("imported_from") ? "import" : "adapt");
  constexpr std::int64_t most = std::int64_t{1} << 53;
  const auto count = [&](const char* key) { return j.need<std::int64_t>(key, 0, most); };
  TrainState s;
  s.step = count("step");
  s.epoch_loss = j.need<double>("epoch_loss");
  s.epoch_steps = count("epoch_steps");
  // Missing in older checkpoints, which were always written after the end of an epoch had been handled.
  s.epoch_closed_at = j.get<std::int64_t>("epoch_closed_at", s.step, 0, most);
  s.line_loss = j.need<double>("line_loss");
  s.line_steps = count("line_steps");
  if (j.has("best")) s.best = j.need<double>("best");
  if (const auto step = j.get<std::int64_t>("best_step", -1, -1, most); step >= 0) s.best_step = step;
  s.since_best = count("since_best");
  s.metrics_bytes = count("metrics_bytes");
  s.data_hash = hash_from(j);
  // Missing in older checkpoints.
  if (const auto recipe = json.find("recipe"); recipe != json.end()) {
    for (const auto& [key, value] : recipe->items()) {
      if (!value.is_string()) j.wrong("recipe", "an object of texts");
      s.recipe[key] = value.get<std::string>();
    }
  }
  s.metrics_checksum = j.get<std::string>("metrics_checksum", "");
  s.samples_bytes = j.get<std::int64_t>("samples_bytes", 0, 0, most);
  s.samples_checksum = j.get<std::string>("samples_checksum", "");
  s.moments_before = j.get<std::int64_t>("moments_before", 0, 0, most);
  s.computed_by = j.get<std::string>("computed_by", "");
  s.finished = j.need<bool>("finished");
  s.stages = j.get<std::int64_t>("stages", 0, 0, most);
  if (s.stages == 0) return s;
  s.stage = j.need<std::int64_t>("stage", 1, s.stages) - 1;
  s.stage_begin = j.need<std::int64_t>("stage_begin", 0, s.step);
  s.epochs_before = count("epochs_before");
  for (const JsonObject& end : j.objects("stage_ends")) {
    s.ends.push_back({end.need<std::int64_t>("step", 0, s.step), end.need<std::vector<double>>("losses")});
    if (static_cast<std::int64_t>(s.ends.back().losses.size()) != s.stages)
      end.wrong("losses", "a loss for each stage");
  }
  if (static_cast<std::int64_t>(s.ends.size()) < s.stage || static_cast<std::int64_t>(s.ends.size()) > s.stage + 1)
    j.wrong("stage_ends", "the ends of the stages before this one");
  return s;
}

}  // namespace some
