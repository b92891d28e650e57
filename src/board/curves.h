// Columnar table of a run's metrics by step, and its preparation for charts: downsampling, smoothing, and bands over
// several seeds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace some {

// Rows sorted by step. Missing values are NaN.
class CurveTable {
 public:
  using Column = std::vector<float>;  // may be shorter than the table: the remaining values are missing

  std::size_t rows() const { return step_.size(); }
  double step(std::size_t row) const { return step_[row]; }
  double tokens(std::size_t row) const { return tokens_[row]; }  // training tokens seen so far; NaN if unknown
  const std::map<std::string, Column>& columns() const { return columns_; }
  const Column* find(const std::string& name) const;
  double value(const Column& column, std::size_t row) const;

  Column& column(const std::string& name) { return columns_[name]; }  // the reference is valid until `clear`
  void begin_row(double step, double tokens);
  void set(Column& column, double value);  // in the last row
  void clear();
  // Keeps only the first rows: a stopped run may resume from an earlier step.
  void cut(std::size_t rows);

 private:
  std::vector<double> step_, tokens_;
  std::map<std::string, Column> columns_;
};

struct XY {
  double x = 0, y = 0;
};
struct Range {
  std::optional<double> from, to;
  bool has(double x) const { return (!from || x >= *from) && (!to || x <= *to); }
};

// Exponential moving average with bias correction: each value has `keep` times the weight of the next, and the first
// values are not biased towards 0.
class Smoother {
 public:
  explicit Smoother(double keep) : keep_(keep) {}
  double next(double value) {
    sum_ = keep_ * sum_ + (1 - keep_) * value;
    weight_ = keep_ * weight_ + (1 - keep_);
    return sum_ / weight_;
  }
  double sum() const { return sum_; }
  double weight() const { return weight_; }

 private:
  double keep_, sum_ = 0, weight_ = 0;
};
std::vector<XY> smoothed(const std::vector<XY>& points, Smoother& smoother);

// Downsamples to at most about twice `buckets` points: keeps the minimum and the maximum of each interval of x, so that
// no peak is lost, and the first and the last point. `in_order`: intervals of equally many points instead, for points
// whose x does not increase.
std::vector<XY> downsampled(const std::vector<XY>& points, std::size_t buckets, bool in_order = false);

struct BandPoint {
  double x = 0, mean = 0, low = 0, high = 0;
};
// Returns mean and extremes of several curves over the range of x that all of them cover, sampled once per interval of
// x.
std::vector<BandPoint> band(const std::vector<std::vector<XY>>& curves, std::size_t buckets);

// Appends a number as JSON with few digits; "null" if it is not finite.
void append_number(std::string& out, double value);

}  // namespace some
