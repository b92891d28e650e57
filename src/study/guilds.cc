#include "study/guilds.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "study/choices.h"
#include "study/word_classes.h"

namespace some::study {
namespace {

nlohmann::json to_json(const AgainstChance& a, const char* name) {
  return {{name, a.value}, {"shuffled_mean", a.mean}, {"shuffled_deviation", a.deviation}, {"z", a.z}, {"p", a.p}};
}

nlohmann::json information_json(const LabelTest& test) {
  nlohmann::json out = to_json(test.information, "bits");
  out["excess_bits"] = test.information.value - test.information.mean;
  out["share_of_expert_entropy"] =
      test.expert_entropy > 0 ? (test.information.value - test.information.mean) / test.expert_entropy : 0.0;
  return out;
}

nlohmann::json affinity_json(const Affinity& a) {
  return {{"count", a.count},   {"share", a.share}, {"base", a.base}, {"lift", a.lift()},
          {"recall", a.recall}, {"z", a.z},         {"p", a.p}};
}

std::string chance_words(double p, int shuffles) {
  return p <= 1.0 / (1.0 + shuffles) + 1e-12 ? fmt::format("p <= {:.2g}", p) : fmt::format("p = {:.2g}", p);
}

// The tokens and classes behind one expert or set.
struct Firing {
  std::map<std::int32_t, std::int64_t> tokens;
  std::vector<std::int64_t> classes = std::vector<std::int64_t>(word_classes, 0);
  std::int64_t count = 0;
  void add(std::int32_t token, WordClass word_class) {
    tokens[token] += 1;
    classes[static_cast<std::size_t>(word_class)] += 1;
    count += 1;
  }
};

struct Study {
  OpenedRun& run;
  const GuildOptions& options;
  Choices choices;
  std::vector<WordClass> classes;        // of each position's token
  std::vector<std::int32_t> type_class;  // of each position: the class its token has most often
  std::vector<std::int64_t> token_count, class_count;

  nlohmann::json describe(const Firing& firing) const {
    std::vector<std::pair<std::int32_t, std::int64_t>> order(firing.tokens.begin(), firing.tokens.end());
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    const double positions = static_cast<double>(choices.positions()), count = static_cast<double>(firing.count);
    nlohmann::json tokens = nlohmann::json::array();
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 8); ++i) {
      const double share = static_cast<double>(order[i].second) / count,
                   base = static_cast<double>(token_count[static_cast<std::size_t>(order[i].first)]) / positions;
      tokens.push_back({{"id", order[i].first},
                        {"text", std::string(run.tokenizer.token_bytes(order[i].first))},
                        {"count", order[i].second},
                        {"share", share},
                        {"base", base},
                        {"lift", share / base}});
    }
    const auto top = static_cast<std::size_t>(std::max_element(firing.classes.begin(), firing.classes.end()) -
                                              firing.classes.begin());
    const double share = static_cast<double>(firing.classes[top]) / count,
                 base = static_cast<double>(class_count[top]) / positions;
    return {{"count", firing.count},
            {"share_of_positions", count / positions},
            {"distinct_tokens", order.size()},
            {"purity", tokens[0]["share"]},
            {"purity_base", tokens[0]["base"]},
            {"top_class", name_of(static_cast<WordClass>(top))},
            {"top_class_share", share},
            {"top_class_base", base},
            {"tokens", tokens}};
  }

  nlohmann::json layer_report(int layer);
};

LabelledChoices labelled(const Choices& choices, const LayerFirings& firings, int experts,
                         const std::vector<std::int32_t>& label, int labels) {
  return {experts, choices.top_k, labels, firings.experts, label, {}};
}

// A guild brings words of a class together: mostly nouns, and more than an expert would meet if the classes were dealt
// out among tokens at random.
bool is_guild(const Affinity& by_position, const Affinity& by_type) {
  return by_position.unit >= 0 && by_position.p <= 0.05 && by_type.p <= 0.05 && by_type.share >= 0.5;
}

std::string noun_verdict(const Affinity& by_position, const Affinity& by_type, const std::string& name, int shuffles) {
  if (by_position.unit < 0) return "no expert fires often enough to be judged";
  const auto numbers = [&](const Affinity& a) {
    return fmt::format("{:.0f} % nouns against {:.0f} % of all tokens ({:.1f} times)", 100 * a.share, 100 * a.base,
                       a.lift());
  };
  if (by_position.p > 0.05)
    return fmt::format("no {} fires for more nouns than chance allows (at most {}, {})", name, numbers(by_position),
                       chance_words(by_position.p, shuffles));
  if (by_type.p > 0.05) {
    return fmt::format(
        "no guild. The {} most given to nouns has {}, but so large a share comes about as well when word classes are "
        "dealt out among tokens at random ({}): it stands for some tokens, not for nouns",
        name, numbers(by_type), chance_words(by_type.p, shuffles));
  }
  if (by_type.share < 0.5)
    return fmt::format("the {} most given to nouns leans to them beyond chance, but mostly fires for others: {}, {}",
                       name, numbers(by_type), chance_words(by_type.p, shuffles));
  return fmt::format(
      "there is a noun {}: {}, {} also against word classes dealt out at random; it fires at {:.0f} % of all nouns",
      name, numbers(by_type), chance_words(by_type.p, shuffles), 100 * by_type.recall);
}

nlohmann::json Study::layer_report(int layer) {
  const LayerFirings& firings = choices.layers[static_cast<std::size_t>(layer)];
  const int experts = run.recipe.model.experts, k = choices.top_k, vocab = static_cast<int>(run.tokenizer.vocab_size());
  LabelTestOptions how{options.shuffles, options.seed, options.least_count, false};
  const LabelTest by_token =
      test_labels(*run.ctx->threads, labelled(choices, firings, experts, choices.tokens, vocab), how);
  const LabelTest by_next =
      test_labels(*run.ctx->threads, labelled(choices, firings, experts, choices.next, vocab), how);
  how.affinities = true;
  std::vector<std::int32_t> class_labels;
  for (const WordClass one : classes) class_labels.push_back(static_cast<std::int32_t>(one));
  const LabelTest by_class =
      test_labels(*run.ctx->threads, labelled(choices, firings, experts, class_labels, word_classes), how);

  LabelledChoices typed = labelled(choices, firings, experts, type_class, word_classes);
  typed.type = choices.tokens;
  how.shuffle_types = true;
  const LabelTest by_type = test_labels(*run.ctx->threads, typed, how);

  nlohmann::json out{{"layer", layer},
                     {"middle", layer == run.recipe.model.layers / 2},
                     {"expert_entropy_bits", by_token.expert_entropy}};
  out["token"] = {{"information", information_json(by_token)}, {"purity", to_json(by_token.purity, "share")}};
  out["next_token"] = {{"information", information_json(by_next)}, {"purity", to_json(by_next.purity, "share")}};
  nlohmann::json class_list = nlohmann::json::array();
  for (int c = 0; c < word_classes; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (class_count[i] == 0) continue;
    nlohmann::json one{{"class", name_of(static_cast<WordClass>(c))},
                       {"base", static_cast<double>(class_count[i]) / static_cast<double>(choices.positions())}};
    if (const Affinity& a = by_class.expert_affinity[i]; a.unit >= 0) {
      one["expert"] = affinity_json(a);
      one["expert"]["expert"] = a.unit;
      one["expert_by_type"] = affinity_json(by_type.expert_affinity[i]);
      one["expert_by_type"]["expert"] = by_type.expert_affinity[i].unit;
    }
    if (const Affinity& a = by_class.set_affinity[i]; a.unit >= 0) {
      one["set"] = affinity_json(a);
      one["set"]["experts"] = by_class.sets[static_cast<std::size_t>(a.unit)];
      if (const Affinity& b = by_type.set_affinity[i]; b.unit >= 0) {
        one["set_by_type"] = affinity_json(b);
        one["set_by_type"]["experts"] = by_type.sets[static_cast<std::size_t>(b.unit)];
      }
    }
    class_list.push_back(std::move(one));
  }
  out["word_class"] = {{"information", information_json(by_class)},
                       {"purity", to_json(by_class.purity, "share")},
                       {"classes", class_list}};
  out["word_class_by_type"] = {{"information", information_json(by_type)},
                               {"purity", to_json(by_type.purity, "share")}};

  std::vector<Firing> by_expert(static_cast<std::size_t>(experts));
  std::map<std::vector<int>, Firing> by_set;
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    std::vector<int> set(firings.experts.begin() + static_cast<std::ptrdiff_t>(t) * k,
                         firings.experts.begin() + static_cast<std::ptrdiff_t>(t + 1) * k);
    for (const int e : set) by_expert[static_cast<std::size_t>(e)].add(choices.tokens[t], classes[t]);
    std::sort(set.begin(), set.end());
    by_set[std::move(set)].add(choices.tokens[t], classes[t]);
  }
  std::vector<int> order(by_expert.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return by_expert[static_cast<std::size_t>(a)].count > by_expert[static_cast<std::size_t>(b)].count;
  });
  out["experts"] = nlohmann::json::array();
  for (std::size_t i = 0; i < std::min(order.size(), static_cast<std::size_t>(options.shown)); ++i) {
    const Firing& firing = by_expert[static_cast<std::size_t>(order[i])];
    if (firing.count == 0) break;
    nlohmann::json one = describe(firing);
    one["expert"] = order[i];
    out["experts"].push_back(std::move(one));
  }
  std::vector<const std::pair<const std::vector<int>, Firing>*> sets;
  for (const auto& entry : by_set) sets.push_back(&entry);
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto* a, const auto* b) { return a->second.count > b->second.count; });
  out["distinct_sets"] = sets.size();
  out["sets"] = nlohmann::json::array();
  for (std::size_t i = 0; i < std::min(sets.size(), static_cast<std::size_t>(options.shown)); ++i) {
    nlohmann::json one = describe(sets[i]->second);
    one["experts"] = sets[i]->first;
    out["sets"].push_back(std::move(one));
  }

  const AgainstChance& info = by_token.information;
  const auto noun = static_cast<std::size_t>(WordClass::noun);
  out["noun_guild"] = {{"expert", is_guild(by_class.expert_affinity[noun], by_type.expert_affinity[noun])},
                       {"set", is_guild(by_class.set_affinity[noun], by_type.set_affinity[noun])}};
  const std::string who = by_type.expert_affinity[noun].unit >= 0
                              ? fmt::format("expert ({})", by_type.expert_affinity[noun].unit)
                              : std::string("expert");
  out["summary"] = fmt::format(
      "Knowing the token tells {:.2f} of the {:.2f} bits of the choice of expert ({:.2f} by chance, {}): {}. The next "
      "token tells {:.2f} ({:.2f} by chance). Nouns: {}.",
      info.value, by_token.expert_entropy, info.mean, chance_words(info.p, options.shuffles),
      info.p <= 0.05 ? "experts specialise in tokens" : "no sign that experts specialise in tokens",
      by_next.information.value, by_next.information.mean,
      noun_verdict(by_class.expert_affinity[noun], by_type.expert_affinity[noun], who, options.shuffles));
  return out;
}

}  // namespace

nlohmann::json study_guilds(OpenedRun& run, const GuildOptions& options) {
  require_experts(run, "study for guilds");
  if (options.layer != -1) require_layer(run.recipe.model, options.layer);
  if (options.shuffles < 1 || options.shuffles > 100000)
    bad_input("--shuffles {}: say a number from 1 to 100000", options.shuffles);
  if (options.least_count < 1) bad_input("--least-count {}: say at least 1", options.least_count);
  const StudyText text = study_text(run, options.data, options.stories);
  CollectOptions collect;
  collect.stories = options.stories;
  collect.rows = run.recipe.train.batch;
  collect.predicted_only = true;
  collect.pad_id = run.tokenizer.pad_id();
  collect.eos_id = run.tokenizer.eos_id();
  Study study{run, options, collect_choices(*run.model, text.data, collect), {}, {}, {}, {}};
  if (study.choices.positions() == 0)
    bad_input("{} predicts no token: there is nothing to study (stories of one token?)", text.source);
  study.token_count.assign(run.tokenizer.vocab_size(), 0);
  study.class_count.assign(word_classes, 0);
  std::int32_t story = -1;
  std::vector<WordClass> story_classes;
  for (std::size_t t = 0; t < study.choices.tokens.size(); ++t) {
    if (study.choices.story[t] != story) {
      story = study.choices.story[t];
      story_classes = classify_tokens(run.tokenizer, text.data.ids(story), text.data.bytes(story));
    }
    const WordClass word_class = story_classes[static_cast<std::size_t>(study.choices.places[t])];
    study.classes.push_back(word_class);
    study.class_count[static_cast<std::size_t>(word_class)] += 1;
    study.token_count[static_cast<std::size_t>(study.choices.tokens[t])] += 1;
  }
  std::vector<std::vector<std::int64_t>> seen_as(run.tokenizer.vocab_size());
  for (std::size_t t = 0; t < study.classes.size(); ++t) {
    auto& counts = seen_as[static_cast<std::size_t>(study.choices.tokens[t])];
    counts.resize(word_classes);
    counts[static_cast<std::size_t>(study.classes[t])] += 1;
  }
  for (const std::int32_t token : study.choices.tokens) {
    const auto& counts = seen_as[static_cast<std::size_t>(token)];
    study.type_class.push_back(
        static_cast<std::int32_t>(std::max_element(counts.begin(), counts.end()) - counts.begin()));
  }
  nlohmann::json out{{"run", run.paths.folder},
                     {"step", run.step},
                     {"data", text.source},
                     {"stories", text.stories},
                     {"positions", study.choices.positions()},
                     {"experts", run.recipe.model.experts},
                     {"top_k", run.recipe.model.top_k},
                     {"shuffles", options.shuffles},
                     {"seed", options.seed},
                     {"least_count", options.least_count}};
  for (int c = 0; c < word_classes; ++c) {
    out["class_shares"][name_of(static_cast<WordClass>(c))] =
        static_cast<double>(study.class_count[static_cast<std::size_t>(c)]) /
        static_cast<double>(study.choices.positions());
  }
  out["layers"] = nlohmann::json::array();
  for (int layer = 0; layer < run.recipe.model.layers; ++layer) {
    if (options.layer == -1 || options.layer == layer) out["layers"].push_back(study.layer_report(layer));
  }
  return out;
}

}  // namespace some::study
