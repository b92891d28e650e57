#include "lab/claim_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace some {
namespace {

using Groups = std::vector<const RunGroup*>;
using Asked = ClaimPart::Measure;

const RunGroup* find(const Groups& groups, const std::string& recipe) {
  const auto found =
      std::find_if(groups.begin(), groups.end(), [&](const RunGroup* group) { return group->recipe == recipe; });
  return found == groups.end() ? nullptr : *found;
}

std::optional<double> gini_at(const RunHistory& run, const EvalPoint* point) {
  if (point == nullptr || run.middle >= point->layers.size()) return std::nullopt;
  return point->layers[run.middle].gini;
}

std::optional<double> final_gini(const RunHistory& run) { return gini_at(run, run.last()); }

std::optional<double> seconds_a_step(const RunHistory& run) { return run.measured_once("step_seconds"); }

// Returns the measure of a run at its end.
Measure measure_of(Asked kind) {
  switch (kind) {
    case Asked::bits: return final_bits;
    case Asked::gini: return final_gini;
    case Asked::time: return seconds_a_step;
    default: return final_loss;
  }
}

// Returns the value of the group's run with this seed, or the group's mean if it has none.
std::optional<double> of_seed(const RunGroup& group, int seed, const Measure& measure) {
  for (const RunHistory& run : group.runs) {
    if (run.found.identity.seed == seed) {
      if (const auto value = measure(run)) return value;
    }
  }
  const Spread spread = spread_of(group, measure);
  return spread.count == 0 ? std::nullopt : std::optional(spread.mean);
}

// Returns the difference between the run's value and the published one at the last published epoch.
std::optional<double> above_published(const RunGroup& group, const RunHistory& run) {
  const Published* published = group.published();
  if (published == nullptr || published->epochs.empty() || !group.comparable()) return std::nullopt;
  const PublishedEpoch& last = published->epochs.back();
  const auto told = last.values.find("val");
  const auto here = run.measured("val", last.epoch);
  if (told == last.values.end() || !here) return std::nullopt;
  return *here - told->second;
}

// Returns the change between the first and the last evaluation.
std::optional<double> change(const RunHistory& run, Asked kind) {
  if (run.evaluations.size() < 2) return std::nullopt;
  const EvalPoint &first = run.evaluations.front(), &last = run.evaluations.back();
  if (kind == Asked::loss) return last.loss - first.loss;
  if (kind == Asked::bits) return last.bits_per_byte - first.bits_per_byte;
  const auto before = gini_at(run, &first), after = gini_at(run, &last);
  return before && after ? std::optional(*after - *before) : std::nullopt;
}

std::optional<double> value_of(const ClaimPart& part, const Groups& groups, const RunGroup& group,
                               const RunHistory& run) {
  if (part.measure == Asked::published) return above_published(group, run);
  if (part.against.empty()) return change(run, part.measure);
  const RunGroup* against = find(groups, part.against);
  if (against == nullptr) return std::nullopt;
  const int seed = run.found.identity.seed;
  const Measure measure = measure_of(part.measure);
  const auto here = measure(run), there = of_seed(*against, seed, measure);
  if (!here || !there) return std::nullopt;
  switch (part.measure) {
    case Asked::time:
      // Times on different devices are not comparable.
      if (run.timing.device != against->first().timing.device || *there <= 0) return std::nullopt;
      return *here / *there;
    case Asked::gain: {
      const RunGroup *rival = find(groups, part.than.at(0)), *base = find(groups, part.than.at(1));
      if (rival == nullptr || base == nullptr) return std::nullopt;
      const auto reached = of_seed(*rival, seed, measure), from = of_seed(*base, seed, measure);
      if (!reached || !from || *from <= *reached) return std::nullopt;  // no reference gain
      return (*there - *here) / (*from - *reached);
    }
    default: return *here - *there;
  }
}

bool is_ratio(const ClaimPart& part) { return part.measure == Asked::time || part.measure == Asked::gain; }

std::string number(const ClaimPart& part, double value) {
  if (is_ratio(part)) return fmt::format("{:.2f}", value);
  return fmt::format("{:+.{}f}", value, part.measure == Asked::gini ? 3 : 4);
}

// Formats a bound as given, without extra digits.
std::string bound(const ClaimPart& part, double value) {
  return is_ratio(part) || value == 0 ? fmt::format("{:g}", value) : fmt::format("{:+g}", value);
}

}  // namespace

Verdict PartResult::verdict() const {
  if (values.empty()) return Verdict::unknown;
  return met == values.size() ? Verdict::holds : met == 0 ? Verdict::fails : Verdict::open;
}

PartResult evaluate_part(const ClaimPart& part, const Groups& groups) {
  PartResult result;
  const RunGroup* group = find(groups, part.run);
  if (group == nullptr) return result;
  for (const RunHistory& run : group->runs) {
    const auto value = value_of(part, groups, *group, run);
    if (!value || !std::isfinite(*value)) continue;
    result.values.push_back(*value);
    if ((!part.below || *value < *part.below) && (!part.above || *value > *part.above)) ++result.met;
  }
  result.fewest = static_cast<int>(result.values.size());
  std::vector<std::string> others = part.than;
  if (!part.against.empty()) others.push_back(part.against);
  for (const std::string& name : others) {
    const RunGroup* other = find(groups, name);
    if (other != nullptr) result.fewest = std::min(result.fewest, spread_of(*other, measure_of(part.measure)).count);
  }
  return result;
}

std::string describe_measure(const ClaimPart& part) {
  const char* what = "";
  switch (part.measure) {
    case Asked::loss: what = "loss"; break;
    case Asked::bits: what = "bits per byte"; break;
    case Asked::gini: what = "Gini"; break;
    case Asked::time: what = "step time"; break;
    case Asked::gain:
      return fmt::format("gain of {} over {}, as a multiple of that of {} over {}", part.run, part.against,
                         part.than.at(0), part.than.at(1));
    case Asked::published: return fmt::format("validation loss of {} against the published one", part.run);
  }
  if (part.against.empty()) return fmt::format("{} of {}, last evaluation against first", what, part.run);
  return fmt::format("{} of {} against {}", what, part.run, part.against);
}

std::string describe_bounds(const ClaimPart& part) {
  const std::string times = is_ratio(part) ? " times" : "";
  if (part.below && part.above)
    return fmt::format("{} to {}{}", bound(part, *part.above), bound(part, *part.below), times);
  return (part.below ? "below " + bound(part, *part.below) : "above " + bound(part, *part.above)) + times;
}

std::string format_values(const ClaimPart& part, const PartResult& result) {
  if (result.values.empty()) return "–";
  const double count = static_cast<double>(result.values.size());
  const double mean = std::accumulate(result.values.begin(), result.values.end(), 0.0) / count;
  const std::string times = is_ratio(part) ? " times" : "";
  if (result.once()) return number(part, mean) + times;
  const auto [least, most] = std::minmax_element(result.values.begin(), result.values.end());
  return fmt::format("{}{} ({} to {})", number(part, mean), times, number(part, *least), number(part, *most));
}

std::string describe_verdict(const PartResult& result) {
  const auto seeds = [](std::size_t count) { return fmt::format("{} seed{}", count, count == 1 ? "" : "s"); };
  switch (result.verdict()) {
    case Verdict::unknown: return "not measured";
    case Verdict::holds: return fmt::format("as claimed, {}", seeds(result.values.size()));
    case Verdict::fails: return fmt::format("not as claimed, {}", seeds(result.values.size()));
    case Verdict::open: return fmt::format("in {} of {}", result.met, seeds(result.values.size()));
  }
  return "";
}

}  // namespace some
