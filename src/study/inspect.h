// A run looked at layer by layer: its measures (spec 6), and pictures of usage and keys as SVG and as data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/rooms.h"
#include "study/projection.h"
#include "train/run.h"

namespace some::study {

struct InspectOptions {
  int layer = -1;              // pictures and table of this layer alone; -1: all
  std::string data;            // empty: the run's validation stories
  std::int64_t stories = 200;  // 0: all
  TsneSettings tsne;
  std::string out;  // folder for the pictures; empty: none are drawn
};

// The report: run, step, evaluation on `data`, one object a layer, the files written. Opens the choices of `stories`
// stories for cliques and gates.
nlohmann::json inspect_run(OpenedRun& run, const InspectOptions& options);

// The report as one page, with the pictures beside it in the same folder.
std::string inspect_page(const nlohmann::json& report);

}  // namespace some::study
