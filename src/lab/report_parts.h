// Sections of a report; each function adds its blocks to the document.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "lab/groups.h"
#include "lab/samples.h"
#include "lab/series.h"
#include "lab/texts.h"
#include "plot/document.h"

namespace some {

// Adds a plain-language guide to the numbers, limited to what concerns these runs.
void add_reading_guide(Document& document, const ReportTexts& texts, const std::vector<RunGroup>& groups);
// Returns a table with one line per experiment.
Table overview_table(const std::string& id, const std::vector<const RunGroup*>& groups);
// Adds a series: its question, its overview, its curves.
void add_series(Document& document, const ReportTexts& texts, const Series& series,
                const std::vector<const RunGroup*>& groups);
// Adds the claims of the documents, evaluated on the available runs and their controls.
void add_claims(Document& document, const ReportTexts& texts, const std::vector<RunGroup>& groups);
// Adds every series and recipe of the index, with published and reproduced results.
void add_experiment_index(Document& document, const ReportTexts& texts, const SeriesIndex& index,
                          const std::vector<RunGroup>& groups);
// Adds every published number of any run, with the reproduced number if the run was done at full size.
void add_published_numbers(Document& document, const SeriesIndex& index, const std::vector<RunGroup>& groups);
// Adds published compared with reproduced numbers by epoch; nothing if no numbers were published.
void add_published_comparison(Document& document, const RunGroup& group);
// Adds numbers of the whole run: parameters, experts used, time, speed.
void add_size_and_speed(Document& document, const RunGroup& group);
// Adds the full section of one experiment.
void add_run(Document& document, const ReportTexts& texts, const RunGroup& group, const RunSamples& samples,
             Threads& threads);
// Adds known reasons for differences from the published numbers.
void add_reasons(Document& document, const ReportTexts& texts);
// Returns a published number; pale if it cannot be compared with this experiment.
Text published_text(const RunGroup& group, const std::string& number);

inline std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }
std::string duration(double seconds);  // "28.0 s", "4.4 min", "1.2 h"

inline constexpr const char* reasons_id = "why";

}  // namespace some
