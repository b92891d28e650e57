// The parts of a report, each adding its blocks to the document.
#pragma once

#include <vector>

#include "lab/document.h"
#include "lab/groups.h"
#include "lab/samples.h"
#include "lab/series.h"

namespace some {

// Plain words on what the numbers mean; only what concerns these runs.
void add_reading_guide(Document& document, const std::vector<RunGroup>& groups);
// One line an experiment.
Table overview_table(const std::string& id, const std::vector<const RunGroup*>& groups);
// A series: what it asks, its overview, its curves.
void add_series(Document& document, const Series& series, const std::vector<const RunGroup*>& groups);
// What the documents claim, with the runs that can tell, and the controls beside them.
void add_claims(Document& document, const std::vector<RunGroup>& groups);
// Every series and recipe of the index, with what was published and what was run.
void add_experiment_index(Document& document, const SeriesIndex& index, const std::vector<RunGroup>& groups);
// One experiment in full.
void add_run(Document& document, const RunGroup& group, const RunSamples& samples);
// Known reasons for numbers that differ from the published ones.
void add_reasons(Document& document);

std::string duration(double seconds);  // "28.0 s", "4.4 min", "1.2 h"

inline constexpr const char* reasons_id = "why";

}  // namespace some
