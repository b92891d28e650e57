#include "board/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace some {

const CurveTable::Column* CurveTable::find(const std::string& name) const {
  const auto found = columns_.find(name);
  return found == columns_.end() ? nullptr : &found->second;
}

double CurveTable::value(const Column& column, std::size_t row) const {
  return row < column.size() ? static_cast<double>(column[row]) : std::numeric_limits<double>::quiet_NaN();
}

void CurveTable::begin_row(double step, double tokens) {
  step_.push_back(step);
  tokens_.push_back(tokens);
}

void CurveTable::set(Column& column, double value) {
  column.resize(rows() - 1, std::numeric_limits<float>::quiet_NaN());
  column.push_back(static_cast<float>(value));
}

void CurveTable::clear() {
  step_.clear();
  tokens_.clear();
  columns_.clear();
}

void CurveTable::cut(std::size_t rows) {
  if (rows >= step_.size()) return;
  step_.resize(rows);
  tokens_.resize(rows);
  for (auto& [name, column] : columns_) column.resize(std::min(column.size(), rows));
}

std::vector<XY> smoothed(const std::vector<XY>& points, Smoother& smoother) {
  std::vector<XY> out;
  out.reserve(points.size());
  for (const XY& point : points) out.push_back({point.x, smoother.next(point.y)});
  return out;
}

namespace {

// Divides the range between the first and the last x into `buckets` equal intervals.
class Stretches {
 public:
  Stretches(double first, double last, std::size_t buckets)
      : first_(first), scale_(last > first ? static_cast<double>(buckets) / (last - first) : 0), buckets_(buckets) {}
  std::size_t of(double x) const {
    const double place = (x - first_) * scale_;
    return place <= 0 ? 0 : std::min(buckets_ - 1, static_cast<std::size_t>(place));
  }

 private:
  double first_, scale_;
  std::size_t buckets_;
};

}  // namespace

std::vector<XY> downsampled(const std::vector<XY>& points, std::size_t buckets, bool in_order) {
  if (points.size() <= 2 * buckets || points.size() < 3) return points;
  const double last = static_cast<double>(points.size() - 1);
  const Stretches stretches(in_order ? 0 : points.front().x, in_order ? last : points.back().x, buckets);
  const auto place = [&](std::size_t i) { return in_order ? static_cast<double>(i) : points[i].x; };
  std::vector<XY> out{points.front()};
  for (std::size_t begin = 1; begin + 1 < points.size();) {
    const std::size_t stretch = stretches.of(place(begin));
    std::size_t low = begin, high = begin, end = begin;
    for (; end + 1 < points.size() && stretches.of(place(end)) == stretch; ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    out.push_back(points[std::min(low, high)]);
    if (low != high) out.push_back(points[std::max(low, high)]);
    begin = end;
  }
  out.push_back(points.back());
  return out;
}

std::vector<BandPoint> band(const std::vector<std::vector<XY>>& curves, std::size_t buckets) {
  double first = -INFINITY, last = INFINITY;
  for (const auto& curve : curves) {
    if (curve.empty()) return {};
    first = std::max(first, curve.front().x);
    last = std::min(last, curve.back().x);
  }
  if (curves.empty() || !(first <= last)) return {};
  // Curves with few points are sampled at the points of the first curve.
  std::vector<BandPoint> out;
  const Stretches stretches(first, last, buckets);
  std::vector<double> places;
  for (const XY& point : curves[0]) {
    if (point.x < first || point.x > last) continue;
    if (places.empty() || curves[0].size() <= buckets || stretches.of(point.x) != stretches.of(places.back()))
      places.push_back(point.x);
  }
  std::vector<std::size_t> at(curves.size(), 0);
  for (const double x : places) {
    BandPoint point{x, 0, INFINITY, -INFINITY};
    for (std::size_t i = 0; i < curves.size(); ++i) {
      const auto& curve = curves[i];
      while (at[i] + 1 < curve.size() && curve[at[i] + 1].x <= x) ++at[i];
      const XY& before = curve[at[i]];
      double y = before.y;
      if (at[i] + 1 < curve.size() && before.x < x) {
        const XY& after = curve[at[i] + 1];
        y += (after.y - before.y) * (x - before.x) / (after.x - before.x);
      }
      point.mean += y / static_cast<double>(curves.size());
      point.low = std::min(point.low, y);
      point.high = std::max(point.high, y);
    }
    out.push_back(point);
  }
  return out;
}

void append_number(std::string& out, double value) {
  if (!std::isfinite(value))
    out += "null";
  else if (std::abs(value) < 1e15 && value == std::floor(value))
    fmt::format_to(std::back_inserter(out), "{}", static_cast<std::int64_t>(value));
  else
    fmt::format_to(std::back_inserter(out), "{:.6g}", value);
}

}  // namespace some
