// Summarizes a study of guilds over all layers in a few sentences.
#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/guilds.h"

namespace some {
namespace {

constexpr double significant = 0.05;

// "every layer", "no layer", or "layers 1, 3 (of 4)".
std::string layers_text(const std::vector<int>& layers, std::size_t all) {
  if (layers.empty()) return "no layer";
  if (layers.size() == all) return all == 1 ? fmt::format("layer {}", layers[0]) : "every layer";
  return fmt::format("layer{} {} of {}", layers.size() == 1 ? "" : "s", fmt::join(layers, ", "), all);
}

// "1.90 to 2.19 bits"
std::string range_text(const std::vector<GuildLayer>& layers, LabelTest GuildLayer::*test, double ChanceTest::*number) {
  double low = 1e300, high = -1e300;
  for (const GuildLayer& layer : layers) {
    low = std::min(low, (layer.*test).information.*number);
    high = std::max(high, (layer.*test).information.*number);
  }
  const std::string least = fmt::format("{:.2f}", low), most = fmt::format("{:.2f}", high);
  return least == most ? least : least + " to " + most;
}

std::string information_line(const GuildReport& report, const char* what, LabelTest GuildLayer::*test) {
  std::vector<int> beyond;
  double entropy = 0;
  for (const GuildLayer& layer : report.layers) {
    if ((layer.*test).information.p <= significant) beyond.push_back(layer.layer);
    entropy = std::max(entropy, (layer.*test).expert_entropy);
  }
  return fmt::format("{} gives {} of {:.2f} bits about the expert ({} by chance): beyond chance in {}", what,
                     range_text(report.layers, test, &ChanceTest::value), entropy,
                     range_text(report.layers, test, &ChanceTest::mean), layers_text(beyond, report.layers.size()));
}

struct Found {
  std::vector<int> guild, leaning;  // layers
  double p = 0;                     // the largest of these layers
};

// True if an expert, or a set of experts, prefers the class beyond chance, also in the type test; `mostly`: true if
// most of its tokens are of the class.
bool is_given(const std::optional<UnitAffinity>& unit, const std::optional<UnitAffinity>& by_type, bool& mostly,
              double& p) {
  if (!unit || !by_type || unit->affinity.p > significant || by_type->affinity.p > significant) return false;
  mostly |= by_type->affinity.share >= 0.5;
  p = std::min(p, by_type->affinity.p);
  return true;
}

std::string list_of(const std::map<std::string, Found>& found, std::vector<int> Found::*layers, std::size_t all) {
  std::string text;
  for (const auto& [name, one] : found) {
    if ((one.*layers).empty()) continue;
    text += fmt::format("{}{} in {} ({})", text.empty() ? "" : "; ", name, layers_text(one.*layers, all),
                        fmt::format("p <= {:.2g}", one.p));
  }
  return text;
}

}  // namespace

std::vector<std::string> guild_findings(const GuildReport& report) {
  std::map<std::string, Found> found;
  std::size_t tests = 0;
  for (const GuildLayer& layer : report.layers) {
    for (const ClassGuilds& one : layer.classes) {
      tests += one.expert.has_value() + one.set.has_value();
      bool mostly = false;
      double p = 1;
      const bool expert = is_given(one.expert, one.expert_by_type, mostly, p);
      const bool set = is_given(one.set, one.set_by_type, mostly, p);
      if (!expert && !set) continue;
      Found& all = found[name_of(one.word_class)];
      (mostly ? all.guild : all.leaning).push_back(layer.layer);
      all.p = std::max(all.p, p);
    }
  }
  const std::string guilds = list_of(found, &Found::guild, report.layers.size()),
                    leaning = list_of(found, &Found::leaning, report.layers.size());
  return {
      information_line(report, "the token", &GuildLayer::token),
      information_line(report, "the next token", &GuildLayer::next_token),
      "guilds (experts or sets used mostly for one word class): " + (guilds.empty() ? "none" : guilds),
      fmt::format("preference for a word class beyond chance: {} ({} tests; about {:.0f} expected by chance)",
                  leaning.empty() ? "none" : leaning, tests, std::ceil(significant * static_cast<double>(tests))),
  };
}

}  // namespace some
