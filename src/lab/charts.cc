#include "lab/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/pages/key_charts.h"

namespace some {
namespace {

using nlohmann::json;

constexpr std::size_t max_points = 400;

json train_points(const RunHistory& run) {
  json points = json::array();
  const std::size_t stride = run.train.size() / max_points + 1;
  for (std::size_t i = 0; i < run.train.size(); i += stride) {
    double loss = 0;
    const std::size_t end = std::min(run.train.size(), i + stride);
    for (std::size_t j = i; j < end; ++j) loss += run.train[j].loss / static_cast<double>(end - i);
    points.push_back(chart_point(static_cast<double>(run.train[end - 1].step), loss));
  }
  return points;
}

template <typename Value>
json eval_points(const RunHistory& run, const Value& value, bool by_epoch = false) {
  json points = json::array();
  for (const EvalPoint& eval : run.evaluations) {
    points.push_back(chart_point(by_epoch ? eval.epoch : static_cast<double>(eval.step), value(eval)));
  }
  return points;
}

double steps_per_epoch(const RunHistory& run) {
  const EvalPoint* last = run.last();
  return last == nullptr || last->epoch <= 0 ? 0 : static_cast<double>(last->step) / last->epoch;
}

// Returns the published numbers as points, at the steps where this run's epochs end.
json published_points(const RunGroup& group, const std::string& measure) {
  json points = json::array();
  const double per_epoch = steps_per_epoch(group.first());
  if (group.published() == nullptr || per_epoch == 0) return points;
  for (const PublishedEpoch& epoch : group.published()->epochs) {
    if (const auto value = epoch.values.find(measure); value != epoch.values.end())
      points.push_back(chart_point(epoch.epoch * per_epoch, value->second));
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
  json spec = lines("step", "nats/token");
  add_series(spec, "training", "train", train_points(run));
  add_series(spec, "validation", "valid", eval_points(run, [](const EvalPoint& e) { return e.headline; }));
  if (padded) add_series(spec, "real tokens", "real", eval_points(run, [](const EvalPoint& e) { return e.loss; }));
  for (std::size_t i = 1; i < group.runs.size(); ++i) {
    add_series(spec, fmt::format("validation, seed +{}", group.runs[i].found.identity.seed), "seed",
               eval_points(group.runs[i], [](const EvalPoint& e) { return e.headline; }));
  }
  // A run with another size or text is not a reproduction: published points would only flatten its own curves.
  if (group.comparable()) {
    add_series(spec, "published training", "published-train", published_points(group, "train"));
    add_series(spec, "published validation", "published-valid", published_points(group, "val"));
  }
  return {group.id() + "-loss", "Loss over the steps",
          padded ? "Training and validation loss count padding, as this run was trained." : "", spec};
}

Chart layer_chart(const RunGroup& group, bool entropy) {
  const RunHistory& run = group.first();
  json spec = lines("step", entropy ? "entropy of usage, bits" : "Gini of usage");
  const std::size_t layers = run.evaluations.empty() ? 0 : run.evaluations.front().layers.size();
  // Training lines with Gini values add points between two evaluations.
  std::vector<const TrainPoint*> between;
  for (const TrainPoint& point : run.train) {
    if (point.gini.size() == layers) between.push_back(&point);
  }
  const std::size_t stride = between.size() * layers / max_points + 1;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const bool middle = layer == run.middle;
    json series{
        {"name", fmt::format("layer {}{}", layer, middle ? " (middle)" : "")},
        {"role", middle ? "middle" : "layer"},
        {"shade", layers > 1 ? chart_number(static_cast<double>(layer) / static_cast<double>(layers - 1)) : json(0)}};
    std::map<std::int64_t, double> values;
    for (std::size_t i = 0; i < between.size(); i += stride) {
      const double value = entropy ? between[i]->entropy[layer] : between[i]->gini[layer];
      if (!std::isnan(value)) values[between[i]->step] = value;
    }
    for (const EvalPoint& e : run.evaluations)
      values[e.step] = entropy ? e.layers.at(layer).entropy : e.layers.at(layer).gini;
    series["points"] = json::array();
    for (const auto& [step, value] : values) series["points"].push_back(chart_point(static_cast<double>(step), value));
    spec["series"].push_back(std::move(series));
  }
  if (group.comparable())
    add_series(spec, "published, middle layer", "published-valid",
               published_points(group, entropy ? "entropy" : "gini"));
  const std::string meaning = entropy ? fmt::format("Uniform load: {:.2f} bits.", std::log2(run.recipe.model.experts))
                                      : "0 = uniform load, 1 = one expert has all.";
  return {group.id() + (entropy ? "-entropy" : "-gini"),
          entropy ? "Entropy of usage by layer" : "Gini of usage by layer",
          meaning + " Labels on the right are layers, from light (first) to dark (last).", spec};
}

namespace {

// Returns the loss above which runs are omitted from a chart, because a diverged run would compress all other curves;
// none if there is no such run.
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

// Rounds up to a round end of an axis.
double round_end(double value) { return std::ceil(20 * value) / 20; }

std::string astray_note(const std::vector<const RunGroup*>& groups, double limit) {
  std::string names;
  for (const RunGroup* group : groups) {
    for (const RunHistory& run : group->runs) {
      if (const auto loss = final_loss(run); loss && *loss > limit)
        names += fmt::format("{}{} at {:.4f}", names.empty() ? "" : ", ", run.found.name, *loss);
    }
  }
  return fmt::format("Outside the chart: {}. ", names);
}

}  // namespace

Chart comparison_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups) {
  json spec = lines("epoch", "validation loss over non-padding tokens, nats");
  for (const RunGroup* group : groups) {
    add_series(spec, group->name, "category",
               eval_points(
                   group->first(), [](const EvalPoint& e) { return e.loss; }, true));
  }
  std::string note = "One line per experiment, first seed.";
  if (const auto limit = astray_above(groups)) {
    double end = 0;
    for (const RunGroup* group : groups) {
      if (final_loss(group->first()).value_or(INFINITY) > *limit) continue;
      for (const EvalPoint& point : group->first().evaluations) end = std::max(end, point.loss);
    }
    spec["y"]["end"] = chart_number(round_end(end));
    note = astray_note(groups, *limit) + note;
  }
  return {id, title, note, spec};
}

Chart overlaid_validation(const std::vector<const RunHistory*>& runs, bool per_byte) {
  json spec = lines("step", per_byte ? "bits per byte" : "nats/token");
  for (const RunHistory* run : runs) {
    add_series(spec, run->found.folder, "category",
               eval_points(*run, [&](const EvalPoint& e) { return per_byte ? e.bits_per_byte : e.loss; }));
  }
  return {"validation", "Validation loss", "Over non-padding tokens.", spec};
}

Chart overlaid_training(const std::vector<const RunHistory*>& runs) {
  json spec = lines("step", "nats/token");
  for (const RunHistory* run : runs) add_series(spec, run->found.folder, "category", train_points(*run));
  return {"training", "Training loss", "Averaged over neighboring steps.", spec};
}

Chart dots_chart(const std::string& id, const std::string& title, const std::vector<const RunGroup*>& groups) {
  json spec{{"kind", "dots"},
            {"x", {{"name", "final validation loss over non-padding tokens, nats"}}},
            {"series", json::array()},
            {"categories", json::array()}};
  for (const RunGroup* group : groups) {
    json points = json::array();
    for (const RunHistory& run : group->runs) {
      if (const auto loss = final_loss(run))
        points.push_back(json::array({spec["categories"].size(), chart_number(*loss)}));
    }
    if (points.empty()) continue;
    spec["series"].push_back({{"name", group->name}, {"role", "valid"}, {"points", points}});
    spec["categories"].push_back(group->name);
  }
  std::string note =
      "One dot per run; lower is better. The spread of an experiment's seeds shows the effect of chance.";
  if (const auto limit = astray_above(groups)) {
    double begin = INFINITY, end = 0;
    for (const json& series : spec["series"]) {
      for (const json& one : series["points"]) {
        const double loss = one.at(1).get<double>();
        begin = std::min(begin, loss);
        if (loss <= *limit) end = std::max(end, loss);
      }
    }
    spec["x"]["begin"] = chart_number(-round_end(-begin) - 0.05);
    spec["x"]["end"] = chart_number(round_end(end) + 0.05);
    note = astray_note(groups, *limit) + note;
  }
  return {id, title, note, spec};
}

}  // namespace some
