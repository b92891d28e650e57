#include "lab/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "study/projection.h"

namespace some::lab {
namespace {

using nlohmann::json;

constexpr std::size_t most_points = 400;
constexpr std::size_t most_rank_points = 80;   // of one layer
constexpr std::size_t most_key_points = 2000;  // of one map, all ways together

// Enough digits for a drawing, few enough for a small file.
json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::stod(fmt::format("{:.5g}", value));
}

json point(double x, double y) { return json::array({number(x), number(y)}); }

json train_points(const RunHistory& run) {
  json points = json::array();
  const std::size_t stride = run.train.size() / most_points + 1;
  for (std::size_t i = 0; i < run.train.size(); i += stride) {
    double loss = 0;
    const std::size_t end = std::min(run.train.size(), i + stride);
    for (std::size_t j = i; j < end; ++j) loss += run.train[j].loss / static_cast<double>(end - i);
    points.push_back(point(static_cast<double>(run.train[end - 1].step), loss));
  }
  return points;
}

template <typename Value>
json eval_points(const RunHistory& run, const Value& value, bool by_epoch = false) {
  json points = json::array();
  for (const EvalPoint& eval : run.evaluations) {
    points.push_back(point(by_epoch ? eval.epoch : static_cast<double>(eval.step), value(eval)));
  }
  return points;
}

double steps_per_epoch(const RunHistory& run) {
  const EvalPoint* last = run.last();
  return last == nullptr || last->epoch <= 0 ? 0 : static_cast<double>(last->step) / last->epoch;
}

// The published numbers, at the steps where this run's epochs end.
json published_points(const RunGroup& group, const std::string& measure) {
  json points = json::array();
  const double per_epoch = steps_per_epoch(group.first());
  if (group.published() == nullptr || per_epoch == 0) return points;
  for (const PublishedEpoch& epoch : group.published()->epochs) {
    if (const auto value = epoch.values.find(measure); value != epoch.values.end())
      points.push_back(point(epoch.epoch * per_epoch, value->second));
  }
  return points;
}

void add_series(json& spec, const std::string& name, const std::string& role, json points) {
  if (!points.empty()) spec["series"].push_back({{"name", name}, {"role", role}, {"points", std::move(points)}});
}

json lines(const std::string& x, const std::string& y) {
  return {{"kind", "lines"}, {"x", {{"name", x}}}, {"y", {{"name", y}}}, {"series", json::array()}};
}

}  // namespace

Chart loss_chart(const RunGroup& group) {
  const RunHistory& run = group.first();
  const bool padded = run.recipe.data.count_pads;
  json spec = lines("step", "nats a token");
  add_series(spec, "training", "train", train_points(run));
  add_series(spec, "validation", "valid", eval_points(run, [](const EvalPoint& e) { return e.headline; }));
  if (padded) add_series(spec, "real tokens", "real", eval_points(run, [](const EvalPoint& e) { return e.loss; }));
  for (std::size_t i = 1; i < group.runs.size(); ++i) {
    add_series(spec, fmt::format("validation, seed +{}", group.runs[i].found.identity.seed), "seed",
               eval_points(group.runs[i], [](const EvalPoint& e) { return e.headline; }));
  }
  // A scaled run is no replay: published points would only flatten its own curves.
  if (!group.scaled()) {
    add_series(spec, "published training", "published-train", published_points(group, "train"));
    add_series(spec, "published validation", "published-valid", published_points(group, "val"));
  }
  return {group.id() + "-loss", "Loss over the steps",
          padded ? "Training and validation count padding, as this run was trained; real tokens do not." : "", spec};
}

Chart layer_chart(const RunGroup& group, bool entropy) {
  const RunHistory& run = group.first();
  json spec = lines("step", entropy ? "entropy of usage, bits" : "Gini of usage");
  const std::size_t layers = run.evaluations.empty() ? 0 : run.evaluations.front().layers.size();
  // Where the training lines tell too, the way between two evaluations is seen.
  std::vector<const TrainPoint*> between;
  for (const TrainPoint& point : run.train) {
    if (point.gini.size() == layers) between.push_back(&point);
  }
  const std::size_t stride = between.size() * layers / most_points + 1;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const bool middle = layer == run.middle;
    json series{{"name", fmt::format("layer {}{}", layer, middle ? " (middle)" : "")},
                {"role", middle ? "middle" : "layer"},
                {"shade", layers > 1 ? number(static_cast<double>(layer) / static_cast<double>(layers - 1)) : json(0)}};
    std::map<std::int64_t, double> values;
    for (std::size_t i = 0; i < between.size(); i += stride) {
      const double value = entropy ? between[i]->entropy[layer] : between[i]->gini[layer];
      if (!std::isnan(value)) values[between[i]->step] = value;
    }
    for (const EvalPoint& e : run.evaluations)
      values[e.step] = entropy ? e.layers.at(layer).entropy : e.layers.at(layer).gini;
    series["points"] = json::array();
    for (const auto& [step, value] : values) series["points"].push_back(point(static_cast<double>(step), value));
    spec["series"].push_back(std::move(series));
  }
  if (!group.scaled())
    add_series(spec, "published, middle layer", "published-valid",
               published_points(group, entropy ? "entropy" : "gini"));
  const std::string meaning =
      entropy ? fmt::format("All experts used alike would be {:.2f} bits.", std::log2(run.recipe.model.experts))
              : "0: all experts used alike. 1: one expert does all.";
  return {
      group.id() + (entropy ? "-entropy" : "-gini"), entropy ? "Entropy of usage by layer" : "Gini of usage by layer",
      meaning + " Numbers at the right are layers, where there is room; pale lines are the first, dark ones the last.",
      spec};
}

Chart usage_histogram(const RunGroup& group, const std::vector<double>& usage) {
  constexpr int bins = 30;
  double sum = 0, most = 0;
  for (const double u : usage) {
    sum += u;
    most = std::max(most, u);
  }
  const double fair = sum > 0 ? sum / static_cast<double>(usage.size()) : 1;
  const double top = most > 0 ? most / fair : 1;
  std::vector<int> counts(bins, 0);
  for (const double u : usage)
    counts[static_cast<std::size_t>(std::min<int>(bins - 1, static_cast<int>(u / fair / top * bins)))] += 1;
  json spec{{"kind", "histogram"},
            {"x", {{"name", "usage, as a multiple of a fair share"}}},
            {"y", {{"name", "experts"}}},
            {"series", json::array()}};
  json values = json::array(), edges = json::array();
  for (int i = 0; i < bins; ++i) {
    values.push_back(counts[static_cast<std::size_t>(i)]);
    edges.push_back(number(top * i / bins));
  }
  edges.push_back(number(top));
  spec["edges"] = edges;
  spec["series"].push_back(
      {{"name", fmt::format("layer {}", group.first().middle)}, {"role", "valid"}, {"values", values}});
  return {group.id() + "-usage", fmt::format("How much experts are used, layer {} (logarithmic)", group.first().middle),
          fmt::format("The busiest expert has {:.1f} times a fair share.", top), spec};
}

Chart usage_ranks(const RunGroup& group, const std::vector<std::vector<double>>& usage) {
  json spec = lines("expert, most used first", "share of a layer's choices");
  spec["y"]["log"] = true;
  for (std::size_t layer = 0; layer < usage.size(); ++layer) {
    std::vector<double> sorted = usage[layer];
    std::sort(sorted.rbegin(), sorted.rend());
    double sum = 0;
    for (const double u : sorted) sum += u;
    json points = json::array();
    const std::size_t stride = (sorted.size() + most_rank_points - 1) / most_rank_points;
    for (std::size_t i = 0; i < sorted.size() && sorted[i] > 0 && sum > 0; i += stride)
      points.push_back(point(static_cast<double>(i + 1), sorted[i] / sum));
    const bool middle = layer == group.first().middle;
    spec["series"].push_back(
        {{"name", fmt::format("layer {}{}", layer, middle ? " (middle)" : "")},
         {"role", middle ? "middle" : "layer"},
         {"shade",
          usage.size() > 1 ? number(static_cast<double>(layer) / static_cast<double>(usage.size() - 1)) : json(0)},
         {"points", points}});
  }
  return {group.id() + "-ranks", "Experts by rank", "A flat line: all alike. A cliff: a clique does the work.", spec};
}

std::size_t snapshots_of_a_map(int experts) {
  return std::clamp<std::size_t>(most_key_points / static_cast<std::size_t>(experts), 2, 12);
}

Chart key_map(Threads& threads, const RunGroup& group, const std::vector<KeySnapshot>& snapshots) {
  const KeySnapshot& last = snapshots.back();
  // One plane for all saved positions, so that a key's way can be followed in it.
  Points pooled;
  pooled.dimensions = last.width;
  for (const KeySnapshot& snapshot : snapshots) {
    pooled.count += snapshot.experts;
    pooled.values.insert(pooled.values.end(), snapshot.keys.begin(), snapshot.keys.end());
  }
  const Plane plane = principal_plane(threads, pooled);
  const std::vector<Point2> places = project(pooled, plane);
  double sum = 0;
  for (const double u : last.usage) sum += u;
  json keys = json::array(), steps = json::array();
  for (const KeySnapshot& snapshot : snapshots) steps.push_back(snapshot.step);
  for (std::size_t expert = 0; expert < static_cast<std::size_t>(last.experts); ++expert) {
    json path = json::array();
    for (std::size_t i = 0; i < snapshots.size(); ++i) {
      const Point2& place = places[i * static_cast<std::size_t>(last.experts) + expert];
      path.push_back(point(place.x, place.y));
    }
    keys.push_back({{"expert", expert}, {"share", number(sum > 0 ? last.usage[expert] / sum : 0)}, {"path", path}});
  }
  json spec{{"kind", "map"}, {"text_form", "none"}, {"steps", steps}, {"keys", keys}};
  spec["x"]["name"] = fmt::format("first direction, {:.0f} % of the spread", 100 * plane.share[0]);
  spec["y"]["name"] = fmt::format("second direction, {:.0f} %", 100 * plane.share[1]);
  const LayerPoint& layer = group.first().last()->layers.at(group.first().middle);
  return {group.id() + "-keys", fmt::format("Keys of layer {} and their way (PCA)", group.first().middle),
          fmt::format("A circle is a key where it is now, the larger the more its expert is used; the line leads back "
                      "to where it was drawn. Keys moved by {:.3f} on "
                      "average, {:.3f} at most.",
                      layer.moved_mean, layer.moved_most),
          spec};
}

namespace {

// A run that went astray would press all others together in a drawing. The loss above which a run is left outside of
// it, where there is such a run.
std::optional<double> astray_above(const std::vector<const RunGroup*>& groups) {
  std::vector<double> losses;
  for (const RunGroup* group : groups) {
    for (const RunHistory& run : group->runs) {
      if (const auto loss = final_loss(run)) losses.push_back(*loss);
    }
  }
  if (losses.empty()) return std::nullopt;
  std::sort(losses.begin(), losses.end());
  const double limit = 1.4 * losses[(losses.size() - 1) / 2];
  const auto near = std::upper_bound(losses.begin(), losses.end(), limit) - losses.begin();
  return losses.back() > limit && near > 2 ? std::optional(limit) : std::nullopt;
}

// The end of an axis that holds the value: a round number.
double round_end(double value) { return std::ceil(20 * value) / 20; }

std::string astray_note(const std::vector<const RunGroup*>& groups, double limit) {
  std::string names;
  for (const RunGroup* group : groups) {
    for (const RunHistory& run : group->runs) {
      if (const auto loss = final_loss(run); loss && *loss > limit)
        names += fmt::format("{}{} at {:.4f}", names.empty() ? "" : ", ", run.found.name, *loss);
    }
  }
  return fmt::format("Beyond the drawing: {}. ", names);
}

}  // namespace

Chart comparison_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups) {
  json spec = lines("epoch", "validation loss over real tokens, nats");
  for (const RunGroup* group : groups) {
    add_series(spec, group->name, "category",
               eval_points(
                   group->first(), [](const EvalPoint& e) { return e.loss; }, true));
  }
  std::string note = "One line an experiment, its first seed.";
  if (const auto limit = astray_above(groups)) {
    double end = 0;
    for (const RunGroup* group : groups) {
      if (final_loss(group->first()).value_or(INFINITY) > *limit) continue;
      for (const EvalPoint& point : group->first().evaluations) end = std::max(end, point.loss);
    }
    spec["y"]["end"] = number(round_end(end));
    note = astray_note(groups, *limit) + note;
  }
  return {id, title, note, spec};
}

Chart dots_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups) {
  json spec{{"kind", "dots"},
            {"x", {{"name", "final validation loss over real tokens, nats"}}},
            {"series", json::array()},
            {"categories", json::array()}};
  for (const RunGroup* group : groups) {
    json points = json::array();
    for (const RunHistory& run : group->runs) {
      if (const auto loss = final_loss(run)) points.push_back(json::array({spec["categories"].size(), number(*loss)}));
    }
    if (points.empty()) continue;
    spec["series"].push_back({{"name", group->name}, {"role", "valid"}, {"points", points}});
    spec["categories"].push_back(group->name);
  }
  std::string note =
      "A dot a run; less is better. Where an experiment has several seeds, the width of its dots is what chance does.";
  if (const auto limit = astray_above(groups)) {
    double begin = INFINITY, end = 0;
    for (const json& series : spec["series"]) {
      for (const json& one : series["points"]) {
        const double loss = one.at(1).get<double>();
        begin = std::min(begin, loss);
        if (loss <= *limit) end = std::max(end, loss);
      }
    }
    spec["x"]["begin"] = number(-round_end(-begin) - 0.05);
    spec["x"]["end"] = number(round_end(end) + 0.05);
    note = astray_note(groups, *limit) + note;
  }
  return {id, title, note, spec};
}

}  // namespace some::lab
