// The numbers of a run over its steps, kept by columns, and what is drawn of them: few points of many, smoothed curves,
// several seeds as a band.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace some {

// Rows in the order of their steps. A number that a row does not have is NaN.
class CurveTable {
 public:
  using Column = std::vector<float>;  // may end before the table does: nothing is known of the rest

  std::size_t rows() const { return step_.size(); }
  double step(std::size_t row) const { return step_[row]; }
  double tokens(std::size_t row) const { return tokens_[row]; }  // of text seen by then; NaN where that is not known
  const std::map<std::string, Column>& columns() const { return columns_; }
  const Column* find(const std::string& name) const;
  double value(const Column& column, std::size_t row) const;

  Column& column(const std::string& name) { return columns_[name]; }  // stays where it is until `clear`
  void begin_row(double step, double tokens);
  void set(Column& column, double value);  // in the row begun last
  void clear();
  // Only the first rows stay: a run that was stopped goes on from an earlier step.
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

// A running mean that forgets: each value counts `keep` times as much as the next, and the first ones are not pulled
// towards 0.
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

// At most twice `buckets` of the points: of each stretch of x the lowest and the highest, so that no peak is lost; the
// first and the last are kept.
std::vector<XY> thinned(const std::vector<XY>& points, std::size_t buckets);

struct BandPoint {
  double x = 0, mean = 0, low = 0, high = 0;
};
// Of several curves: where all of them are known, their mean and extremes, in stretches of x.
std::vector<BandPoint> band(const std::vector<std::vector<XY>>& curves, std::size_t buckets);

// A number in few digits, as JSON; "null" where it is not finite.
void append_number(std::string& out, double value);

}  // namespace some
