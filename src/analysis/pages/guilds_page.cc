// The guilds page: how much the assignments reveal about tokens and word classes, and which experts prefer which.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/guilds.h"
#include "analysis/pages/key_charts.h"
#include "analysis/pages/run_header.h"

namespace some {
namespace {

using nlohmann::json;

constexpr double max_doublings = 3;  // range of the color scale, in doublings of a share over its base

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string probability(double p) { return fmt::format("{:.2g}", p); }

// Returns a token for display; spaces and line ends are made visible.
std::string visible(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += c == ' ' ? "·" : c == '\n' ? "↵" : std::string(1, c);
  return out;
}

struct NamedTest {
  const char* name;
  LabelTest GuildLayer::*test;
};
constexpr NamedTest tests[] = {{"token", &GuildLayer::token},
                               {"next token", &GuildLayer::next_token},
                               {"word class", &GuildLayer::word_class},
                               {"word class, by type", &GuildLayer::word_class_by_type}};

Table information_table(const GuildReport& report) {
  Table table{"information",
              "Mutual information with the expert, in bits, and purity: the share of assignments to an expert's most "
              "frequent token or class",
              {{"layer", "", false},
               {"of", "", false},
               {"bits", "information", true},
               {"by chance", "information", true},
               {"z", "information", true},
               {"p", "information", true},
               {"share", "purity", true},
               {"by chance", "purity", true}},
              {}};
  for (const GuildLayer& layer : report.layers) {
    for (const NamedTest& one : tests) {
      const LabelTest& test = layer.*one.test;
      const ChanceTest& info = test.information;
      table.rows.push_back({fmt::format("{}{}", layer.layer, layer.middle ? " (middle)" : ""), one.name,
                            fmt::format("{:.3f}", info.value),
                            fmt::format("{:.3f} ± {:.4f}", info.mean, info.deviation), fmt::format("{:.1f}", info.z),
                            probability(info.p), percent(test.purity.value), percent(test.purity.mean)});
    }
  }
  return table;
}

Chart information_chart(const GuildReport& report) {
  json categories = json::array(), series = json::array();
  for (const GuildLayer& layer : report.layers) categories.push_back(fmt::format("layer {}", layer.layer));
  for (const NamedTest& one : tests) {
    json points = json::array();
    for (std::size_t i = 0; i < report.layers.size(); ++i) {
      const ChanceTest& info = (report.layers[i].*one.test).information;
      points.push_back({i, chart_number(info.value - info.mean)});
    }
    series.push_back({{"name", one.name}, {"points", points}});
  }
  return {"beyond-chance",
          "Mutual information with the expert, beyond chance",
          "Information about the expert from the token, the next token or the word class, minus that of shuffled "
          "labels. 0 = no more than chance.",
          {{"kind", "dots"},
           {"x", {{"name", "bits beyond chance"}}},
           {"legend", true},
           {"categories", categories},
           {"series", series}}};
}

Chart class_chart(const GuildReport& report, const GuildLayer& layer) {
  json experts = json::array(), classes = json::array(), cells = json::array(), tips = json::array();
  for (const GuildUnit& unit : layer.experts) experts.push_back(fmt::format("expert {}", unit.experts.at(0)));
  for (std::size_t c = 0; c < report.class_shares.size(); ++c) {
    const double base = report.class_shares[c];
    if (base == 0) continue;
    const std::string name = name_of(static_cast<WordClass>(c));
    for (std::size_t i = 0; i < layer.experts.size(); ++i) {
      const double share = layer.experts[i].class_shares[c];
      const double doublings = share > 0 ? std::log2(share / base) : -max_doublings;
      cells.push_back({i, classes.size(), chart_number(std::clamp(doublings, -max_doublings, max_doublings))});
      tips.push_back(fmt::format("expert {}, {}\n{} of its firings, {} of all tokens\n{:.2f} times as often",
                                 layer.experts[i].experts.at(0), name, percent(share), percent(base), share / base));
    }
    classes.push_back(name);
  }
  return {
      fmt::format("classes-{}", layer.layer),
      fmt::format("Most used experts of layer {} and word classes", layer.layer),
      "Blue: the expert is active for the class more often than the class occurs; orange: less often; the strongest "
      "color is eight times or more.",
      {{"kind", "heat"},
       {"x", {{"name", "expert, highest load first"}, {"categories", experts}, {"turned", true}}},
       {"y", {{"categories", classes}}},
       {"cells", cells},
       {"tips", tips},
       {"scale", {{"kind", "both"}, {"most", max_doublings}}}}};
}

Text tokens_text(const GuildUnit& unit) {
  Text text;
  for (const TokenShare& token : unit.tokens) {
    if (!text.spans.empty()) text.add(", ");
    text.code(visible(token.text)).add(fmt::format(" {:.0f} % ({:.1f}×)", 100 * token.share, token.lift()));
  }
  return text;
}

Table unit_table(const std::string& id, const std::string& caption, const std::vector<GuildUnit>& units) {
  Table table{id,
              caption,
              {{"experts", "", false},
               {"assignments", "", true},
               {"of all positions", "", true},
               {"class", "most frequent class", false},
               {"share", "most frequent class", true},
               {"of all", "most frequent class", true},
               {"most frequent tokens: share of its firings (times their base rate)", "", false}},
              {}};
  for (const GuildUnit& unit : units) {
    table.rows.push_back({fmt::format("{}", fmt::join(unit.experts, " ")), fmt::to_string(unit.count),
                          percent(unit.share_of_positions), name_of(unit.top_class), percent(unit.top_class_share),
                          percent(unit.top_class_base), tokens_text(unit)});
  }
  return table;
}

Table class_table(const GuildLayer& layer) {
  Table table{fmt::format("given-{}", layer.layer),
              "Highest affinity to each word class",
              {{"class", "", false},
               {"of all tokens", "", true},
               {"expert", "by position", false},
               {"share", "by position", true},
               {"p", "by position", true},
               {"expert", "by type", false},
               {"p", "by type", true},
               {"set", "sets by position", false},
               {"share", "sets by position", true},
               {"p", "sets by position", true},
               {"set", "sets by type", false},
               {"p", "sets by type", true}},
              {}};
  for (const ClassGuilds& one : layer.classes) {
    std::vector<Text> row{name_of(one.word_class), percent(one.base)};
    const auto unit = [&](const std::optional<UnitAffinity>& given, bool share) {
      row.push_back(given ? fmt::format("{}", fmt::join(given->experts, " ")) : "–");
      if (share) row.push_back(given ? percent(given->affinity.share) : "–");
      row.push_back(given ? probability(given->affinity.p) : "–");
    };
    unit(one.expert, true);
    unit(one.expert_by_type, false);
    unit(one.set, true);
    unit(one.set_by_type, false);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string guilds_page(const GuildReport& report, const OpenedRun& run) {
  Header header = run_header("Guilds", run);
  header.facts.emplace_back(
      "text", fmt::format("{} positions of {} documents, {}", report.positions, report.documents, report.data));
  Document document(std::move(header));
  document.paragraph(
      fmt::format("Do experts specialize in tokens or word classes beyond chance? Chance: the same assignments with "
                  "labels shuffled {} times (seed {}).",
                  report.shuffles, report.seed));
  document.heading(2, "glance", "At a glance");
  std::vector<Text> summaries;
  for (const GuildLayer& layer : report.layers)
    summaries.push_back(Text().strong(fmt::format("Layer {}. ", layer.layer)).add(layer.summary));
  document.list(std::move(summaries));
  document.chart(information_chart(report));
  document.table(information_table(report));
  document.paragraph(
      "p is the share of shuffles with an equal or better result, at least 1/(shuffles + 1); the best expert or set is "
      "compared with the best of each shuffle. By type, each token has its most frequent class everywhere, and classes "
      "are exchanged among tokens of similar frequency, so that only an expert that collects tokens of one class "
      "exceeds chance. Word classes come from a built-in list of story words.");
  for (const GuildLayer& layer : report.layers) {
    document.heading(2, fmt::format("layer-{}", layer.layer),
                     fmt::format("Layer {}{}", layer.layer, layer.middle ? " (middle)" : ""));
    document.chart(class_chart(report, layer));
    document.table(unit_table(fmt::format("experts-{}", layer.layer), "Most used experts", layer.experts));
    document.table(unit_table(
        fmt::format("sets-{}", layer.layer),
        fmt::format("The most frequent of {1} different sets of {0} experts", report.top_k, layer.distinct_sets),
        layer.sets));
    document.table(class_table(layer));
  }
  return write_html(document);
}

}  // namespace some
