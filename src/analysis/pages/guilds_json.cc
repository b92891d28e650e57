// The guild report as JSON, for files and --json.
#include "analysis/guilds.h"

namespace some {
namespace {

nlohmann::json chance_json(const ChanceTest& a, const char* name) {
  return {{name, a.value}, {"shuffled_mean", a.mean}, {"shuffled_deviation", a.deviation}, {"z", a.z}, {"p", a.p}};
}

nlohmann::json test_json(const LabelTest& test) {
  nlohmann::json information = chance_json(test.information, "bits");
  const double excess = test.information.value - test.information.mean;
  information["excess_bits"] = excess;
  information["share_of_expert_entropy"] = test.expert_entropy > 0 ? excess / test.expert_entropy : 0.0;
  return {{"information", information}, {"purity", chance_json(test.purity, "share")}};
}

nlohmann::json affinity_json(const Affinity& a) {
  return {{"count", a.count},   {"share", a.share}, {"base", a.base}, {"lift", a.lift()},
          {"recall", a.recall}, {"z", a.z},         {"p", a.p}};
}

nlohmann::json unit_json(const GuildUnit& unit) {
  nlohmann::json tokens = nlohmann::json::array(), classes;
  for (const TokenShare& token : unit.tokens) {
    tokens.push_back({{"id", token.id},
                      {"text", token.text},
                      {"count", token.count},
                      {"share", token.share},
                      {"base", token.base},
                      {"lift", token.lift()}});
  }
  for (std::size_t c = 0; c < unit.class_shares.size(); ++c)
    classes[name_of(static_cast<WordClass>(c))] = unit.class_shares[c];
  return {{"count", unit.count},
          {"share_of_positions", unit.share_of_positions},
          {"distinct_tokens", unit.distinct_tokens},
          {"purity", unit.tokens.at(0).share},
          {"purity_base", unit.tokens.at(0).base},
          {"top_class", name_of(unit.top_class)},
          {"top_class_share", unit.top_class_share},
          {"top_class_base", unit.top_class_base},
          {"class_shares", classes},
          {"tokens", tokens}};
}

nlohmann::json class_json(const ClassGuilds& one) {
  nlohmann::json out{{"class", name_of(one.word_class)}, {"base", one.base}};
  const auto expert = [&](const char* name, const std::optional<UnitAffinity>& unit) {
    if (!unit) return;
    out[name] = affinity_json(unit->affinity);
    out[name]["expert"] = unit->experts.at(0);
  };
  const auto set = [&](const char* name, const std::optional<UnitAffinity>& unit) {
    if (!unit) return;
    out[name] = affinity_json(unit->affinity);
    out[name]["experts"] = unit->experts;
  };
  expert("expert", one.expert);
  expert("expert_by_type", one.expert_by_type);
  set("set", one.set);
  set("set_by_type", one.set_by_type);
  return out;
}

nlohmann::json layer_json(const GuildLayer& layer) {
  nlohmann::json out{{"layer", layer.layer},
                     {"middle", layer.middle},
                     {"expert_entropy_bits", layer.token.expert_entropy},
                     {"token", test_json(layer.token)},
                     {"next_token", test_json(layer.next_token)},
                     {"word_class", test_json(layer.word_class)},
                     {"word_class_by_type", test_json(layer.word_class_by_type)},
                     {"experts", nlohmann::json::array()},
                     {"sets", nlohmann::json::array()},
                     {"distinct_sets", layer.distinct_sets},
                     {"noun_guild", {{"expert", layer.noun_expert}, {"set", layer.noun_set}}},
                     {"summary", layer.summary}};
  out["word_class"]["classes"] = nlohmann::json::array();
  for (const ClassGuilds& one : layer.classes) out["word_class"]["classes"].push_back(class_json(one));
  for (const GuildUnit& unit : layer.experts) {
    out["experts"].push_back(unit_json(unit));
    out["experts"].back()["expert"] = unit.experts.at(0);
  }
  for (const GuildUnit& unit : layer.sets) {
    out["sets"].push_back(unit_json(unit));
    out["sets"].back()["experts"] = unit.experts;
  }
  return out;
}

}  // namespace

nlohmann::json to_json(const GuildReport& report) {
  nlohmann::json out{{"run", report.run},
                     {"step", report.step},
                     {"data", report.data},
                     {"documents", report.documents},
                     {"positions", report.positions},
                     {"experts", report.experts},
                     {"top_k", report.top_k},
                     {"shuffles", report.shuffles},
                     {"seed", report.seed},
                     {"min_count", report.min_count},
                     {"findings", guild_findings(report)},
                     {"layers", nlohmann::json::array()}};
  for (std::size_t c = 0; c < report.class_shares.size(); ++c)
    out["class_shares"][name_of(static_cast<WordClass>(c))] = report.class_shares[c];
  for (const GuildLayer& layer : report.layers) out["layers"].push_back(layer_json(layer));
  return out;
}

}  // namespace some
