// Files that `some inspect` writes to its folder: the page, the measures as JSON and CSV, and pictures on request.
#include <filesystem>
#include <numeric>

#include "analysis/inspect.h"
#include "analysis/pages/key_plots.h"
#include "analysis/pages/run_header.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {
namespace fs = std::filesystem;
namespace {

double length(const Points& points, std::int64_t row, const Points* origin) {
  double sum = 0;
  for (std::int64_t j = 0; j < points.dimensions; ++j) {
    const double value = points.row(row)[j] - (origin ? origin->row(row)[j] : 0.0);
    sum += value * value;
  }
  return std::sqrt(sum);
}

class Writer {
 public:
  Writer(const InspectReport& report, const OpenedRun& run, std::string folder)
      : report_(report), where_(fmt::format("run {}, step {}", run_name(run), run.step)), folder_(std::move(folder)) {}

  void write(const std::string& name, const std::string& contents) {
    write_file_atomic((fs::path(folder_) / name).string(), contents);
    files_.push_back(name);
  }

  void tables(const InspectedLayer& layer) {
    const LayerMaps& maps = *layer.maps;
    const std::string prefix = prefix_of(layer);
    const Points &keys = maps.positions.back().keys, &start = maps.positions.front().keys;
    const ChoiceMeasures& choices = layer.measures.validation->choices;
    std::string csv = "expert,usage_count,usage_mass,validation_count,validation_mass,key_norm,key_moved\n";
    for (std::size_t e = 0; e < layer.usage.size(); ++e) {
      const auto row = static_cast<std::int64_t>(e);
      csv += fmt::format("{},{},{},{},{},{},{}\n", e, layer.usage[e], layer.mass[e], choices.counts[e], choices.mass[e],
                         length(keys, row, nullptr), length(keys, row, &start));
    }
    write(prefix + "-usage.csv", csv);

    std::vector<std::string> tsne(layer.usage.size(), ",");
    if (maps.tsne) {
      for (std::size_t i = 0; i < maps.tsne->experts.size(); ++i) {
        const Point2& place = maps.tsne->result.points[i];
        tsne[static_cast<std::size_t>(maps.tsne->experts[i])] = fmt::format("{},{}", place.x, place.y);
      }
    }
    csv = "expert,usage,pca_x,pca_y,tsne_x,tsne_y\n";
    for (std::size_t e = 0; e < layer.usage.size(); ++e)
      csv += fmt::format("{},{},{},{},{}\n", e, layer.usage[e], maps.pca[e].x, maps.pca[e].y, tsne[e]);
    write(prefix + "-keys.csv", csv);
    if (maps.positions.size() < 2) return;
    csv = "step,expert,x,y\n";
    for (const KeyPositions& position : maps.positions) {
      const std::vector<Point2> places = project(position.keys, maps.movement_plane);
      for (std::size_t e = 0; e < places.size(); ++e)
        csv += fmt::format("{},{},{},{}\n", position.step, e, places[e].x, places[e].y);
    }
    write(prefix + "-movement.csv", csv);
  }

  void pictures(const InspectedLayer& layer) {
    const LayerMaps& maps = *layer.maps;
    const std::string prefix = prefix_of(layer);
    const int number = layer.measures.layer;
    const UsageMeasures& by_count = layer.measures.count;
    const UsageScale scale{layer.usage_name, std::accumulate(layer.usage.begin(), layer.usage.end(), 0.0) /
                                                 static_cast<double>(layer.usage.size())};
    write(prefix + "-usage.svg",
          plot_usage(fmt::format("Layer {}: load of its {} experts", number, report_.experts),
                     fmt::format("{}. Gini {:.3f}, {:.1f} effective experts, max/mean load {:.1f}.", where_,
                                 by_count.gini, by_count.effective_experts, by_count.max_over_mean_load),
                     layer.usage, scale));
    KeyMap map;
    map.title = fmt::format("Layer {}: map of the keys by principal components", number);
    map.subtitle = where_;
    map.x_name = fmt::format("1st principal component ({:.1f} % of the variance)", 100 * maps.plane.share[0]);
    map.y_name = fmt::format("2nd principal component ({:.1f} %)", 100 * maps.plane.share[1]);
    map.notes = {
        "The two directions in which the keys differ most; dots close together may still be far apart in other "
        "directions."};
    map.points = maps.pca;
    map.experts.resize(map.points.size());
    std::iota(map.experts.begin(), map.experts.end(), 0);
    write(prefix + "-keys-pca.svg", plot_key_map(map, layer.usage, scale));
    if (maps.tsne) write(prefix + "-keys-tsne.svg", tsne_picture(number, *maps.tsne, layer.usage, scale));
    if (maps.positions.size() > 1) write(prefix + "-movement.svg", movement(map, maps, layer.usage, scale, number));
  }

  const std::vector<std::string>& files() const { return files_; }

 private:
  static std::string prefix_of(const InspectedLayer& layer) { return fmt::format("layer-{}", layer.measures.layer); }

  std::string tsne_picture(int layer, const LayerMaps::Tsne& tsne, const std::vector<double>& usage,
                           const UsageScale& scale) const {
    KeyMap map;
    map.title = fmt::format("Layer {}: map of the keys by t-SNE", layer);
    map.subtitle = where_;
    map.x_name = "no unit: neighboring keys are close together; distances between groups are not meaningful";
    map.notes = tsne_notes(tsne, report_.experts);
    map.points = tsne.result.points;
    map.experts = tsne.experts;
    return plot_key_map(map, usage, scale);
  }

  std::string movement(KeyMap map, const LayerMaps& maps, const std::vector<double>& usage, const UsageScale& scale,
                       int layer) const {
    map.title = fmt::format("Layer {}: how the keys moved", layer);
    map.subtitle = fmt::format("{}. {} saved positions, steps {} to {}, in one frame.", where_, maps.positions.size(),
                               maps.positions.front().step, maps.positions.back().step);
    map.x_name = fmt::format("1st principal component of all positions ({:.1f} % of the variance)",
                             100 * maps.movement_plane.share[0]);
    map.y_name = fmt::format("2nd principal component ({:.1f} %)", 100 * maps.movement_plane.share[1]);
    std::vector<std::vector<Point2>> paths(usage.size());
    for (const KeyPositions& position : maps.positions) {
      const std::vector<Point2> places = project(position.keys, maps.movement_plane);
      for (std::size_t e = 0; e < places.size(); ++e) paths[e].push_back(places[e]);
    }
    return plot_key_movement(map, paths, usage, scale);
  }

  const InspectReport& report_;
  std::string where_, folder_;
  std::vector<std::string> files_;
};

}  // namespace

std::vector<std::string> tsne_notes(const LayerMaps::Tsne& tsne, int experts) {
  const TsneSettings& settings = tsne.settings;
  std::vector<std::string> notes{
      fmt::format("Exact t-SNE of {} keys: perplexity {:g}, seed {}, {} iterations (the first {} with exaggeration "
                  "{:g}), learning rate {:g}.",
                  tsne.experts.size(), settings.perplexity, settings.seed, settings.iterations, settings.iterations / 4,
                  settings.exaggeration, settings.learning_rate),
      fmt::format(
          "Divergence from the true neighborhoods: {:.3f} nats. Another seed gives a different, equally valid map.",
          tsne.result.divergence)};
  if (std::ssize(tsne.experts) < experts)
    notes.push_back(fmt::format("Only the {} most used of {} experts are shown.", tsne.experts.size(), experts));
  return notes;
}

std::vector<std::string> write_inspection(const InspectReport& report, const OpenedRun& run, const std::string& folder,
                                          bool svg) {
  make_folder(folder);
  remove_temporary_files(folder);
  Writer writer(report, run, folder);
  for (const InspectedLayer& layer : report.layers) {
    writer.tables(layer);
    if (svg) writer.pictures(layer);
  }
  writer.write("inspect.json", to_json(report).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  writer.write("index.html", inspect_page(report, run));
  return writer.files();
}

}  // namespace some
