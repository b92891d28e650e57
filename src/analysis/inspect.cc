#include "analysis/inspect.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "analysis/assignments.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json_lines.h"
#include "evaluation/json.h"
#include "runs/checkpoint.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

constexpr std::size_t max_map_points = 8000;  // per map, over all saved positions
constexpr std::int64_t max_tsne_points = 2048;

// The first saved key positions of every layer; empty if none were saved before this checkpoint.
struct Start {
  std::int64_t step = 0;
  std::vector<Tensor> keys;
};

Start first_positions(const OpenedRun& run) {
  Start start;
  const auto saved = list_key_positions(run.paths.folder);
  if (saved.empty() || saved.front().step >= run.step) return start;
  start.step = saved.front().step;
  const SafetensorsFile file = open_key_positions(saved.front(), run.recipe.run_id);
  for (const Layer& layer : run.model->layers()) {
    start.keys.push_back(file.load(fmt::format("layers.{}.keys", layer.index)));
    if (start.keys.back().shape() != layer.keys.keys.shape()) {
      bad_input(Code::checkpoint_mismatch,
                "{}: the keys of layer {} have shape {}, but this run has {}; the file belongs to another run",
                file.path(), layer.index, start.keys.back().shape().text(), layer.keys.keys.shape().text());
    }
  }
  return start;
}

// Returns the experts used in the last epoch by layer, as logged by the evaluation at this checkpoint; empty if there
// was none.
std::vector<std::optional<std::int64_t>> experts_used_last_epoch(const OpenedRun& run) {
  std::vector<std::optional<std::int64_t>> found;
  for_each_json_line(run.paths.metrics(), [&](const JsonObject& object) {
    const nlohmann::json& line = object.json();
    if (line.value("kind", nlohmann::json()) != "eval") return;
    const nlohmann::json step = line.value("step", nlohmann::json()), layers = line.value("layers", nlohmann::json());
    if (!step.is_number_integer() || step.get<std::int64_t>() > run.step || !layers.is_array()) return;
    found.clear();
    for (const auto& layer : layers) {
      const nlohmann::json used =
          layer.is_object() ? layer.value("experts_used_this_epoch", nlohmann::json()) : nlohmann::json();
      found.push_back(used.is_number_integer() ? std::optional(used.get<std::int64_t>()) : std::nullopt);
    }
  });
  return found;
}

std::string usage_name(Usage usage) {
  switch (usage) {
    case Usage::ema: return "assignments per step (moving average)";
    case Usage::cumulative: return "assignments since the start";
    case Usage::flux: return "load relative to uniform load (moving average)";
  }
  return "";
}

LayerMaps::Tsne tsne_map(Threads& threads, const Points& keys, const std::vector<double>& usage,
                         const TsneSettings& asked) {
  LayerMaps::Tsne map;
  map.experts.resize(usage.size());
  std::iota(map.experts.begin(), map.experts.end(), 0);
  // t-SNE compares all pairs, so only the busiest experts of a very large library are drawn.
  if (keys.count > max_tsne_points) {
    std::stable_sort(map.experts.begin(), map.experts.end(), [&](int a, int b) {
      return usage[static_cast<std::size_t>(a)] > usage[static_cast<std::size_t>(b)];
    });
    map.experts.resize(max_tsne_points);
    std::sort(map.experts.begin(), map.experts.end());
  }
  Points chosen{std::ssize(map.experts), keys.dimensions, {}};
  for (const int e : map.experts) chosen.values.insert(chosen.values.end(), keys.row(e), keys.row(e) + keys.dimensions);
  map.settings = resolve(asked, chosen.count);
  map.result = tsne(threads, chosen, map.settings);
  return map;
}

LayerMaps map_layer(const OpenedRun& run, const Layer& layer, const std::vector<double>& usage,
                    const TsneSettings& settings) {
  const std::int64_t experts = run.recipe.model.experts;
  LayerMaps maps;
  maps.positions = read_key_positions(run.paths.folder, run.recipe.run_id, layer.index,
                                      positions_per_map(experts, max_map_points) - 1, run.step);
  const Points keys{experts, run.recipe.model.query_size(), read_vector(layer.keys.keys)};
  maps.positions.push_back({run.step, keys, usage});
  maps.plane = principal_plane(keys);
  maps.pca = project(keys, maps.plane);
  Points all{0, keys.dimensions, {}};
  for (const KeyPositions& one : maps.positions) {
    all.count += one.keys.count;
    all.values.insert(all.values.end(), one.keys.values.begin(), one.keys.values.end());
  }
  maps.movement_plane = principal_plane(all);
  if (experts >= tsne_least_points) maps.tsne = tsne_map(*run.ctx->threads, keys, usage, settings);
  return maps;
}

InspectedLayer inspect_layer(const OpenedRun& run, const Layer& layer, const LayerMeasures& measures) {
  InspectedLayer one;
  one.measures = measures;
  one.keys_learn = run.model->layer_learns(layer.index);
  one.usage_of_data = measures.count.experts_used == 0;
  if (one.usage_of_data) {
    one.measures.count = measures.validation->count;
    one.measures.mass = measures.validation->mass;
    one.usage = measures.validation->choices.counts;
    one.mass = measures.validation->choices.mass;
    one.usage_name = "assignments in the evaluated documents";
  } else {
    one.usage = read_vector(layer.keys.usage);
    one.mass = read_vector(layer.keys.mass);
    one.usage_name = usage_name(run.recipe.model.keys.usage);
  }
  const Router* const router = layer.ffn ? layer.ffn->router() : nullptr;
  const Tensor temperature = router != nullptr ? router->log_temperature() : Tensor();
  one.routing_temperature = temperature ? std::exp(read_vector(temperature)[0]) : run.recipe.model.eval_temp;
  return one;
}

}  // namespace

InspectReport inspect_run(OpenedRun& run, const InspectOptions& options) {
  require_experts(run, "inspect");
  if (options.layer) require_layer(run.recipe.model, *options.layer);
  if (run.recipe.model.experts >= tsne_least_points)
    resolve(options.tsne, std::min<std::int64_t>(run.recipe.model.experts, max_tsne_points));
  const AnalysisText text = load_analysis_text(run, options.data, options.max_documents);
  InspectReport report;
  report.run = run.paths.folder;
  report.step = run.step;
  report.middle_layer = run.recipe.model.layers / 2;
  report.experts = run.recipe.model.experts;
  report.top_k = run.recipe.model.top_k;
  report.data = text.source;
  report.how = evaluate_options(run.recipe, run.tokenizer);
  report.how.max_documents = options.max_documents;
  report.evaluation = evaluate(*run.model, text.data, report.how);
  const Start start = first_positions(run);
  if (!start.keys.empty()) report.moved_since_step = start.step;
  const std::vector<LayerMeasures> measures = layer_measures(*run.model, report.evaluation.layers, start.keys);
  const auto used = experts_used_last_epoch(run);
  for (const Layer& layer : run.model->layers()) {
    if (options.layer && layer.index != *options.layer) continue;
    const auto l = static_cast<std::size_t>(layer.index);
    InspectedLayer one = inspect_layer(run, layer, measures[l]);
    if (l < used.size()) one.experts_used_last_epoch = used[l];
    if (options.maps) one.maps = map_layer(run, layer, one.usage, options.tsne);
    report.layers.push_back(std::move(one));
  }
  return report;
}

nlohmann::json to_json(const InspectReport& report) {
  nlohmann::json out{{"run", report.run},
                     {"step", report.step},
                     {"middle_layer", report.middle_layer},
                     {"experts", report.experts},
                     {"top_k", report.top_k},
                     {"evaluation", to_json(report.evaluation, report.how)},
                     {"layers", nlohmann::json::array()}};
  if (report.moved_since_step) out["moved_since_step"] = *report.moved_since_step;
  out["evaluation"]["data"] = report.data;
  for (const InspectedLayer& layer : report.layers) {
    nlohmann::json one = to_json(layer.measures);
    // The count restarts at the end of each epoch, where it is empty; the value logged by that epoch's evaluation is
    // reported instead.
    one.erase("experts_used_this_epoch");
    one["experts_used_last_epoch"] =
        layer.experts_used_last_epoch ? nlohmann::json(*layer.experts_used_last_epoch) : nlohmann::json();
    one["keys_learn"] = layer.keys_learn;
    one["usage_of"] = layer.usage_of_data ? "data" : "training";
    one["routing_temperature"] = layer.routing_temperature;
    if (layer.maps) {
      const LayerMaps& maps = *layer.maps;
      const auto shares = [](const Plane& plane) { return nlohmann::json{plane.share[0], plane.share[1]}; };
      one["pca"] = {{"variance_shares", shares(maps.plane)}};
      if (maps.tsne) {
        const TsneSettings& settings = maps.tsne->settings;
        one["tsne"] = {{"perplexity", settings.perplexity},
                       {"iterations", settings.iterations},
                       {"exaggeration", settings.exaggeration},
                       {"learning_rate", settings.learning_rate},
                       {"seed", settings.seed},
                       {"divergence", maps.tsne->result.divergence},
                       {"experts", maps.tsne->experts.size()}};
      }
      if (maps.positions.size() > 1) {
        nlohmann::json steps = nlohmann::json::array();
        for (const KeyPositions& position : maps.positions) steps.push_back(position.step);
        one["movement"] = {{"steps", steps}, {"variance_shares", shares(maps.movement_plane)}};
      }
    }
    out["layers"].push_back(std::move(one));
  }
  return out;
}

std::string clique_text(const Clique& clique) {
  return fmt::format("{{{}}} {:.1f} %", fmt::join(clique.experts, " "), 100 * clique.share);
}

}  // namespace some
