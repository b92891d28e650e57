#include <nlohmann/json.hpp>

#include "analysis/read.h"

namespace some {
namespace {

using nlohmann::json;

json lesson_json(const WindowResult& window) {
  return {{"tokens", window.tokens},
          {"frozen", per_token(window.frozen, window.tokens)},
          {"loss", per_token(window.mixed, window.tokens)},
          {"births", window.births},
          {"hits", window.hits},
          {"lost", window.lost}};
}

json text_json(const TextReading& reading, bool learnt) {
  const WindowResult sum = reading.all();
  json windows = json::array();
  for (const WindowResult& window : reading.windows) windows.push_back(lesson_json(window));
  json out{{"text", reading.text},
           {"tokens", sum.tokens},
           {"from", reading.from},
           {"of", reading.of},
           {"frozen", per_token(sum.frozen, sum.tokens)},
           {"seconds", reading.seconds},
           {"windows", windows}};
  if (!learnt) return out;
  out["loss"] = per_token(sum.mixed, sum.tokens);
  out["gain"] = per_token(sum.frozen - sum.mixed, sum.tokens);
  out["births"] = sum.births;
  out["hits"] = sum.hits;
  out["lost"] = sum.lost;
  return out;
}

}  // namespace

json to_json(const ReadReport& report) {
  const WindowResult all = report.all();
  json out{{"run", report.run},         {"step", report.step},      {"window", report.window},
           {"texts", json::array()},    {"tokens", all.tokens},     {"frozen", per_token(all.frozen, all.tokens)},
           {"seconds", report.seconds}, {"stopped", report.stopped}};
  for (const TextReading& text : report.texts) out["texts"].push_back(text_json(text, report.memory.has_value()));
  if (report.memory) {
    out["loss"] = per_token(all.mixed, all.tokens);
    out["gain"] = per_token(all.frozen - all.mixed, all.tokens);
    out["memory"] = {{"file", report.memory->file},
                     {"settings", to_json(report.memory->settings)},
                     {"slots_in_use", report.memory->slots_in_use},
                     {"refinement_passes", report.memory->refinement_passes},
                     {"refinement_seconds", report.refinement_seconds},
                     {"weights", report.memory->weights}};
    if (const auto& contexts = report.memory->contexts)
      out["memory"]["contexts"] = {
          {"entries", contexts->entries}, {"evicted", contexts->evicted}, {"weights", contexts->weights}};
  }
  if (report.original)
    out["original"] = {
        {"tokens", report.original->tokens},     {"frozen", report.original->frozen},
        {"loss", report.original->mixed},        {"lost", report.original->mixed - report.original->frozen},
        {"documents", report.original_known.of}, {"known", report.original_known.known}};
  return out;
}

}  // namespace some
