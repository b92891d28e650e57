#include "analysis/route_match.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace some {
namespace {

// Counts the positions at which each pair of experts is chosen by the two runs. `order`: the position of the second run
// that is compared with each position of the first.
std::vector<std::vector<double>> shared_positions(const LayerAssignments& first, const LayerAssignments& second,
                                                  std::size_t first_k, std::size_t second_k, int first_experts,
                                                  int second_experts, const std::vector<std::size_t>& order) {
  std::vector<std::vector<double>> counts(static_cast<std::size_t>(first_experts),
                                          std::vector<double>(static_cast<std::size_t>(second_experts), 0));
  for (std::size_t t = 0; t < order.size(); ++t) {
    for (std::size_t i = t * first_k; i < (t + 1) * first_k; ++i) {
      auto& row = counts[static_cast<std::size_t>(first.experts[i])];
      for (std::size_t j = order[t] * second_k; j < (order[t] + 1) * second_k; ++j)
        row[static_cast<std::size_t>(second.experts[j])] += 1;
    }
  }
  return counts;
}

double matched_sum(const std::vector<std::vector<double>>& counts, const std::vector<int>& assignment) {
  double sum = 0;
  for (std::size_t row = 0; row < counts.size(); ++row) {
    if (assignment[row] >= 0) sum += counts[row][static_cast<std::size_t>(assignment[row])];
  }
  return sum;
}

}  // namespace

std::vector<int> best_assignment(const std::vector<std::vector<double>>& weights) {
  const std::size_t rows = weights.size(), columns = rows == 0 ? 0 : weights[0].size(), n = std::max(rows, columns);
  double largest = 0;
  for (const auto& row : weights) {
    for (const double weight : row) largest = std::max(largest, weight);
  }
  // Finds shortest augmenting paths with potentials on the square cost matrix; missing rows and columns have the
  // highest cost.
  const auto cost = [&](std::size_t row, std::size_t column) {
    return row < rows && column < columns ? largest - weights[row][column] : largest;
  };
  std::vector<double> row_potential(n + 1, 0), column_potential(n + 1, 0);
  std::vector<std::size_t> row_of(n + 1, 0), way(n + 1, 0);  // 1-based; 0: none
  for (std::size_t row = 1; row <= n; ++row) {
    row_of[0] = row;
    std::size_t column = 0;
    std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
    std::vector<bool> used(n + 1, false);
    do {
      used[column] = true;
      const std::size_t from = row_of[column];
      double delta = std::numeric_limits<double>::infinity();
      std::size_t next = 0;
      for (std::size_t to = 1; to <= n; ++to) {
        if (used[to]) continue;
        const double reduced = cost(from - 1, to - 1) - row_potential[from] - column_potential[to];
        if (reduced < least[to]) {
          least[to] = reduced;
          way[to] = column;
        }
        if (least[to] < delta) {
          delta = least[to];
          next = to;
        }
      }
      for (std::size_t to = 0; to <= n; ++to) {
        if (used[to]) {
          row_potential[row_of[to]] += delta;
          column_potential[to] -= delta;
        } else {
          least[to] -= delta;
        }
      }
      column = next;
    } while (row_of[column] != 0);
    for (; column != 0; column = way[column]) row_of[column] = row_of[way[column]];
  }
  std::vector<int> out(rows, -1);
  for (std::size_t column = 1; column <= columns; ++column) {
    if (row_of[column] >= 1 && row_of[column] <= rows) out[row_of[column] - 1] = static_cast<int>(column) - 1;
  }
  return out;
}

RouteMatch match_routes(OpenedRun& first, OpenedRun& second, const RouteMatchOptions& options) {
  require_experts(first, "compare");
  require_experts(second, "compare");
  if (first.tokenizer.hash() != second.tokenizer.hash())
    bad_input(Code::tokenizer_mismatch, "{} and {} have different tokenizers, so their positions are not the same",
              first.paths.folder, second.paths.folder);
  if (options.shuffles < 1 || options.shuffles > 100000)
    bad_input(Code::option_invalid, "{} {}: must be from 1 to 100000", "--shuffles", options.shuffles);
  const AnalysisText text = load_analysis_text(first, options.data, options.max_documents);
  const auto collected = [&](OpenedRun& run) {
    CollectOptions collect;
    collect.max_documents = options.max_documents;
    collect.rows = run.recipe.train.batch;
    collect.pad_id = run.tokenizer.pad_id();
    collect.eos_id = run.tokenizer.eos_id();
    collect.long_documents = first.recipe.data.long_documents;
    return collect_assignments(*run.model, text.data, collect);
  };
  const Choices a = collected(first), b = collected(second);
  if (a.document != b.document || a.places != b.places)
    bad_input(Code::run_mismatch, "{} and {} cut documents differently (model.seq_len)", first.paths.folder,
              second.paths.folder);
  RouteMatch match{first.paths.folder, second.paths.folder, text.source, text.documents,
                   a.positions(),      options.shuffles,    {}};
  const auto first_k = static_cast<std::size_t>(a.top_k), second_k = static_cast<std::size_t>(b.top_k);
  const double choices = static_cast<double>(a.positions()) * a.top_k;
  const int experts = first.recipe.model.experts, other_experts = second.recipe.model.experts;
  for (int layer = 0; layer < std::min(first.recipe.model.layers, second.recipe.model.layers); ++layer) {
    const auto& of_first = a.layers[static_cast<std::size_t>(layer)];
    const auto& of_second = b.layers[static_cast<std::size_t>(layer)];
    const auto counted = [&](const std::vector<std::size_t>& order) {
      return shared_positions(of_first, of_second, first_k, second_k, experts, other_experts, order);
    };
    std::vector<std::size_t> order(static_cast<std::size_t>(a.positions()));
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto counts = counted(order);
    const std::vector<int> assignment = best_assignment(counts);
    LayerMatch one;
    one.layer = layer;
    one.agreement = matched_sum(counts, assignment) / choices;
    std::vector<double> chosen(static_cast<std::size_t>(experts), 0);
    for (const std::int32_t expert : of_first.experts) chosen[static_cast<std::size_t>(expert)] += 1;
    for (std::size_t e = 0; e < assignment.size(); ++e) {
      if (assignment[e] < 0 || chosen[e] == 0) continue;
      one.pairs.push_back(
          {static_cast<int>(e), assignment[e], counts[e][static_cast<std::size_t>(assignment[e])] / chosen[e]});
    }
    int reached = 0;
    for (int shuffle = 0; shuffle < options.shuffles; ++shuffle) {
      const RandomStream stream = random_stream(options.seed, fmt::format("routes.{}.{}", layer, shuffle));
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[stream.below(i, static_cast<std::uint32_t>(i))]);
      const auto shuffled = counted(order);
      const double agreement = matched_sum(shuffled, best_assignment(shuffled)) / choices;
      one.chance_mean += agreement / options.shuffles;
      one.chance_most = std::max(one.chance_most, agreement);
      reached += agreement >= one.agreement;
    }
    one.p = (1.0 + reached) / (1.0 + options.shuffles);
    match.layers.push_back(std::move(one));
  }
  return match;
}

nlohmann::json to_json(const RouteMatch& match) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerMatch& one : match.layers) {
    nlohmann::json pairs = nlohmann::json::array();
    for (const ExpertPair& pair : one.pairs)
      pairs.push_back({{"first", pair.first}, {"second", pair.second}, {"shared", pair.shared}});
    layers.push_back({{"layer", one.layer},
                      {"agreement", one.agreement},
                      {"chance_mean", one.chance_mean},
                      {"chance_most", one.chance_most},
                      {"p", one.p},
                      {"pairs", pairs}});
  }
  return {{"first", match.first},
          {"second", match.second},
          {"data", match.data},
          {"documents", match.documents},
          {"positions", match.positions},
          {"shuffles", match.shuffles},
          {"layers", layers}};
}

}  // namespace some
