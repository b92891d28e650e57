// The report of `some lab report`: published compared with reproduced numbers, curves, keys, samples, and their
// interpretation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/series.h"
#include "runtime/host.h"
#include "runtime/machine.h"

namespace some {

struct ReportOptions {
  std::string runs = "lab";  // folder of the run folders
  bool samples = true;       // generate and trace text with each model; earlier samples are cached in the run folder
  DeviceChoice device;
  Host host;
  std::function<void(const std::string&)> progress;  // may be empty
};

struct Report {
  std::string html, markdown;
  std::size_t runs = 0;
};

// `names`: series, recipes (all their runs in options.runs) or run folders; empty: every run of options.runs. Throws
// (bad_input) for an unknown name and for a report without runs.
Report make_report(const SeriesIndex& index, const std::vector<std::string>& names, const ReportOptions& options);

}  // namespace some
