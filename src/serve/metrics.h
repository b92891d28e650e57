// Metrics of the server in the Prometheus text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace some {

class Histogram {
 public:
  explicit Histogram(std::vector<double> borders) : borders_(std::move(borders)), counts_(borders_.size() + 1) {}
  void add(double value);
  // Appends the lines of one histogram; labels: "" or "model=\"x\"".
  void write(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> borders_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

// Bucket limits from 5 ms to 10 minutes, in seconds.
std::vector<double> latency_borders();

// Quotes a label's value: escapes backslashes, quotes and line ends.
std::string label(const std::string& name, const std::string& value);
// Appends the two comment lines of a metric.
void describe_metric(std::string& out, const char* name, const char* type, const char* help);

// Counts requests by endpoint and status. Endpoints are a fixed list, so that clients cannot add labels.
class RequestCounts {
 public:
  void add(const std::string& endpoint, int status);
  void write(std::string& out) const;
  std::uint64_t total() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> counts_;
};

}  // namespace some
