// The parts of a report, each adding its blocks to the document.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "lab/groups.h"
#include "lab/samples.h"
#include "lab/series.h"
#include "lab/texts.h"
#include "plot/document.h"

namespace some {

// Plain words on what the numbers mean; only what concerns these runs.
void add_reading_guide(Document& document, const ReportTexts& texts, const std::vector<RunGroup>& groups);
// One line an experiment.
Table overview_table(const std::string& id, const std::vector<const RunGroup*>& groups);
// A series: what it asks, its overview, its curves.
void add_series(Document& document, const ReportTexts& texts, const Series& series,
                const std::vector<const RunGroup*>& groups);
// What the documents claim, with the runs that can tell, and the controls beside them.
void add_claims(Document& document, const ReportTexts& texts, const std::vector<RunGroup>& groups);
// Every series and recipe of the index, with what was published and what was run.
void add_experiment_index(Document& document, const ReportTexts& texts, const SeriesIndex& index,
                          const std::vector<RunGroup>& groups);
// Every number that was published of any run, and what came out here where it was run at full size.
void add_published_numbers(Document& document, const SeriesIndex& index, const std::vector<RunGroup>& groups);
// Published against reproduced, epoch by epoch; nothing where nothing was published.
void add_published_comparison(Document& document, const RunGroup& group);
// Numbers of the whole run: parameters, experts used, time, speed.
void add_size_and_speed(Document& document, const RunGroup& group);
// One experiment in full.
void add_run(Document& document, const ReportTexts& texts, const RunGroup& group, const RunSamples& samples,
             Threads& threads);
// Known reasons for numbers that differ from the published ones.
void add_reasons(Document& document, const ReportTexts& texts);
// A published number beside this experiment: pale where it cannot be compared with it.
Text published_text(const RunGroup& group, const std::string& number);

inline std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }
std::string duration(double seconds);  // "28.0 s", "4.4 min", "1.2 h"

inline constexpr const char* reasons_id = "why";

}  // namespace some
