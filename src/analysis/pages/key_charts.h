// Charts of expert usage and key positions of a layer, shared by several pages.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "plot/document.h"
#include "plot/projection.h"

namespace some {

// The keys of one layer at one step, as saved by the run.
struct KeyPositions {
  std::int64_t step = 0;
  Points keys;                // [experts, width]
  std::vector<double> usage;  // [experts]
};
// Reads at most `most` saved positions before step `before`, evenly spaced and including the first and the last, sorted
// by step. run: the run's id; files of another run are refused.
std::vector<KeyPositions> read_key_positions(const std::string& folder, const std::string& run, int layer,
                                             std::size_t most,
                                             std::int64_t before = std::numeric_limits<std::int64_t>::max());
// Returns the usage of every layer at the last saved positions; empty if none were saved.
std::vector<std::vector<double>> read_last_usage(const std::string& folder, const std::string& run);

// Histogram of the usage of a layer's experts, with a logarithmic scale.
Chart usage_histogram(const std::string& id, int layer, const std::vector<double>& usage);
// Usage of each layer's experts by rank, the most used first. layers: layer numbers.
Chart usage_ranks(const std::string& id, const std::vector<int>& layers, int middle,
                  const std::vector<std::vector<double>>& usage);

// Returns how many saved positions a map of `experts` keys shows if it may have `points` points in total; this limits
// the size of the page.
std::size_t positions_per_map(std::int64_t experts, std::size_t points);

struct TsneMap {
  std::vector<int> experts;  // the experts whose keys it shows; a chart with a t-SNE map shows only these
  std::vector<Point2> places;
  std::string note;
};
// Map of a layer's keys and their past positions, in the principal plane of all saved positions. Includes each key's
// nearest neighbors, from which the page computes a UMAP layout, and the t-SNE map if one is given.
Chart key_map_chart(Threads& threads, const std::string& id, const std::string& title, const std::string& note,
                    const std::vector<KeyPositions>& positions, const std::vector<double>& usage,
                    const std::optional<TsneMap>& tsne = std::nullopt);

// Rounds to a precision sufficient for drawing, to keep pages small; null if not finite.
nlohmann::json chart_number(double value);
nlohmann::json chart_point(double x, double y);

}  // namespace some
