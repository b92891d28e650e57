// Inspection of a run by layer: its measures (spec 6), maps of its keys, an HTML page with both, and SVG pictures on
// request.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/pages/key_charts.h"
#include "evaluation/evaluate.h"
#include "evaluation/layer_measures.h"
#include "plot/projection.h"
#include "runs/run.h"

namespace some {

struct InspectOptions {
  std::optional<int> layer;          // only this layer; none: all
  std::string data;                  // empty: the run's validation documents
  std::int64_t max_documents = 200;  // 0: all
  TsneSettings tsne;
  bool maps = true;  // key maps; without them no page is written
};

// Positions of a layer's keys in two dimensions.
struct LayerMaps {
  std::vector<KeyPositions> positions;  // saved positions up to the checkpoint, and those of the checkpoint itself
  Plane plane;                          // plane of the current keys
  std::vector<Point2> pca;
  Plane movement_plane;  // common plane of all saved positions
  struct Tsne {
    std::vector<int> experts;  // the busiest experts of a very large library, otherwise all
    TsneSettings settings;
    TsneResult result;
  };
  std::optional<Tsne> tsne;  // only if there are enough keys
};

struct InspectedLayer {
  // Usage is the running mean kept by the key update. For a layer whose keys never learn, and which therefore counts
  // nothing, it is the load measured on the documents.
  LayerMeasures measures;
  bool usage_of_data = false;
  bool keys_learn = true;
  double routing_temperature = 0;
  // Experts used in the last epoch, as logged by the evaluation at this checkpoint; none if there was no evaluation.
  std::optional<std::int64_t> experts_used_last_epoch;
  std::vector<double> usage, mass;  // by expert; `mass`: gate-weighted load
  std::string usage_name;           // description of the quantity in `usage`
  std::optional<LayerMaps> maps;
};

struct InspectReport {
  std::string run;
  std::int64_t step = 0;
  int middle_layer = 0, experts = 0, top_k = 0;
  std::optional<std::int64_t> moved_since_step;
  Evaluation evaluation;
  EvaluateOptions how;  // evaluation settings
  std::string data;
  std::vector<InspectedLayer> layers;
};

// Measures a run. Collects the assignments of `stories` documents for cliques and gates.
InspectReport inspect_run(OpenedRun& run, const InspectOptions& options);
nlohmann::json to_json(const InspectReport& report);
// Returns the report as one HTML page, including the maps.
std::string inspect_page(const InspectReport& report, const OpenedRun& run);

// Writes index.html, inspect.json and the measures of every layer as CSV into a folder; with `svg` also the pictures,
// for use without a browser. Requires maps. Returns the names of the written files.
std::vector<std::string> write_inspection(const InspectReport& report, const OpenedRun& run, const std::string& folder,
                                          bool svg);

// Describes how a t-SNE map was computed, in sentences.
std::vector<std::string> tsne_notes(const LayerMaps::Tsne& tsne, int experts);
// Formats a clique: "{3 17} 12.5 %".
std::string clique_text(const Clique& clique);

}  // namespace some
