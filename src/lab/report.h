// The report of `some lab report`: published against reproduced numbers, curves, keys, samples, and what to make of
// them.
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
  bool samples = true;  // open each model to write text and trace it; what was written before is kept in the run folder
  DeviceChoice device;
  Host host;
  std::function<void(const std::string&)> progress;  // may be empty
};

struct Report {
  std::string html, markdown;
  std::size_t runs = 0;
};

// `names`: series, recipes (every run of it in options.runs) or run folders; none: every run of options.runs. A name
// that is none of these, or a report without a single run, is bad input.
Report make_report(const SeriesIndex& index, const std::vector<std::string>& names, const ReportOptions& options);

}  // namespace some
