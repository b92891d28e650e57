#include "board/samples.h"

#include <algorithm>

#include "plot/escape_html.h"

namespace some {
namespace {

constexpr std::size_t max_texts = 64, max_steps_listed = 2000, max_moments = 60;  // per run

// Returns the texts of a line, without values that are not texts.
nlohmann::json texts_of(const nlohmann::json& line) {
  nlohmann::json out = nlohmann::json::array();
  if (!line.is_object() || !line.contains("samples") || !line["samples"].is_array()) return out;
  for (const nlohmann::json& one : line["samples"]) {
    if (out.size() == max_texts) break;
    if (!one.is_object() || !one.contains("text") || !one["text"].is_string()) continue;
    const bool has_prompt = one.contains("prompt") && one["prompt"].is_string();
    out.push_back({{"prompt", has_prompt ? valid_text(one["prompt"].get<std::string>()) : ""},
                   {"text", valid_text(one["text"].get<std::string>())}});
  }
  return out;
}

nlohmann::json moment(const RunLog& run, const LinePlace& place) {
  const nlohmann::json line = run.sample(place);
  nlohmann::json out{{"step", place.step}, {"samples", texts_of(line)}};
  if (line.is_object() && line.contains("epoch") && line["epoch"].is_number()) out["epoch"] = line["epoch"];
  return out;
}

}  // namespace

std::string generated_samples(const Watch& watch, const Request& request) {
  const double wanted = number_of(request, "step", 1e15, 0, 1e15);
  const bool all = request.value("all") == "1";
  nlohmann::json runs = nlohmann::json::array();
  for (const auto& run : requested_runs(watch, request)) {
    const std::vector<LinePlace> places = run->samples();
    if (places.empty()) continue;
    nlohmann::json steps = nlohmann::json::array(), moments = nlohmann::json::array();
    const std::size_t first = places.size() > max_steps_listed ? places.size() - max_steps_listed : 0;
    for (std::size_t i = first; i < places.size(); ++i) steps.push_back(places[i].step);
    if (all) {
      const std::size_t shown = std::min(max_moments, places.size());
      for (std::size_t i = 0; i < shown; ++i)
        moments.push_back(moment(*run, places[shown == 1 ? 0 : i * (places.size() - 1) / (shown - 1)]));
    } else {
      const auto after = std::find_if(places.begin(), places.end(),
                                      [&](const LinePlace& one) { return static_cast<double>(one.step) > wanted; });
      moments.push_back(moment(*run, after == places.begin() ? *after : *(after - 1)));
    }
    runs.push_back({{"id", run->id()}, {"steps", std::move(steps)}, {"moments", std::move(moments)}});
  }
  return nlohmann::json{{"runs", runs}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace some
