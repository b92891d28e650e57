#include <nlohmann/json.hpp>

#include "analysis/adapt.h"
#include "evaluation/json.h"

namespace some {
namespace {

using nlohmann::json;

json window_json(const StreamWindow& window) {
  return {{"tokens", window.tokens},
          {"bytes", window.bytes},
          {"loss", window.loss()},
          {"bits_per_byte", window.bits_per_byte()}};
}

json reading_json(const StreamReading& reading) {
  json out = window_json(reading.all());
  out["windows"] = json::array();
  for (const StreamWindow& window : reading.windows) out["windows"].push_back(window_json(window));
  return out;
}

json measured(const Evaluation& evaluation) {
  return {{"loss", evaluation.loss},
          {"perplexity", evaluation.perplexity()},
          {"bits_per_byte", evaluation.bits_per_byte},
          {"tokens", evaluation.tokens},
          {"bytes", evaluation.bytes},
          {"documents", evaluation.documents}};
}

json measured_twice(const BeforeAfter& text) {
  json out{{"before", measured(text.before)}};
  if (text.after) out["after"] = measured(*text.after);
  return out;
}

json layer_json(const AdaptedLayer& layer) {
  return {{"layer", layer.layer},
          {"usage_before", to_json(layer.usage_before)},
          {"usage_after", to_json(layer.usage_after)},
          {"key_moved", {{"mean", layer.moved_mean}, {"max", layer.moved_most}}},
          {"births", layer.births},
          {"deaths", layer.deaths}};
}

}  // namespace

json to_json(const AdaptReport& report) {
  json out{{"run", report.run},
           {"from_step", report.from_step},
           {"data", report.data},
           {"rules", report.rules},
           {"window_tokens", report.window_tokens},
           {"uniform", {{"loss", report.uniform_loss}}},
           {"stream",
            {{"documents", report.documents},
             {"pieces", report.pieces},
             {"tokens", report.tokens},
             {"held_out_pieces", report.held_out_pieces},
             {"longest_piece", report.longest_piece}}},
           {"original", measured_twice(report.original)},
           {"new", measured_twice(report.held_out)},
           {"frozen", reading_json(report.frozen)}};
  if (report.window_tokens == 0) out["window_pieces"] = report.window_pieces;
  out["frozen"]["keys_identical"] = report.keys_identical;
  if (report.active) {
    out["active"] = reading_json(*report.active);
    out["updates"] = report.updates;
    out["layers"] = json::array();
    for (const AdaptedLayer& layer : report.layers) out["layers"].push_back(layer_json(layer));
    out["gain_on_stream"] = report.gain_on_stream();
    out["gain_on_new"] = report.gain_on_new();
    out["forgotten"] = report.forgotten();
  }
  if (report.out) {
    out["out"] = *report.out;
    out["out_step"] = report.out_step;
  }
  return out;
}

}  // namespace some
