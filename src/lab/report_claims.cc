// Evaluates the claims in recipes/report.toml on the available runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/charts.h"
#include "lab/claim_parts.h"
#include "lab/report_parts.h"

namespace some {
namespace {

using Groups = std::vector<const RunGroup*>;

double loss_of(const RunGroup* group) { return spread_of(*group, final_loss).mean; }
bool lower(const RunGroup* a, const RunGroup* b) { return loss_of(a) < loss_of(b); }
std::string nats(double value) { return fixed(std::abs(value), 4); }

// Returns the groups of the named recipes that were run at this scale and evaluated, in the order of the names.
Groups present(const std::vector<std::string>& names, const std::vector<RunGroup>& all, double scale) {
  Groups out;
  for (const std::string& name : names) {
    for (const RunGroup& group : all) {
      if (group.recipe == name && group.scale == scale && group.first().last() != nullptr) out.push_back(&group);
    }
  }
  return out;
}

// Returns the median of the standard deviations between seeds; none if no experiment has several seeds. The median is
// robust: one experiment that collapses for some seeds would otherwise make every other difference insignificant.
std::optional<double> chance_of(const Groups& groups) {
  std::vector<double> deviations;
  for (const RunGroup* group : groups) {
    const Spread spread = spread_of(*group, final_loss);
    if (spread.count > 1) deviations.push_back(spread.deviation);
  }
  if (deviations.empty()) return std::nullopt;
  std::sort(deviations.begin(), deviations.end());
  const std::size_t half = deviations.size() / 2;
  return deviations.size() % 2 == 1 ? deviations[half] : (deviations[half - 1] + deviations[half]) / 2;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i)
    out += (i == 0 ? "" : i + 1 < parts.size() ? ", " : " and ") + parts[i];
  return out;
}

// One claim at one scale, with the available runs.
struct Question {
  const Claim& claim;
  const ReportTexts& texts;
  Groups runs, controls, along;
  std::optional<double> deviation = {};  // standard deviation between seeds
  std::vector<PartResult> parts = {};    // as many as the claim has

  Groups both() const {
    Groups out = runs;
    for (const RunGroup* control : controls) {
      if (std::find(out.begin(), out.end(), control) == out.end()) out.push_back(control);
    }
    return out;
  }

  // Returns the run that the claim is about: its subject, or the best of its runs. Null if the subject was not run.
  const RunGroup* subject() const {
    if (claim.subject.empty()) return *std::min_element(runs.begin(), runs.end(), lower);
    const auto found =
        std::find_if(runs.begin(), runs.end(), [&](const RunGroup* one) { return one->recipe == claim.subject; });
    return found == runs.end() ? nullptr : *found;
  }

  std::string weighed(double difference) const {
    if (!deviation) return "";
    return std::abs(difference) <= 2 * *deviation ? " (within chance)" : " (more than chance)";
  }

  // Returns the differences that the claim expects to be below zero; empty if it cannot be evaluated.
  std::vector<double> wanted() const {
    std::vector<double> out;
    switch (claim.expects) {
      case Claim::Expects::nothing: break;
      case Claim::Expects::lowest:
        for (const RunGroup* run : runs) {
          if (subject() != nullptr && run != subject()) out.push_back(loss_of(subject()) - loss_of(run));
        }
        break;
      case Claim::Expects::beats:
        for (const RunGroup* control : controls) {
          if (subject() != nullptr) out.push_back(loss_of(subject()) - loss_of(control));
        }
        break;
      case Claim::Expects::falls:
        for (std::size_t i = 1; i < along.size(); ++i) out.push_back(loss_of(along[i]) - loss_of(along[i - 1]));
        break;
    }
    return out;
  }

  // Returns the runs involved in these differences.
  Groups compared() const {
    if (wanted().empty()) return {};
    if (claim.expects == Claim::Expects::falls) return along;
    if (claim.expects == Claim::Expects::lowest) return runs;
    Groups out = controls;
    out.push_back(subject());
    return out;
  }

  // Evaluates the expectation over all runs: `holds` if every difference is below zero by more than chance, `fails` if
  // one is above zero by more than chance.
  Verdict expected() const {
    const std::vector<double> differences = wanted();
    if (differences.empty()) return Verdict::unknown;
    const double highest = *std::max_element(differences.begin(), differences.end());
    if (deviation && std::abs(highest) <= 2 * *deviation) return Verdict::open;
    return highest < 0 ? Verdict::holds : Verdict::fails;
  }

  // Returns the verdict of the whole claim including its parts; empty if nothing is expected or nothing was measured.
  // Small models with one seed each are no evidence for or against a claim.
  Text verdict() const {
    std::vector<Verdict> all;
    bool once = false, several = false;  // numbers of seeds behind the verdict
    const auto weigh = [&](int seeds) { (seeds > 1 ? several : once) = true; };
    if (claim.expects != Claim::Expects::nothing) {
      all.push_back(expected());
      for (const RunGroup* group : compared()) weigh(spread_of(*group, final_loss).count);
    }
    for (const PartResult& part : parts) {
      all.push_back(part.verdict());
      if (!part.values.empty()) weigh(part.fewest);
    }
    const auto count = [&](Verdict one) { return std::count(all.begin(), all.end(), one); };
    const auto holds = count(Verdict::holds), open = count(Verdict::open), fails = count(Verdict::fails);
    if (holds + open + fails == 0) return {};
    if (once && runs.front()->scaled())
      return texts.say("scaled-once", {{"scale", fmt::format("{}", runs.front()->scale)}});
    const std::string seeds = !once ? "" : several ? "-some-once" : "-once";
    if (holds > 0 && open + fails > 0) return texts.say("mixed" + seeds);
    if (fails > 0) return texts.say("fails" + seeds);
    if (open > 0) return texts.say("open");
    return texts.say((count(Verdict::unknown) > 0 ? "holds-so-far" : "holds") + seeds);
  }

  Text against_controls() const {
    const RunGroup* one = subject() != nullptr ? subject() : *std::min_element(runs.begin(), runs.end(), lower);
    std::vector<std::string> parts;
    for (const RunGroup* control : controls) {
      if (control == one) continue;
      const double difference = loss_of(one) - loss_of(control);
      parts.push_back(fmt::format("{} nats {} than {}{}", nats(difference), difference > 0 ? "worse" : "better",
                                  control->name, weighed(difference)));
    }
    if (parts.empty()) return {};
    const char* what = claim.subject.empty() || subject() == nullptr ? "best" : "subject";
    return texts.say("against-controls", {{"run", one->name}, {"what", what}, {"list", joined(parts)}});
  }

  Text lowest() const {
    Groups sorted = runs;
    std::stable_sort(sorted.begin(), sorted.end(), lower);
    return texts.say("lowest", {{"lowest", sorted[0]->name},
                                {"next", sorted[1]->name},
                                {"margin", nats(loss_of(sorted[1]) - loss_of(sorted[0]))},
                                {"highest", sorted.back()->name},
                                {"spread", nats(loss_of(sorted.back()) - loss_of(sorted[0]))}});
  }

  Text changes() const {
    std::vector<std::string> names, parts;
    for (std::size_t i = 0; i < along.size(); ++i) {
      names.push_back(along[i]->name);
      if (i == 0) continue;
      const double difference = loss_of(along[i]) - loss_of(along[i - 1]);
      parts.push_back(fmt::format("{:+.4f}{}", difference, weighed(difference)));
    }
    return texts.say("along", {{"names", joined(names)}, {"list", joined(parts)}});
  }

  // Returns sentences on the runs as a whole. Parts have a separate table.
  std::vector<Text> told() const {
    std::vector<Text> sentences;
    sentences.push_back(deviation
                            ? texts.say("chance", {{"deviation", nats(*deviation)}, {"twice", nats(2 * *deviation)}})
                            : texts.say("no-chance"));
    if (!controls.empty() && claim.expects != Claim::Expects::falls) sentences.push_back(against_controls());
    if (claim.expects == Claim::Expects::falls && along.size() > 1) sentences.push_back(changes());
    if ((controls.empty() || claim.expects == Claim::Expects::lowest) && runs.size() > 1) sentences.push_back(lowest());
    return sentences;
  }

  Text answer() const {
    std::vector<Text> sentences;
    if (parts.empty() || claim.expects != Claim::Expects::nothing) sentences = told();
    sentences.push_back(verdict());
    Text out;
    for (const Text& sentence : sentences) {
      if (sentence.spans.empty()) continue;
      if (!out.spans.empty()) out.add(" ");
      out.append(sentence);
    }
    return out;
  }
};

// Returns the validation loss of the last published epoch.
std::optional<double> published_loss(const RunGroup& group) {
  const Published* published = group.published();
  if (published == nullptr || published->epochs.empty()) return std::nullopt;
  const auto& values = published->epochs.back().values;
  const auto found = values.find("val");
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

Table claim_table(const Question& question, const std::string& id) {
  const RunGroup& reference = *question.runs.front();
  const Groups groups = question.both();
  const bool published = std::any_of(groups.begin(), groups.end(),
                                     [](const RunGroup* group) { return published_loss(*group).has_value(); });
  Table table;
  table.id = id + "-table";
  table.columns = {{"run", "", false}, {"what", "", false}, {"part", "", false}, {"seeds", "", true}};
  if (published) {
    table.columns.push_back({"published", "validation loss as trained", true});
    table.columns.push_back({"here", "validation loss as trained", true});
  }
  table.columns.push_back({"loss", "real tokens", true});
  table.columns.push_back({fmt::format("against {}", reference.name), "real tokens", true});
  table.columns.push_back({"bits per byte", "real tokens", true});
  table.columns.push_back({"trained", "parameters, M", true});
  for (const RunGroup* group : groups) {
    const bool claimed = std::find(question.runs.begin(), question.runs.end(), group) != question.runs.end();
    const Spread here = spread_of(*group, final_loss);
    std::vector<Text> row{Text().link(group->name, group->id()), group->title(), claimed ? "claim" : "control",
                          fmt::to_string(here.count)};
    if (published) {
      const auto told = published_loss(*group);
      row.push_back(told ? published_text(*group, fixed(*told, 4)) : Text("–"));
      row.push_back(spread_of(*group, final_headline).text(4));
    }
    row.push_back(here.text(4));
    row.push_back(group == &reference ? "" : fmt::format("{:+.4f}", here.mean - loss_of(&reference)));
    row.push_back(spread_of(*group, final_bits).text(4));
    row.push_back(fixed(static_cast<double>(group->first().parameters.trainable) / 1e6, 2));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table part_table(const Question& question, const std::string& id) {
  Table table;
  table.id = id + "-parts";
  table.columns = {{"claim", "", false},
                   {"measured", "", false},
                   {"wanted", "", true},
                   {"here", "", true},
                   {"conclusion", "", false}};
  for (std::size_t i = 0; i < question.parts.size(); ++i) {
    const ClaimPart& part = question.claim.parts[i];
    const PartResult& result = question.parts[i];
    table.rows.push_back({parse_marks(part.says), describe_measure(part), describe_bounds(part),
                          format_values(part, result), describe_verdict(result)});
  }
  return table;
}

// Adds one claim at one scale: its section, and its line in the table of all claims.
void add_claim(Document& document, Table& all_claims, const ReportTexts& texts, const Claim& claim,
               const std::vector<RunGroup>& all, double scale) {
  Question question{claim, texts, present(claim.runs, all, scale), present(claim.controls, all, scale),
                    present(claim.along, all, scale)};
  if (question.runs.size() < claim.least || (question.controls.empty() && !claim.controls.empty())) return;
  question.deviation = chance_of(question.both());
  for (const ClaimPart& part : claim.parts) question.parts.push_back(evaluate_part(part, question.both()));
  const std::string suffix = scale == 1 ? "" : fmt::format("-{}", scale);
  const std::string id = "claim-" + claim.id + suffix;
  const std::string title = claim.claim + (scale == 1 ? "" : fmt::format(" (scale {})", scale));
  const Text verdict = question.verdict();
  all_claims.rows.push_back({Text().link(title, id), verdict.spans.empty() ? Text("–") : verdict});
  document.heading(3, id, title);
  document.paragraph(parse_marks(claim.question));
  document.table(claim_table(question, id));
  if (!question.parts.empty()) document.table(part_table(question, id));
  document.paragraph(question.answer());
  document.chart(dots_chart(id + "-dots", "Final loss over non-padding tokens", question.both()));
}

}  // namespace

void add_claims(Document& document, const ReportTexts& texts, const std::vector<RunGroup>& groups) {
  Document part{Header{}};
  Table all_claims;
  all_claims.id = "all-claims";
  all_claims.columns = {{"claim", "", false}, {"conclusion", "", false}};
  std::vector<double> scales;
  for (const RunGroup& group : groups) {
    if (std::find(scales.begin(), scales.end(), group.scale) == scales.end()) scales.push_back(group.scale);
  }
  std::sort(scales.rbegin(), scales.rend());
  for (const Claim& claim : texts.claims) {
    for (const double scale : scales) add_claim(part, all_claims, texts, claim, groups, scale);
  }
  if (part.blocks().empty()) return;
  document.heading(2, "claims", "Claims and controls");
  document.paragraph(texts.say("claims"));
  document.table(all_claims);
  document.append(part);
}

}  // namespace some
