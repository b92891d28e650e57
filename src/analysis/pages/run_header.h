// Header of a page about one run.
#pragma once

#include <string>

#include "plot/document.h"
#include "runs/run.h"

namespace some {

std::string run_name(const OpenedRun& run);  // last component of its folder
// Returns a header with the run's name, folder, description and sizes. kind: for example "Trace".
Header run_header(const std::string& kind, const OpenedRun& run);

}  // namespace some
