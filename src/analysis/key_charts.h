// Charts of how a layer's experts are used and where its keys lie, for every page that shows them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "plot/document.h"
#include "plot/projection.h"

namespace some {

// The keys of one layer at one step, as a run saved them.
struct KeyPositions {
  std::int64_t step = 0;
  Points keys;                // [experts, width]
  std::vector<double> usage;  // [experts]
};
// In the order of their steps: at most `most` of those before step `before`, the first and the last among them.
std::vector<KeyPositions> read_key_positions(const std::string& folder, int layer, std::size_t most,
                                             std::int64_t before = std::numeric_limits<std::int64_t>::max());
// Usage of every layer at the last saved positions; empty when none were saved.
std::vector<std::vector<double>> read_last_usage(const std::string& folder);

// How many experts of a layer are used how much, on a logarithmic scale.
Chart usage_histogram(const std::string& id, int layer, const std::vector<double>& usage);
// Usage of the experts of each layer, the most used first. layers: their numbers.
Chart usage_ranks(const std::string& id, const std::vector<int>& layers, int middle,
                  const std::vector<std::vector<double>>& usage);

// How many saved positions a map of so many keys shows, when it may show `points` of them: it must not bloat the page.
std::size_t positions_of_a_map(std::int64_t experts, std::size_t points);

struct TsneMap {
  std::vector<int> experts;  // whose keys it shows; a map with one shows these alone
  std::vector<Point2> places;
  std::string note;
};
// Where the keys of a layer lie and where they came from, in the plane in which all saved positions spread most; with
// each key's nearest neighbours, from which the page works out a map by UMAP; and beside them t-SNE where it is given.
Chart key_map(Threads& threads, const std::string& id, const std::string& title, const std::string& note,
              const std::vector<KeyPositions>& positions, const std::vector<double>& usage,
              const std::optional<TsneMap>& tsne = std::nullopt);

// Digits enough for a drawing, few enough for a small page; null for what is not finite.
nlohmann::json chart_number(double value);
nlohmann::json chart_point(double x, double y);

}  // namespace some
