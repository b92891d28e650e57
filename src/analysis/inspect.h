// A run looked at layer by layer: its measures (spec 6), maps of its keys, a page of both; pictures as SVG where they
// are asked for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/key_charts.h"
#include "evaluation/evaluate.h"
#include "evaluation/layer_measures.h"
#include "plot/projection.h"
#include "runs/run.h"

namespace some {

struct InspectOptions {
  std::optional<int> layer;    // this layer alone; otherwise all
  std::string data;            // empty: the run's validation stories
  std::int64_t stories = 200;  // 0: all
  TsneSettings tsne;
  bool maps = true;  // of the keys; without them there is no page
};

// Where the keys of a layer lie.
struct LayerMaps {
  std::vector<KeyPositions> positions;  // saved ones up to the checkpoint, and those of the checkpoint itself
  Plane plane;                          // of the keys now
  std::vector<Point2> pca;
  Plane movement_plane;  // of all positions together
  struct Tsne {
    std::vector<int> experts;  // of a very large library the busiest
    TsneSettings settings;
    TsneResult result;
  };
  std::optional<Tsne> tsne;  // where there are keys enough
};

struct InspectedLayer {
  // Usage is the running mean of the key update; of a layer whose keys never learn and so count nothing it is what the
  // stories chose.
  LayerMeasures measures;
  bool usage_of_data = false;
  bool keys_learn = true;
  double routing_temperature = 0;
  // What the evaluation at this checkpoint saw of the epoch it closed; nothing where there was none.
  std::optional<std::int64_t> experts_used_last_epoch;
  std::vector<double> usage, mass;  // by expert
  std::string usage_name;           // what `usage` counts, in words
  std::optional<LayerMaps> maps;
};

struct InspectReport {
  std::string run;
  std::int64_t step = 0;
  int middle_layer = 0, experts = 0, top_k = 0;
  std::optional<std::int64_t> moved_since_step;
  Evaluation evaluation;
  EvaluateOptions how;  // it was evaluated
  std::string data;
  std::vector<InspectedLayer> layers;
};

// Opens the choices of `stories` stories for cliques and gates.
InspectReport inspect_run(OpenedRun& run, const InspectOptions& options);
nlohmann::json to_json(const InspectReport& report);
// The report as one page, maps and all.
std::string inspect_page(const InspectReport& report, const OpenedRun& run);

// Writes index.html, inspect.json and the numbers of every layer as CSV into a folder; with `svg` the pictures too, for
// where there is no browser. Needs maps. Returns what it wrote.
std::vector<std::string> write_inspection(const InspectReport& report, const OpenedRun& run, const std::string& folder,
                                          bool svg);

// How a t-SNE map was made, in sentences.
std::vector<std::string> tsne_notes(const LayerMaps::Tsne& tsne, int experts);
// "{3 17} 12.5 %"
std::string clique_text(const Clique& clique);

}  // namespace some
