#include "core/setting.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace some {
namespace {

// Formats a bound as a reader would write it: integers without a decimal point.
std::string bound(double value) { return fmt::format("{}", value); }

std::string range_words(const SettingInfo& setting) {
  const bool has_low = std::isfinite(setting.low), has_high = std::isfinite(setting.high);
  if (has_low && has_high && !setting.above_low && !setting.below_high)
    return fmt::format(" from {} to {}", bound(setting.low), bound(setting.high));
  std::string words;
  if (has_low) words = (setting.above_low ? " > " : " >= ") + bound(setting.low);
  if (has_high) {
    words += words.empty() ? "" : " and";
    words += (setting.below_high ? " < " : " <= ") + bound(setting.high);
  }
  return words;
}

}  // namespace

void Anneal::check(const std::string& name) const {
  if (shape == AnnealShape::none && (start != 1 || end != 1)) {
    bad_input(Code::setting_conflict,
              "{} has start = {} and end = {}, but no shape, so they have no effect; set shape = \"linear\", "
              "\"cosine\" or \"exponential\"",
              name, start, end);
  }
}

double Anneal::at(double progress) const {
  const double p = std::clamp(progress, 0.0, 1.0);
  switch (shape) {
    case AnnealShape::none: return 1.0;
    case AnnealShape::linear: return start + (end - start) * p;
    case AnnealShape::cosine: return end + (start - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * p));
    case AnnealShape::exponential:
      if (start <= 0.0 || end <= 0.0) {
        bad_input(Code::setting_conflict,
                  "an exponential schedule requires start and end above 0 (got {} and {}); use \"linear\" or "
                  "\"cosine\" to reach 0",
                  start, end);
      }
      return start * std::pow(end / start, p);
  }
  return 1.0;
}

const std::vector<std::string>& anneal_shapes() {
  static const std::vector<std::string> shapes = {"none", "linear", "cosine", "exponential"};
  return shapes;
}

bool SettingInfo::contains(double value) const {
  const bool high_enough = above_low ? value > low : value >= low;
  const bool low_enough = below_high ? value < high : value <= high;
  return std::isfinite(value) && high_enough && low_enough;
}

std::string SettingInfo::expected() const {
  switch (kind) {
    case SettingKind::boolean: return "true or false";
    case SettingKind::integer: return "an integer" + range_words(*this);
    case SettingKind::number: return "a number" + range_words(*this);
    case SettingKind::text: return "a string";
    case SettingKind::choice: {
      std::string words;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        words += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + ("\"" + choices[i] + "\"");
      }
      return words;
    }
    case SettingKind::numbers: {
      std::string words = lengths == std::vector<int>{2}      ? "a list of two numbers"
                          : lengths == std::vector<int>{0, 2} ? "a list of two numbers or []"
                          : lengths.empty()
                              ? "a list of numbers"
                              : fmt::format("a list of {} to {} numbers", lengths.front(), lengths.back());
      return range_words(*this).empty() ? words : words + ", each" + range_words(*this);
    }
    case SettingKind::integers: return "a list of integers, each" + range_words(*this);
    case SettingKind::layer_scale: return "a number or a list of numbers, each" + range_words(*this);
    case SettingKind::anneal:
      return "a table such as {shape = \"linear\", start = 1.0, end = 0.0}, shape \"none\", \"linear\", \"cosine\" or "
             "\"exponential\"";
  }
  return "";
}

}  // namespace some
