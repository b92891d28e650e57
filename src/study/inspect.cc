#include "study/inspect.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "base/files.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "study/choices.h"
#include "study/pictures.h"
#include "study/svg.h"
#include "train/checkpoint.h"
#include "train/json.h"

namespace some::study {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_snapshots = 60;
constexpr std::int64_t most_tsne_points = 2048;

struct Snapshot {
  std::int64_t step = 0;
  std::vector<Tensor> keys;  // one a layer
};

// Key positions saved up to the opened checkpoint, thinned out evenly, and the present ones at the end.
std::vector<Snapshot> load_snapshots(OpenedRun& run) {
  std::vector<CheckpointName> saved;
  for (const CheckpointName& one : list_key_positions(run.paths.folder)) {
    if (one.step < run.step) saved.push_back(one);
  }
  std::vector<Snapshot> out;
  const std::size_t kept = std::min(saved.size(), most_snapshots);
  for (std::size_t i = 0; i < kept; ++i) {
    const CheckpointName& one = saved[kept == 1 ? 0 : i * (saved.size() - 1) / (kept - 1)];
    const SafetensorsFile file = SafetensorsFile::open(one.folder);
    Snapshot snapshot{one.step, {}};
    for (const Layer& layer : run.model->layers()) {
      snapshot.keys.push_back(file.load(fmt::format("layers.{}.keys", layer.index)));
      if (snapshot.keys.back().shape() != layer.keys.keys.shape()) {
        bad_input("{}: the keys of layer {} have shape {} where this run has {}; the file belongs to another run",
                  file.path(), layer.index, snapshot.keys.back().shape().text(), layer.keys.keys.shape().text());
      }
    }
    out.push_back(std::move(snapshot));
  }
  Snapshot now{run.step, {}};
  for (const Layer& layer : run.model->layers()) now.keys.push_back(layer.keys.keys.to(Device::cpu));
  out.push_back(std::move(now));
  return out;
}

// What the evaluation at this checkpoint wrote down of the epoch it closed; null where there is none.
nlohmann::json experts_used_last_epoch(const OpenedRun& run) {
  nlohmann::json found;
  std::error_code ignored;
  if (!fs::exists(run.paths.metrics(), ignored)) return found;
  std::istringstream lines(read_file(run.paths.metrics()));
  for (std::string line; std::getline(lines, line);) {
    const auto one = parse_json_line(line);
    if (!one || !one->is_object() || one->value("kind", nlohmann::json()) != "eval") continue;
    const nlohmann::json step = one->value("step", nlohmann::json()), layers = one->value("layers", nlohmann::json());
    if (!step.is_number_integer() || step.get<std::int64_t>() > run.step || !layers.is_array()) continue;
    found = nlohmann::json::array();
    for (const auto& layer : layers)
      found.push_back(layer.is_object() ? layer.value("experts_used_this_epoch", nlohmann::json()) : nlohmann::json());
  }
  return found;
}

UsageScale usage_scale(const KeySettings& settings, const std::vector<double>& usage) {
  UsageScale scale;
  switch (settings.usage) {
    case Usage::ema: scale.name = "choices a step (running mean)"; break;
    case Usage::cumulative: scale.name = "choices since the start"; break;
    case Usage::flux: scale.name = "load over fair load (running mean)"; break;
  }
  scale.fair = std::accumulate(usage.begin(), usage.end(), 0.0) / static_cast<double>(usage.size());
  return scale;
}

Points points_of(const std::vector<double>& values, std::int64_t rows) {
  return {rows, rows > 0 ? static_cast<std::int64_t>(values.size()) / rows : 0, values};
}

double length(const Points& points, std::int64_t row, const Points* origin) {
  double sum = 0;
  for (std::int64_t j = 0; j < points.dimensions; ++j) {
    const double value = points.row(row)[j] - (origin ? origin->row(row)[j] : 0.0);
    sum += value * value;
  }
  return std::sqrt(sum);
}

class Drawer {
 public:
  Drawer(OpenedRun& run, const InspectOptions& options, const std::vector<Snapshot>& snapshots,
         const Evaluation& evaluation)
      : run_(run), options_(options), snapshots_(snapshots), evaluation_(evaluation) {}

  // Draws one layer; adds to the report of the layer what the pictures say.
  void draw(const Layer& layer, nlohmann::json& report) {
    const auto l = static_cast<std::size_t>(layer.index);
    const std::int64_t experts = run_.recipe.model.experts;
    std::vector<double> usage = read_vector(layer.keys.usage), mass = read_vector(layer.keys.mass);
    UsageScale scale = usage_scale(run_.recipe.model.keys, usage);
    if (report["usage_of"] == "data") {
      usage = evaluation_.layers[l].counts;
      mass = evaluation_.layers[l].mass;
      scale = usage_scale(run_.recipe.model.keys, usage);
      scale.name = "choices over the stories read";
    }
    const Points keys = points_of(read_vector(layer.keys.keys), experts),
                 start = points_of(read_vector(snapshots_.front().keys[l]), experts);
    const std::string prefix = fmt::format("layer-{}", layer.index),
                      where = fmt::format("run {}, step {}", run_name(), run_.step);
    files_.clear();

    const nlohmann::json& by_count = report["count"];
    write(prefix + "-usage.svg",
          usage_picture(
              fmt::format("Layer {}: how much each of its {} experts is used", layer.index, experts),
              fmt::format("{}. Gini {:.3f}, {:.1f} experts in effect, the busiest at {:.1f} times its fair share.",
                          where, by_count["gini"].get<double>(), by_count["effective_experts"].get<double>(),
                          by_count["load_over_fair"].get<double>()),
              usage, scale));
    std::string csv = "expert,usage_count,usage_mass,validation_count,validation_mass,key_norm,key_moved\n";
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto i = static_cast<std::size_t>(e);
      csv += fmt::format("{},{},{},{},{},{},{}\n", e, usage[i], mass[i], evaluation_.layers[l].counts[i],
                         evaluation_.layers[l].mass[i], length(keys, e, nullptr), length(keys, e, &start));
    }
    write(prefix + "-usage.csv", csv);

    draw_maps(layer, keys, usage, scale, prefix, where, report);
    if (snapshots_.size() > 1) draw_movement(layer, usage, scale, prefix, where, report);
    report["files"] = files_;
  }

 private:
  std::string run_name() const { return fs::path(run_.paths.folder).lexically_normal().filename().string(); }
  void write(const std::string& name, const std::string& contents) {
    write_file_atomic((fs::path(options_.out) / name).string(), contents);
    files_.push_back(name);
  }

  void draw_maps(const Layer& layer, const Points& keys, const std::vector<double>& usage, const UsageScale& scale,
                 const std::string& prefix, const std::string& where, nlohmann::json& report) {
    const Plane plane = principal_plane(*run_.ctx->threads, keys);
    KeyMap map;
    map.title = fmt::format("Layer {}: map of the keys by principal components", layer.index);
    map.subtitle = where;
    map.x_name = fmt::format("1st principal component ({:.1f} % of the variance)", 100 * plane.share[0]);
    map.y_name = fmt::format("2nd principal component ({:.1f} %)", 100 * plane.share[1]);
    map.notes = {
        "The two directions in which the keys differ most; near dots may still be far apart in the directions not "
        "shown."};
    map.points = project(keys, plane);
    map.experts.resize(map.points.size());
    std::iota(map.experts.begin(), map.experts.end(), 0);
    write(prefix + "-keys-pca.svg", map_picture(map, usage, scale));
    report["pca"] = {{"variance_shares", {plane.share[0], plane.share[1]}}};

    std::string csv = "expert,usage,pca_x,pca_y,tsne_x,tsne_y\n";
    std::vector<Point2> tsne_points(map.points.size(), {NAN, NAN});
    const std::int64_t experts = keys.count;
    if (experts >= tsne_least_points) {
      // Every pair is compared: of a very large library the busiest experts are drawn.
      KeyMap picture;
      picture.experts = map.experts;
      std::stable_sort(picture.experts.begin(), picture.experts.end(), [&](int a, int b) {
        return usage[static_cast<std::size_t>(a)] > usage[static_cast<std::size_t>(b)];
      });
      if (experts > most_tsne_points) picture.experts.resize(most_tsne_points);
      std::sort(picture.experts.begin(), picture.experts.end());
      Points chosen{static_cast<std::int64_t>(picture.experts.size()), keys.dimensions, {}};
      for (const int e : picture.experts)
        chosen.values.insert(chosen.values.end(), keys.row(e), keys.row(e) + keys.dimensions);
      const TsneSettings settings = resolve(options_.tsne, chosen.count);
      const TsneResult result = tsne(*run_.ctx->threads, chosen, settings);
      picture.points = result.points;
      picture.title = fmt::format("Layer {}: map of the keys by t-SNE", layer.index);
      picture.subtitle = where;
      picture.x_name = "no unit: keys that are neighbours lie together, distances between groups mean little";
      picture.notes = {
          fmt::format("Exact t-SNE of {} keys: perplexity {:g}, seed {}, {} iterations (the first {} with exaggeration "
                      "{:g}), learning rate {:g}.",
                      chosen.count, settings.perplexity, settings.seed, settings.iterations, settings.iterations / 4,
                      settings.exaggeration, settings.learning_rate),
          fmt::format(
              "Divergence from the true neighbourhoods: {:.3f} nats. Another seed gives another, equally valid map.",
              result.divergence)};
      if (experts > most_tsne_points)
        picture.notes.push_back(fmt::format("Only the {} busiest of {} experts are shown.", most_tsne_points, experts));
      write(prefix + "-keys-tsne.svg", map_picture(picture, usage, scale));
      for (std::size_t i = 0; i < picture.experts.size(); ++i)
        tsne_points[static_cast<std::size_t>(picture.experts[i])] = picture.points[i];
      report["tsne"] = {{"perplexity", settings.perplexity},
                        {"iterations", settings.iterations},
                        {"exaggeration", settings.exaggeration},
                        {"learning_rate", settings.learning_rate},
                        {"seed", settings.seed},
                        {"divergence", result.divergence},
                        {"experts", picture.experts.size()}};
    }
    const auto cell = [](double value) { return std::isfinite(value) ? fmt::format("{}", value) : std::string(); };
    for (std::size_t i = 0; i < map.points.size(); ++i) {
      csv += fmt::format("{},{},{},{},{},{}\n", i, usage[i], map.points[i].x, map.points[i].y, cell(tsne_points[i].x),
                         cell(tsne_points[i].y));
    }
    write(prefix + "-keys.csv", csv);
  }

  void draw_movement(const Layer& layer, const std::vector<double>& usage, const UsageScale& scale,
                     const std::string& prefix, const std::string& where, nlohmann::json& report) {
    const std::int64_t experts = run_.recipe.model.experts;
    Points all{0, run_.recipe.model.query_size(), {}};
    for (const Snapshot& snapshot : snapshots_) {
      const std::vector<double> values = read_vector(snapshot.keys[static_cast<std::size_t>(layer.index)]);
      all.values.insert(all.values.end(), values.begin(), values.end());
      all.count += experts;
    }
    const Plane plane = principal_plane(*run_.ctx->threads, all);
    const std::vector<Point2> places = project(all, plane);
    KeyMap map;
    map.title = fmt::format("Layer {}: how the keys moved", layer.index);
    map.subtitle = fmt::format("{}. {} saved positions, steps {} to {}, in one frame.", where, snapshots_.size(),
                               snapshots_.front().step, snapshots_.back().step);
    map.x_name =
        fmt::format("1st principal component of all positions ({:.1f} % of the variance)", 100 * plane.share[0]);
    map.y_name = fmt::format("2nd principal component ({:.1f} %)", 100 * plane.share[1]);
    std::vector<std::vector<Point2>> paths(static_cast<std::size_t>(experts));
    std::string csv = "step,expert,x,y\n";
    for (std::size_t s = 0; s < snapshots_.size(); ++s) {
      for (std::int64_t e = 0; e < experts; ++e) {
        const Point2 point = places[s * static_cast<std::size_t>(experts) + static_cast<std::size_t>(e)];
        paths[static_cast<std::size_t>(e)].push_back(point);
        csv += fmt::format("{},{},{},{}\n", snapshots_[s].step, e, point.x, point.y);
      }
    }
    map.experts.resize(static_cast<std::size_t>(experts));
    std::iota(map.experts.begin(), map.experts.end(), 0);
    write(prefix + "-movement.svg", movement_picture(map, paths, usage, scale));
    write(prefix + "-movement.csv", csv);
    nlohmann::json steps = nlohmann::json::array();
    for (const Snapshot& snapshot : snapshots_) steps.push_back(snapshot.step);
    report["movement"] = {{"steps", steps}, {"variance_shares", {plane.share[0], plane.share[1]}}};
  }

  OpenedRun& run_;
  const InspectOptions& options_;
  const std::vector<Snapshot>& snapshots_;
  const Evaluation& evaluation_;
  std::vector<std::string> files_;
};

}  // namespace

nlohmann::json inspect_run(OpenedRun& run, const InspectOptions& options) {
  require_experts(run, "inspect");
  if (options.layer != -1) require_layer(run.recipe.model, options.layer);
  if (run.recipe.model.experts >= tsne_least_points)
    resolve(options.tsne, std::min<std::int64_t>(run.recipe.model.experts, most_tsne_points));
  if (!options.out.empty()) {
    std::error_code error;
    fs::create_directories(options.out, error);
    if (error) bad_input("--out {}: the folder cannot be made: {}", options.out, error.message());
  }
  const StudyText text = study_text(run, options.data, options.stories);
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.stories = options.stories;
  const Evaluation evaluation = evaluate(*run.model, text.data, how);
  const std::vector<Snapshot> snapshots = load_snapshots(run);
  const nlohmann::json used = experts_used_last_epoch(run);

  nlohmann::json report{{"run", run.paths.folder}, {"step", run.step}, {"middle_layer", run.recipe.model.layers / 2}};
  report["experts"] = run.recipe.model.experts;
  report["top_k"] = run.recipe.model.top_k;
  if (snapshots.size() > 1) report["moved_since_step"] = snapshots.front().step;
  report["evaluation"] = to_json(evaluation, how);
  report["evaluation"]["data"] = text.source;
  nlohmann::json layers = to_json(layer_measures(
      *run.model, evaluation.layers, snapshots.size() > 1 ? snapshots.front().keys : std::vector<Tensor>()));
  report["layers"] = nlohmann::json::array();
  Drawer drawer(run, options, snapshots, evaluation);
  for (const Layer& layer : run.model->layers()) {
    if (options.layer != -1 && layer.index != options.layer) continue;
    const auto l = static_cast<std::size_t>(layer.index);
    nlohmann::json one = layers[l];
    // Counted anew since the last epoch was closed, so empty at its end: what that epoch's own evaluation saw is told
    // instead.
    one.erase("experts_used_this_epoch");
    one["experts_used_last_epoch"] = used.is_array() && l < used.size() ? used[l] : nlohmann::json();
    one["keys_learn"] = run.model->layer_learns(layer.index);
    // A layer whose keys never learn keeps no running usage: what the stories chose stands in for it.
    one["usage_of"] = one["count"]["experts_used"].get<int>() > 0 ? "training" : "data";
    if (one["usage_of"] == "data") {
      one["count"] = one["validation"];
      one["mass"] = one["validation_mass"];
    }
    one["routing_temperature"] = layer.log_temperature.value ? std::exp(read_vector(layer.log_temperature.value)[0])
                                                             : run.recipe.model.eval_temp;
    if (!options.out.empty()) drawer.draw(layer, one);
    report["layers"].push_back(std::move(one));
  }
  if (!options.out.empty()) {
    report["folder"] = options.out;
    write_file_atomic((fs::path(options.out) / "inspect.json").string(),
                      report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    write_file_atomic((fs::path(options.out) / "index.html").string(), inspect_page(report));
  }
  return report;
}

}  // namespace some::study
