// What stands at the top of a page about one run.
#pragma once

#include <string>

#include "plot/document.h"
#include "runs/run.h"

namespace some {

std::string run_name(const OpenedRun& run);  // the last part of its folder
// kind: "Trace". The facts: the run's name and folder, what it is, its sizes.
Header run_header(const std::string& kind, const OpenedRun& run);

}  // namespace some
