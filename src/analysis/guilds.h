// Guilds (a SoME term): which experts, and which sets of experts active together, fire for which tokens, and whether
// this exceeds chance.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/label_test.h"
#include "analysis/word_classes.h"
#include "runs/run.h"

namespace some {

struct GuildOptions {
  std::optional<int> layer;  // only this layer; none: all
  std::string data;          // empty: the run's validation documents
  std::int64_t max_documents = 200;
  int shuffles = 100;
  std::uint64_t seed = 0;
  std::int64_t min_count = 50;
  int shown = 8;  // number of experts and sets in the report
};

struct TokenShare {
  std::int32_t id = 0;
  std::string text;
  std::int64_t count = 0;
  double share = 0, base = 0;  // share of a unit's firings; share of all positions
  double lift() const { return base > 0 ? share / base : 0; }
};

// An expert, or a set of experts active together, and the tokens it fires for.
struct GuildUnit {
  std::vector<int> experts;
  std::int64_t count = 0;
  double share_of_positions = 0;
  std::int64_t distinct_tokens = 0;
  std::vector<double> class_shares;  // indexed by WordClass
  WordClass top_class = WordClass::other;
  double top_class_share = 0, top_class_base = 0;
  std::vector<TokenShare> tokens;  // the most frequent tokens; the most frequent one is always listed
};

// The unit with the highest affinity to a word class. In a type test each token counts as its most frequent class, and
// the shuffles redistribute the classes among tokens.
struct UnitAffinity {
  std::vector<int> experts;
  Affinity affinity;
};
struct ClassGuilds {
  WordClass word_class = WordClass::other;
  double base = 0;  // share of all positions
  std::optional<UnitAffinity> expert, expert_by_type, set, set_by_type;
};

struct GuildLayer {
  int layer = 0;
  bool middle = false;
  LabelTest token, next_token, word_class, word_class_by_type;
  std::vector<ClassGuilds> classes;
  std::vector<GuildUnit> experts, sets;  // the busiest experts; the most frequent sets
  std::int64_t distinct_sets = 0;
  bool noun_expert = false, noun_set = false;  // true if an expert (a set) is a noun guild
  std::string summary;
};

struct GuildReport {
  std::string run;
  std::int64_t step = 0;
  std::string data;
  std::int64_t documents = 0, positions = 0;
  int experts = 0, top_k = 0, shuffles = 0;
  std::uint64_t seed = 0;
  std::int64_t min_count = 0;
  std::vector<double> class_shares;  // shares of all positions, indexed by WordClass
  std::vector<GuildLayer> layers;
};

GuildReport analyze_guilds(OpenedRun& run, const GuildOptions& options);
nlohmann::json to_json(const GuildReport& report);
// Returns a summary over all layers: one sentence each on tokens, next tokens, guilds, and preferences.
std::vector<std::string> guild_findings(const GuildReport& report);
// Returns the report as an HTML page.
std::string guilds_page(const GuildReport& report, const OpenedRun& run);

// Formats a set of experts: "{3 17}".
std::string set_text(const std::vector<int>& experts);

}  // namespace some
