#include "analysis/guilds.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/assignments.h"

namespace some {
namespace {

std::string chance_words(double p, int shuffles) {
  return p <= 1.0 / (1.0 + shuffles) + 1e-12 ? fmt::format("p <= {:.2g}", p) : fmt::format("p = {:.2g}", p);
}

// Counts of tokens and word classes for one expert or set.
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
  std::vector<WordClass> classes;        // class of each position's token
  std::vector<std::int32_t> type_class;  // most frequent class of each position's token
  std::vector<std::int64_t> token_count, class_count;

  GuildUnit describe(const Firing& firing, std::vector<int> experts) const;
  GuildLayer layer_report(int layer) const;
  void describe_busiest(const LayerAssignments& firings, GuildLayer& out) const;
};

GuildUnit Study::describe(const Firing& firing, std::vector<int> experts) const {
  std::vector<std::pair<std::int32_t, std::int64_t>> order(firing.tokens.begin(), firing.tokens.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  const double positions = static_cast<double>(choices.positions()), count = static_cast<double>(firing.count);
  GuildUnit unit;
  unit.experts = std::move(experts);
  unit.count = firing.count;
  unit.share_of_positions = count / positions;
  unit.distinct_tokens = std::ssize(order);
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 8); ++i) {
    const auto& [token, times] = order[i];
    unit.tokens.push_back({token, std::string(run.tokenizer.token_bytes(token)), times,
                           static_cast<double>(times) / count,
                           static_cast<double>(token_count[static_cast<std::size_t>(token)]) / positions});
  }
  const auto top =
      static_cast<std::size_t>(std::max_element(firing.classes.begin(), firing.classes.end()) - firing.classes.begin());
  for (const std::int64_t times : firing.classes) unit.class_shares.push_back(static_cast<double>(times) / count);
  unit.top_class = static_cast<WordClass>(top);
  unit.top_class_share = unit.class_shares[top];
  unit.top_class_base = static_cast<double>(class_count[top]) / positions;
  return unit;
}

LabeledAssignments labelled(const Choices& choices, const LayerAssignments& firings, int experts,
                            const std::vector<std::int32_t>& label, int labels) {
  return {experts, choices.top_k, labels, firings.experts, label, {}};
}

// True for a guild: the unit's tokens are mostly of one class, and more of them than if classes were assigned to tokens
// at random.
bool is_guild(const Affinity& by_position, const Affinity& by_type) {
  return by_position.unit >= 0 && by_position.p <= 0.05 && by_type.p <= 0.05 && by_type.share >= 0.5;
}

std::string noun_verdict(const Affinity& by_position, const Affinity& by_type, const std::string& name, int shuffles) {
  if (by_position.unit < 0) return "no expert fires often enough for a test";
  const auto numbers = [&](const Affinity& a) {
    return fmt::format("{:.0f} % nouns against {:.0f} % of all tokens ({:.1f} times)", 100 * a.share, 100 * a.base,
                       a.lift());
  };
  if (by_position.p > 0.05)
    return fmt::format("no {} fires for nouns beyond chance (at most {}, {})", name, numbers(by_position),
                       chance_words(by_position.p, shuffles));
  if (by_type.p > 0.05) {
    return fmt::format(
        "no guild: the {} with the highest noun share has {}, but shuffling word classes among tokens gives as much "
        "({}), so it prefers certain tokens, not nouns",
        name, numbers(by_type), chance_words(by_type.p, shuffles));
  }
  if (by_type.share < 0.5)
    return fmt::format(
        "the {} with the highest noun share prefers nouns beyond chance, but mostly fires for other words: {}, {}",
        name, numbers(by_type), chance_words(by_type.p, shuffles));
  return fmt::format("noun {} found: {}, {} also with shuffled word classes; it fires at {:.0f} % of all nouns", name,
                     numbers(by_type), chance_words(by_type.p, shuffles), 100 * by_type.recall);
}

// Returns the expert with the highest affinity to a class; none if no unit fired often enough.
std::optional<UnitAffinity> given_expert(const LabelTest& test, std::size_t word_class) {
  const Affinity& affinity = test.expert_affinity[word_class];
  if (affinity.unit < 0) return std::nullopt;
  return UnitAffinity{{affinity.unit}, affinity};
}
std::optional<UnitAffinity> given_set(const LabelTest& test, std::size_t word_class) {
  const Affinity& affinity = test.set_affinity[word_class];
  if (affinity.unit < 0) return std::nullopt;
  return UnitAffinity{test.sets[static_cast<std::size_t>(affinity.unit)], affinity};
}

void Study::describe_busiest(const LayerAssignments& firings, GuildLayer& out) const {
  const int k = choices.top_k;
  std::vector<Firing> by_expert(static_cast<std::size_t>(run.recipe.model.experts));
  std::map<std::vector<int>, Firing> by_set;
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    std::vector<int> set(firings.experts.begin() + static_cast<std::ptrdiff_t>(t) * k,
                         firings.experts.begin() + static_cast<std::ptrdiff_t>(t + 1) * k);
    for (const int e : set) by_expert[static_cast<std::size_t>(e)].add(choices.tokens[t], classes[t]);
    std::sort(set.begin(), set.end());
    by_set[std::move(set)].add(choices.tokens[t], classes[t]);
  }
  const auto shown = static_cast<std::size_t>(options.shown);
  std::vector<int> order(by_expert.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return by_expert[static_cast<std::size_t>(a)].count > by_expert[static_cast<std::size_t>(b)].count;
  });
  for (std::size_t i = 0; i < std::min(order.size(), shown); ++i) {
    const Firing& firing = by_expert[static_cast<std::size_t>(order[i])];
    if (firing.count == 0) break;
    out.experts.push_back(describe(firing, {order[i]}));
  }
  std::vector<const std::pair<const std::vector<int>, Firing>*> sets;
  for (const auto& entry : by_set) sets.push_back(&entry);
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto* a, const auto* b) { return a->second.count > b->second.count; });
  out.distinct_sets = std::ssize(sets);
  for (std::size_t i = 0; i < std::min(sets.size(), shown); ++i)
    out.sets.push_back(describe(sets[i]->second, sets[i]->first));
}

GuildLayer Study::layer_report(int layer) const {
  const LayerAssignments& firings = choices.layers[static_cast<std::size_t>(layer)];
  const int experts = run.recipe.model.experts, vocab = static_cast<int>(run.tokenizer.vocab_size());
  Threads& threads = *run.ctx->threads;
  GuildLayer out;
  out.layer = layer;
  out.middle = layer == run.recipe.model.layers / 2;
  LabelTestOptions how{options.shuffles, options.seed, options.min_count, false};
  out.token = test_labels(threads, labelled(choices, firings, experts, choices.tokens, vocab), how);
  out.next_token = test_labels(threads, labelled(choices, firings, experts, choices.next, vocab), how);
  how.affinities = true;
  std::vector<std::int32_t> class_labels;
  for (const WordClass one : classes) class_labels.push_back(static_cast<std::int32_t>(one));
  out.word_class = test_labels(threads, labelled(choices, firings, experts, class_labels, word_classes), how);
  LabeledAssignments typed = labelled(choices, firings, experts, type_class, word_classes);
  typed.type = choices.tokens;
  how.shuffle_types = true;
  out.word_class_by_type = test_labels(threads, typed, how);

  for (int c = 0; c < word_classes; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (class_count[i] == 0) continue;
    ClassGuilds one{
        static_cast<WordClass>(c),       static_cast<double>(class_count[i]) / static_cast<double>(choices.positions()),
        given_expert(out.word_class, i), std::nullopt,
        given_set(out.word_class, i),    std::nullopt};
    if (one.expert) one.expert_by_type = given_expert(out.word_class_by_type, i);
    if (one.set) one.set_by_type = given_set(out.word_class_by_type, i);
    out.classes.push_back(std::move(one));
  }
  describe_busiest(firings, out);

  const auto noun = static_cast<std::size_t>(WordClass::noun);
  const Affinity &expert = out.word_class.expert_affinity[noun], &set = out.word_class.set_affinity[noun];
  const Affinity& by_type = out.word_class_by_type.expert_affinity[noun];
  out.noun_expert = is_guild(expert, by_type);
  out.noun_set = is_guild(set, out.word_class_by_type.set_affinity[noun]);
  const ChanceTest &info = out.token.information, &next = out.next_token.information;
  out.summary = fmt::format(
      "The token gives {:.2f} of {:.2f} bits about the expert ({:.2f} by chance, {}): {}. The next token gives {:.2f} "
      "({:.2f} by chance). Nouns: {}.",
      info.value, out.token.expert_entropy, info.mean, chance_words(info.p, options.shuffles),
      info.p <= 0.05 ? "experts specialize in tokens" : "no evidence that experts specialize in tokens", next.value,
      next.mean,
      noun_verdict(expert, by_type, by_type.unit >= 0 ? fmt::format("expert ({})", by_type.unit) : "expert",
                   options.shuffles));
  return out;
}

}  // namespace

GuildReport analyze_guilds(OpenedRun& run, const GuildOptions& options) {
  require_experts(run, "study for guilds");
  if (options.layer) require_layer(run.recipe.model, *options.layer);
  if (options.shuffles < 1 || options.shuffles > 100000)
    bad_input(Code::option_invalid, "{} {}: must be from 1 to 100000", "--shuffles", options.shuffles);
  if (options.min_count < 1) bad_input(Code::option_invalid, "{} {}: must be >= 1", "--min-count", options.min_count);
  const AnalysisText text = load_analysis_text(run, options.data, options.max_documents);
  const CollectOptions collect = predicted_positions(run, options.max_documents);
  Study study{run, options, collect_assignments(*run.model, text.data, collect), {}, {}, {}, {}};
  if (study.choices.positions() == 0)
    bad_input(Code::data_nothing_to_predict,
              "{} has no token to predict (documents of one token?); use longer documents", text.source);
  study.token_count.assign(run.tokenizer.vocab_size(), 0);
  study.class_count.assign(word_classes, 0);
  std::int32_t document = -1;
  std::vector<WordClass> story_classes;
  for (std::size_t t = 0; t < study.choices.tokens.size(); ++t) {
    if (study.choices.document[t] != document) {
      document = study.choices.document[t];
      story_classes = classify_tokens(run.tokenizer, text.data.ids(document), text.data.bytes(document));
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
  GuildReport out{run.paths.folder,
                  run.step,
                  text.source,
                  text.documents,
                  study.choices.positions(),
                  run.recipe.model.experts,
                  run.recipe.model.top_k,
                  options.shuffles,
                  options.seed,
                  options.min_count,
                  {},
                  {}};
  for (const std::int64_t count : study.class_count)
    out.class_shares.push_back(static_cast<double>(count) / static_cast<double>(study.choices.positions()));
  for (int layer = 0; layer < run.recipe.model.layers; ++layer) {
    if (!options.layer || *options.layer == layer) out.layers.push_back(study.layer_report(layer));
  }
  return out;
}

std::string set_text(const std::vector<int>& experts) { return fmt::format("{{{}}}", fmt::join(experts, " ")); }

}  // namespace some
