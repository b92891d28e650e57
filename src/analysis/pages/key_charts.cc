#include "analysis/pages/key_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/threads.h"
#include "runs/checkpoint.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"

namespace some {
namespace {

using nlohmann::json;

constexpr std::size_t max_rank_points = 80;  // per layer
constexpr std::size_t max_keys_of_a_map = 2048;
constexpr std::size_t neighbours_of_a_key = 15;  // including itself, as in UMAP; fewer if there are fewer keys

// Returns the experts whose keys a map shows: all, or the busiest of a very large library, sorted by number.
std::vector<int> experts_shown(const std::vector<double>& usage) {
  std::vector<int> experts(usage.size());
  std::iota(experts.begin(), experts.end(), 0);
  if (experts.size() <= max_keys_of_a_map) return experts;
  std::stable_sort(experts.begin(), experts.end(), [&](int a, int b) {
    return usage[static_cast<std::size_t>(a)] > usage[static_cast<std::size_t>(b)];
  });
  experts.resize(max_keys_of_a_map);
  std::sort(experts.begin(), experts.end());
  return experts;
}

// Returns each key's nearest neighbors, itself first, as indices into `experts`.
json nearest_neighbours(Threads& threads, const Points& keys, const std::vector<int>& experts) {
  const std::size_t count = experts.size(), wanted = std::min(neighbours_of_a_key, count - 1);
  std::vector<std::vector<std::pair<double, std::size_t>>> found(count);
  parallel_for(threads, static_cast<std::int64_t>(count), [&](std::int64_t i) {
    std::vector<std::pair<double, std::size_t>> away;
    const double* own = keys.row(experts[static_cast<std::size_t>(i)]);
    for (std::size_t j = 0; j < count; ++j) {
      const double* other = keys.row(experts[j]);
      double square = 0;
      for (std::int64_t c = 0; c < keys.dimensions; ++c) square += (own[c] - other[c]) * (own[c] - other[c]);
      // With duplicate keys, each key is still its own nearest neighbor.
      away.emplace_back(static_cast<std::size_t>(i) == j ? -1.0 : std::sqrt(square), j);
    }
    std::partial_sort(away.begin(), away.begin() + static_cast<std::ptrdiff_t>(wanted), away.end());
    away.resize(wanted);
    found[static_cast<std::size_t>(i)] = std::move(away);
  });
  json of = json::array(), distances = json::array();
  for (const auto& near : found) {
    json places = json::array(), away = json::array();
    for (const auto& [distance, place] : near) {
      places.push_back(place);
      away.push_back(chart_number(std::max(distance, 0.0)));
    }
    of.push_back(std::move(places));
    distances.push_back(std::move(away));
  }
  return {{"of", of}, {"away", distances}};
}

}  // namespace

json chart_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::stod(fmt::format("{:.5g}", value));
}

json chart_point(double x, double y) { return json::array({chart_number(x), chart_number(y)}); }

std::vector<KeyPositions> read_key_positions(const std::string& folder, const std::string& run, int layer,
                                             std::size_t most, std::int64_t before) {
  std::vector<CheckpointName> saved;
  for (const CheckpointName& one : list_key_positions(folder)) {
    if (one.step < before) saved.push_back(one);
  }
  std::vector<KeyPositions> out;
  const std::size_t count = std::min(most, saved.size());
  for (std::size_t i = 0; i < count; ++i) {
    const CheckpointName& one = saved[count == 1 ? saved.size() - 1 : i * (saved.size() - 1) / (count - 1)];
    const SafetensorsFile file = open_key_positions(one, run);
    const std::string prefix = fmt::format("layers.{}.", layer);
    if (!file.has(prefix + "keys")) continue;
    const Shape shape = file.shape(prefix + "keys");
    if (shape.rank() != 2 || file.shape(prefix + "usage") != Shape{shape[0]})
      bad_input(Code::tensor_shape, "{}: {}keys has shape {} and {}usage {}; must be [experts, width] and [experts]",
                file.path(), prefix, shape.text(), prefix, file.shape(prefix + "usage").text());
    out.push_back({one.step,
                   {shape[0], shape[1], read_vector(file.load(prefix + "keys"))},
                   read_vector(file.load(prefix + "usage"))});
  }
  return out;
}

std::vector<std::vector<double>> read_last_usage(const std::string& folder, const std::string& run) {
  std::vector<std::vector<double>> usage;
  const auto saved = list_key_positions(folder);
  if (saved.empty()) return usage;
  const SafetensorsFile file = open_key_positions(saved.back(), run);
  for (std::size_t layer = 0; file.has(fmt::format("layers.{}.usage", layer)); ++layer)
    usage.push_back(read_vector(file.load(fmt::format("layers.{}.usage", layer))));
  return usage;
}

Chart usage_histogram(const std::string& id, int layer, const std::vector<double>& usage) {
  constexpr int bins = 30;
  const double sum = std::accumulate(usage.begin(), usage.end(), 0.0);
  const double most = usage.empty() ? 0.0 : *std::max_element(usage.begin(), usage.end());
  const double fair = sum > 0 ? sum / static_cast<double>(usage.size()) : 1;
  const double top = most > 0 ? most / fair : 1;
  std::vector<int> counts(bins, 0);
  for (const double u : usage)
    counts[static_cast<std::size_t>(std::min<int>(bins - 1, static_cast<int>(u / fair / top * bins)))] += 1;
  json edges = json::array();
  for (int i = 0; i <= bins; ++i) edges.push_back(chart_number(top * i / bins));
  const json spec{{"kind", "histogram"},
                  {"x", {{"name", "load relative to uniform load"}}},
                  {"y", {{"name", "experts"}}},
                  {"unit", "x uniform load"},
                  {"edges", edges},
                  {"series", {{{"name", fmt::format("layer {}", layer)}, {"values", counts}}}}};
  return {id, fmt::format("Expert load, layer {} (logarithmic)", layer),
          fmt::format("Maximum load: {:.1f} times the uniform load.", top), spec};
}

Chart usage_ranks(const std::string& id, const std::vector<int>& layers, int middle,
                  const std::vector<std::vector<double>>& usage) {
  json series = json::array();
  for (std::size_t i = 0; i < usage.size(); ++i) {
    std::vector<double> sorted = usage[i];
    std::sort(sorted.rbegin(), sorted.rend());
    const double sum = std::accumulate(sorted.begin(), sorted.end(), 0.0);
    json points = json::array();
    const std::size_t stride = (sorted.size() + max_rank_points - 1) / max_rank_points;
    for (std::size_t rank = 0; rank < sorted.size() && sorted[rank] > 0 && sum > 0; rank += stride)
      points.push_back(chart_point(static_cast<double>(rank + 1), sorted[rank] / sum));
    const bool is_middle = layers[i] == middle;
    const double shade = usage.size() > 1 ? static_cast<double>(i) / static_cast<double>(usage.size() - 1) : 0;
    series.push_back({{"name", fmt::format("layer {}{}", layers[i], is_middle ? " (middle)" : "")},
                      {"role", is_middle ? "middle" : "layer"},
                      {"shade", chart_number(shade)},
                      {"points", std::move(points)}});
  }
  const json spec{{"kind", "lines"},
                  {"x", {{"name", "expert, most used first"}}},
                  {"y", {{"name", "share of the layer's assignments"}, {"log", true}}},
                  {"series", std::move(series)}};
  return {id, "Experts by rank", "A flat line is a uniform load.", spec};
}

std::size_t positions_per_map(std::int64_t experts, std::size_t points) {
  const std::size_t shown = std::min<std::size_t>(static_cast<std::size_t>(experts), max_keys_of_a_map);
  return std::clamp<std::size_t>(points / shown, 2, 60);
}

Chart key_map_chart(Threads& threads, const std::string& id, const std::string& title, const std::string& note,
                    const std::vector<KeyPositions>& positions, const std::vector<double>& usage,
                    const std::optional<TsneMap>& tsne) {
  const std::vector<int> experts = tsne ? tsne->experts : experts_shown(usage);
  // One plane for all saved positions, so that the path of a key can be followed.
  Points pooled{0, positions.back().keys.dimensions, {}};
  for (const KeyPositions& one : positions) {
    pooled.count += one.keys.count;
    pooled.values.insert(pooled.values.end(), one.keys.values.begin(), one.keys.values.end());
  }
  const Plane plane = principal_plane(pooled);
  const std::vector<Point2> places = project(pooled, plane);
  json steps = json::array(), frames = json::array(), shares = json::array();
  std::size_t begin = 0;
  for (const KeyPositions& one : positions) {
    json frame = json::array();
    for (const int expert : experts) {
      const Point2& place = places[begin + static_cast<std::size_t>(expert)];
      frame.push_back(chart_point(place.x, place.y));
    }
    begin += static_cast<std::size_t>(one.keys.count);
    frames.push_back(std::move(frame));
    steps.push_back(one.step);
  }
  const double sum = std::accumulate(usage.begin(), usage.end(), 0.0);
  for (const int expert : experts)
    shares.push_back(chart_number(sum > 0 ? usage[static_cast<std::size_t>(expert)] / sum : 0));
  json spec{{"kind", "keys"},
            {"experts", experts},
            {"share", shares},
            {"frames",
             {{"steps", steps},
              {"x", fmt::format("first principal component, {:.0f} % of the variance", 100 * plane.share[0])},
              {"y", fmt::format("second direction, {:.0f} %", 100 * plane.share[1])},
              {"places", frames}}}};
  if (static_cast<std::int64_t>(experts.size()) >= tsne_least_points)
    spec["neighbours"] = nearest_neighbours(threads, positions.back().keys, experts);
  if (tsne) {
    json points = json::array();
    for (const Point2& place : tsne->places) points.push_back(chart_point(place.x, place.y));
    spec["tsne"] = {{"places", points}, {"note", tsne->note}};
  }
  return {id, title, note, spec};
}

}  // namespace some
