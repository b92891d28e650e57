#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace some {

void Histogram::add(double value) {
  const auto place = std::lower_bound(borders_.begin(), borders_.end(), value) - borders_.begin();
  counts_[static_cast<std::size_t>(place)] += 1;
  sum_ += value;
}

void Histogram::write(std::string& out, const std::string& name, const std::string& labels) const {
  std::uint64_t all = 0;
  const std::string more = labels.empty() ? "" : labels + ",";
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    all += counts_[i];
    const std::string border = i < borders_.size() ? fmt::format("{}", borders_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", name, more, border, all);
  }
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  out += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, braces, sum_, all);
}

std::vector<double> latency_borders() {
  return {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};
}

std::string label(const std::string& name, const std::string& value) {
  std::string out = name + "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

void describe_metric(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

void RequestCounts::add(const std::string& endpoint, int status) {
  const std::lock_guard lock(mutex_);
  counts_[{endpoint, status}] += 1;
}

std::uint64_t RequestCounts::total() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t all = 0;
  for (const auto& [key, count] : counts_) all += count;
  return all;
}

void RequestCounts::write(std::string& out) const {
  const std::lock_guard lock(mutex_);
  describe_metric(out, "some_http_requests_total", "counter", "requests by endpoint and status");
  for (const auto& [key, count] : counts_)
    out += fmt::format("some_http_requests_total{{{},{}}} {}\n", label("endpoint", key.first),
                       label("status", std::to_string(key.second)), count);
}

}  // namespace some
