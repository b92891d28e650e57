// The horizontal axes of a run's curves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "board/run_log.h"

namespace some {
namespace {

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::optional<XAxis> x_axis(const std::string& name) {
  using Kind = XAxis::Kind;
  static const std::map<std::string, Kind> kinds = {{"", Kind::step},           {"step", Kind::step},
                                                    {"tokens", Kind::tokens},   {"time", Kind::time},
                                                    {"elapsed", Kind::elapsed}, {"clock", Kind::clock}};
  if (const auto found = kinds.find(name); found != kinds.end()) return XAxis{found->second, {}};
  if (name.find('.') != std::string::npos) return XAxis{Kind::metric, name};
  return std::nullopt;
}

// Interpolates times of the rows of "rates" at a step; NaN after the last row.
double RunLog::at_step(const std::vector<double>& times, double step) const {
  const auto found = tables_.find("rates");
  if (times.empty() || found == tables_.end()) return no_value;
  const CurveTable& table = found->second.table;
  std::size_t after = 0;  // the first row at or after the step
  for (std::size_t end = times.size(); after < end;) {
    const std::size_t middle = (after + end) / 2;
    if (table.step(middle) < step)
      after = middle + 1;
    else
      end = middle;
  }
  if (after == times.size()) return no_value;
  if (table.step(after) == step) return times[after];
  const double step_before = after > 0 ? table.step(after - 1) : 0;
  const double before = after > 0 ? times[after - 1] : &times == &seconds_ ? 0 : times[0];
  return before + (times[after] - before) * (step - step_before) / (table.step(after) - step_before);
}

// Returns the training tokens at a row. Rows without an epoch take those of the training lines around their step.
double RunLog::tokens_of(const CurveTable& table, std::size_t row) const {
  if (std::isfinite(table.tokens(row))) return table.tokens(row);
  const auto found = tables_.find("train");
  if (found == tables_.end()) return no_value;
  const CurveTable& train = found->second.table;
  const double step = table.step(row);
  std::size_t after = 0;
  for (std::size_t end = train.rows(); after < end;) {
    const std::size_t middle = (after + end) / 2;
    if (train.step(middle) < step)
      after = middle + 1;
    else
      end = middle;
  }
  if (after == train.rows()) return no_value;
  if (train.step(after) == step || after == 0) return train.step(after) == step ? train.tokens(after) : no_value;
  const double before = train.tokens(after - 1),
               share = (step - train.step(after - 1)) / (train.step(after) - train.step(after - 1));
  return std::round(before + share * (train.tokens(after) - before));
}

const RunLog::Kept* RunLog::table_of(const std::string& metric, std::string& column) const {
  const std::size_t dot = metric.find('.');
  if (dot == std::string::npos) return nullptr;
  column = metric.substr(dot + 1);
  const auto found = tables_.find(metric.substr(0, dot));
  return found == tables_.end() ? nullptr : &found->second;
}

std::vector<XY> RunLog::curve(const std::string& metric, const XAxis& axis, const Range& range) const {
  using Kind = XAxis::Kind;
  // Points of a metric over another one are in the order of the steps, at which the other one is interpolated.
  const std::vector<XY> other = axis.kind == Kind::metric ? curve(axis.metric, {}, {}) : std::vector<XY>{};
  std::size_t near = 0;
  const auto other_at = [&](double step) {
    while (near + 1 < other.size() && other[near + 1].x <= step) ++near;
    if (other.empty() || step < other.front().x || step > other.back().x) return no_value;
    if (near + 1 == other.size()) return other[near].y;
    const XY &before = other[near], &after = other[near + 1];
    return before.y + (after.y - before.y) * (step - before.x) / (after.x - before.x);
  };
  const std::lock_guard lock(mutex_);
  const auto first = std::find_if(clock_.begin(), clock_.end(), [](double time) { return std::isfinite(time); });
  const double began = first == clock_.end() ? no_value : *first;
  const auto x_at = [&](const CurveTable& table, std::size_t row) {
    const double step = table.step(row);
    switch (axis.kind) {
      case Kind::tokens: return tokens_of(table, row);
      case Kind::time: return seconds_at(step);
      case Kind::clock: return std::floor(at_step(clock_, step));
      case Kind::elapsed: return (at_step(clock_, step) - began) / 1000;
      case Kind::metric: return other_at(step);
      case Kind::step: break;
    }
    return step;
  };
  std::string column;
  std::vector<XY> out;
  const Kept* kept = table_of(metric, column);
  const CurveTable::Column* numbers = kept == nullptr ? nullptr : kept->table.find(column);
  if (numbers == nullptr) return out;
  const CurveTable& table = kept->table;
  for (std::size_t row = 0; row < numbers->size(); ++row) {
    const double y = static_cast<double>((*numbers)[row]);
    if (!std::isfinite(y)) continue;
    const double x = x_at(table, row);
    if (std::isfinite(x) && range.has(x)) out.push_back({x, y});
  }
  return out;
}

}  // namespace some
