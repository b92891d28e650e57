// The plain words of a report: how to read its numbers, what is claimed and what the controls say, why numbers differ.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/charts.h"
#include "lab/report_parts.h"

namespace some::lab {
namespace {

struct Claim {
  const char* id;
  const char* claim;                  // as the published documents have it, in our words
  const char* question;               // what would have to be seen
  std::size_t least;                  // so many of its runs must be there for the question to be asked
  std::vector<std::string> runs;      // what the claim speaks of; the first is what the others are held against
  std::vector<std::string> controls;  // at least one of them must be there, where there are any
};

const std::vector<Claim>& claims() {
  static const std::vector<Claim> list = {
      {"experts",
       "Choosing among frozen random experts is enough to learn language with few trained parameters.",
       "The model must beat the same backbone without any feed-forward block, and hold against dense blocks of equal "
       "trained size or equal cost.",
       1,
       {"a4-warm"},
       {"control-no-ffn", "control-dense-trainable", "control-dense-active", "control-dense-step", "control-dense-4x"}},
      {"readout",
       "(not claimed) A trained readout lets the model use what frozen experts say.",
       "With a readout the loss must fall clearly below that without a feed-forward block.",
       2,
       {"a4-warm", "control-readout-linear", "control-readout-features", "control-features-best"},
       {"control-no-ffn", "control-dense-trainable"}},
      {"keys",
       "Keys that move by knowledge gravity organise the experts and improve the model.",
       "Moving keys must beat keys that stay where they were drawn, and routing by a hash of the token.",
       1,
       {"a4-warm", "control-no-alpha", "control-no-beta", "control-no-delta", "control-flux-usage"},
       {"control-frozen-keys", "control-random-routing"}},
      {"width-depth",
       "Width helps more than depth; ten layers of 512 are best.",
       "Compare the loss over real tokens, not over padding.",
       2,
       {"a4", "a1", "a2", "a3", "a5"},
       {}},
      {"more-experts",
       "More experts make a richer landscape and a better model.",
       "The loss must fall as experts are added, by more than seeds differ.",
       2,
       {"a4", "b1", "b2", "b3"},
       {}},
      {"experts-a-token",
       "How many experts a token takes must grow with their number.",
       "The loss must depend on k by more than seeds differ.",
       2,
       // Each beside the run of as many experts that takes four.
       {"a4", "c1", "b1", "b2", "c2", "b3", "c3"},
       {}},
      {"collapse",
       "At 16 layers routing loses its hold on meaning and the model collapses; D1, D2, D3 are to cure it.",
       "If warm-up or pre-norm cure it with the same routing, or a dense block collapses as well, routing is not the "
       "cause.",
       1,
       {"a6", "d1", "d2", "d3"},
       {"a6-warm", "a6-pre", "a6-frozen-keys", "a6-dense"}},
      {"initialisation",
       "Sparse experts are best: distinct primitives help.",
       "The three initialisations must differ by more than seeds do. Sparse experts as published say almost nothing: "
       "their output is about a hundredth of the residual.",
       2,
       {"a4-warm", "control-init-sparse", "control-init-orthogonal"},
       {"control-no-ffn"}},
      {"context",
       "Longer context gives better models.",
       "Published losses fall with the length because padding, which is free, is averaged in. Without padding the loss "
       "must still fall.",
       1,
       {"2-a1", "2-a2", "2-a3"},
       {"control-context-256", "control-context-512", "a4-warm", "control-context-1024"}},
      {"dense",
       "SoME comes near a dense model with fewer trained parameters.",
       "Compare at equal trained parameters, over real tokens.",
       1,
       {"compare-some"},
       {"compare-dense"}},
  };
  return list;
}

const RunGroup* find_group(const std::vector<RunGroup>& groups, const std::string& recipe, double scale) {
  for (const RunGroup& group : groups) {
    if (group.recipe == recipe && group.scale == scale) return &group;
  }
  return nullptr;
}

// The pooled deviation between seeds, where any experiment has several; nothing otherwise.
std::optional<double> chance(const std::vector<const RunGroup*>& groups) {
  double squares = 0;
  int freedom = 0;
  for (const RunGroup* group : groups) {
    const Spread spread = spread_of(*group, final_loss);
    if (spread.count < 2) continue;
    squares += spread.deviation * spread.deviation * (spread.count - 1);
    freedom += spread.count - 1;
  }
  if (freedom == 0) return std::nullopt;
  return std::sqrt(squares / freedom);
}

void add_claim(Document& document, const Claim& claim, const std::vector<RunGroup>& all, double scale) {
  std::vector<const RunGroup*> runs, controls;
  for (const std::string& name : claim.runs) {
    if (const RunGroup* group = find_group(all, name, scale); group != nullptr && group->first().last() != nullptr)
      runs.push_back(group);
  }
  for (const std::string& name : claim.controls) {
    if (const RunGroup* group = find_group(all, name, scale); group != nullptr && group->first().last() != nullptr)
      controls.push_back(group);
  }
  if (runs.size() < claim.least || (controls.empty() && !claim.controls.empty())) return;
  const std::string id = fmt::format("claim-{}{}", claim.id, scale == 1 ? "" : fmt::format("-{}", scale));
  document.heading(3, id, Text(fmt::format("{}{}", claim.claim, scale == 1 ? "" : fmt::format(" (scale {})", scale))));
  document.paragraph(claim.question);
  const RunGroup& reference = *runs.front();
  const double loss = spread_of(reference, final_loss).mean;
  Table table;
  table.id = id + "-table";
  table.columns = {{"run", "", false},
                   {"what", "", false},
                   {"", "", false},
                   {"seeds", "", true},
                   {"loss over real tokens", "", true},
                   {fmt::format("against {}", reference.name), "", true},
                   {"bits per byte", "", true},
                   {"trained, million", "", true}};
  std::vector<const RunGroup*> both = runs;
  both.insert(both.end(), controls.begin(), controls.end());
  for (std::size_t i = 0; i < both.size(); ++i) {
    const RunGroup& group = *both[i];
    const Spread here = spread_of(group, final_loss);
    table.rows.push_back({Text().link(group.name, group.id()), group.first().recipe.title,
                          i < runs.size() ? "claim" : "control", fmt::to_string(here.count), here.text(4),
                          i == 0 ? "" : fmt::format("{:+.4f}", here.mean - loss), spread_of(group, final_bits).text(4),
                          fmt::format("{:.2f}", static_cast<double>(group.first().parameters.trainable) / 1e6)});
  }
  document.table(std::move(table));
  const auto deviation = chance(both);
  Text text;
  if (deviation)
    text.add(
        fmt::format("Seeds of one experiment differ by {:.4f} (standard deviation), so a difference below about {:.4f} "
                    "says nothing. ",
                    *deviation, 2 * *deviation));
  else
    text.add("No experiment here has more than one seed, so how much of these differences is chance cannot be told. ");
  if (!controls.empty()) {
    const RunGroup& best = **std::min_element(runs.begin(), runs.end(), [](const RunGroup* a, const RunGroup* b) {
      return spread_of(*a, final_loss).mean < spread_of(*b, final_loss).mean;
    });
    text.add(fmt::format("The best of the claim, {}, is ", best.name));
    for (std::size_t i = 0; i < controls.size(); ++i) {
      const double difference = spread_of(best, final_loss).mean - spread_of(*controls[i], final_loss).mean;
      text.add(fmt::format("{}{:.4f} nats {} than {}",
                           i == 0                    ? ""
                           : i + 1 < controls.size() ? ", "
                                                     : " and ",
                           std::abs(difference), difference > 0 ? "worse" : "better", controls[i]->name));
      if (deviation) text.add(std::abs(difference) <= 2 * *deviation ? " (within chance)" : " (more than chance)");
    }
    text.add(".");
  } else {
    const auto [low, high] = std::minmax_element(runs.begin(), runs.end(), [](const RunGroup* a, const RunGroup* b) {
      return spread_of(*a, final_loss).mean < spread_of(*b, final_loss).mean;
    });
    text.add(fmt::format("The lowest loss is that of {}, {:.4f} nats below the highest, {}.", (*low)->name,
                         spread_of(**high, final_loss).mean - spread_of(**low, final_loss).mean, (*high)->name));
  }
  document.paragraph(std::move(text));
  document.chart(dots_chart(id + "-dots", "Final loss over real tokens", both));
}

// "done", or how many of its seeds are.
std::string state_of(const RunGroup& group) {
  if (group.runs.size() == 1) return group.first().found.state_text();
  const auto done = std::count_if(group.runs.begin(), group.runs.end(),
                                  [](const RunHistory& run) { return run.found.state == RunState::finished; });
  if (done == static_cast<std::ptrdiff_t>(group.runs.size())) return fmt::format("done, {} seeds", done);
  return fmt::format("{} of {} seeds done", done, group.runs.size());
}

// Words between backticks are code.
Text marked_text(const std::string& marked) {
  Text text;
  bool code = false;
  for (std::size_t begin = 0; begin <= marked.size(); code = !code) {
    const std::size_t end = std::min(marked.find('`', begin), marked.size());
    const std::string part = marked.substr(begin, end - begin);
    if (!part.empty()) code ? text.code(part) : text.add(part);
    begin = end + 1;
  }
  return text;
}

// What padding does to the number, in one of these runs.
std::string padding_example(const std::vector<RunGroup>& groups) {
  for (const RunGroup& group : groups) {
    const EvalPoint* last = group.first().last();
    if (last == nullptr || !last->padded_loss) continue;
    return fmt::format(": the perplexity of {} is {:.2f} with padding and {:.2f} over text", group.name,
                       std::exp(*last->padded_loss), last->perplexity);
  }
  return "";
}

}  // namespace

void add_reading_guide(Document& document, const std::vector<RunGroup>& groups) {
  const auto any = [&](auto test) { return std::any_of(groups.begin(), groups.end(), test); };
  document.heading(2, "reading", "How to read this");
  std::vector<Text> items;
  if (any([](const RunGroup& g) { return g.first().recipe.data.count_pads; })) {
    items.push_back(Text()
                        .strong("Padded loss is not loss over text. ")
                        .add("Runs up to v4 fill every story with padding to the full length, and predict and count it "
                             "like text. Padding after padding is certain, so the longer the rows, the "
                             "lower the average" +
                             padding_example(groups) +
                             ". Loss over real tokens, and bits per byte, which do not depend on the tokenizer, can be "
                             "compared between runs; padded losses only with their published counterparts."));
  }
  items.push_back(any([](const RunGroup& g) { return g.runs.size() > 1; })
                      ? Text()
                            .strong("One seed is not a result. ")
                            .add("Where an experiment has several seeds, its numbers are mean ± standard deviation. "
                                 "The published numbers are one run each, "
                                 "and no seed was ever set: a difference smaller than the spread is chance.")
                      : Text()
                            .strong("One seed is not a result. ")
                            .add("Every experiment here was run once, as the published ones were. Two runs that differ "
                                 "in nothing but their seed also differ; "
                                 "only several seeds (")
                            .code("some lab run NAME --seeds 3")
                            .add(") tell by how much."));
  items.push_back(Text()
                      .strong("A claim needs its control. ")
                      .add("That a model with frozen experts learns does not show that the experts help: the rest of "
                           "it learns too. The controls leave one thing out, "
                           "or replace it by something ordinary, and stand beside the claims below."));
  items.push_back(Text()
                      .strong("Gini and entropy ")
                      .add("tell how unevenly experts are used, in the middle layer as published. Where padding is "
                           "counted it is routed too, to one clique of experts, which alone makes Gini large."));
  if (any([](const RunGroup& g) { return g.scaled(); })) {
    items.push_back(Text()
                        .strong("Scaled runs ")
                        .add("(NAME@0.05) are small versions on less text: they show that a run works and which way a "
                             "setting pulls, not what the full run would give."));
  }
  if (any([](const RunGroup& g) {
        return g.file && !g.file->data.train.starts_with("builtin:") &&
               g.first().recipe.data.train.starts_with("builtin:");
      })) {
    items.push_back(Text()
                        .strong("Built-in stories ")
                        .add("were used by some runs in place of the text the published runs were trained on. They are "
                             "another text, so their losses cannot be compared with the published ones."));
  }
  document.list(std::move(items));
}

Table overview_table(const std::string& id, const std::vector<const RunGroup*>& groups) {
  Table table;
  table.id = id;
  table.columns = {{"run", "", false},
                   {"what", "", false},
                   {"state", "", false},
                   {"total", "parameters, M", true},
                   {"trained", "parameters, M", true},
                   {"published", "validation loss as trained", true},
                   {"here", "validation loss as trained", true},
                   {"diff.", "validation loss as trained", true},
                   {"loss", "real tokens", true},
                   {"bits/byte", "real tokens", true},
                   {"published", "Gini", true},
                   {"here", "Gini", true},
                   {"time", "", true}};
  for (const RunGroup* group : groups) {
    const RunHistory& run = group->first();
    std::optional<double> told, told_gini;
    Spread here = spread_of(*group, final_headline);
    Spread gini = spread_of(*group, [](const RunHistory& one) -> std::optional<double> {
      if (one.last() == nullptr || one.middle >= one.last()->layers.size()) return std::nullopt;
      return one.last()->layers[one.middle].gini;
    });
    if (const Published* published = group->published(); published != nullptr && !published->epochs.empty()) {
      const auto& values = published->epochs.back().values;
      if (values.count("val") > 0) told = values.at("val");
      if (values.count("gini") > 0) told_gini = values.at("gini");
    }
    const auto text = [](const std::optional<double>& value, int digits) {
      return value ? fmt::format("{:.{}f}", *value, digits) : std::string("–");
    };
    table.rows.push_back(
        {Text().link(group->name, group->id()), run.recipe.title, state_of(*group),
         fmt::format("{:.2f}", static_cast<double>(run.parameters.total) / 1e6),
         fmt::format("{:.2f}", static_cast<double>(run.parameters.trainable) / 1e6), text(told, 4), here.text(4),
         told && here.count > 0 && !group->scaled() ? fmt::format("{:+.4f}", here.mean - *told) : "–",
         spread_of(*group, final_loss).text(4), spread_of(*group, final_bits).text(4), text(told_gini, 3), gini.text(3),
         run.timing.seconds > 0 ? duration(run.timing.seconds) : "–"});
  }
  return table;
}

void add_series(Document& document, const Series& series, const std::vector<const RunGroup*>& groups) {
  document.heading(2, "series-" + series.name, series.title);
  document.paragraph(marked_text(series.about));
  document.table(overview_table("overview-" + series.name, groups));
  std::string missing;
  for (const std::string& recipe : series.recipes) {
    if (std::none_of(groups.begin(), groups.end(), [&](const RunGroup* group) { return group->recipe == recipe; }))
      missing += (missing.empty() ? "" : ", ") + recipe;
  }
  if (!missing.empty())
    document.paragraph(
        Text("Not run yet: " + missing + ". ").code("some lab run " + series.name).add(" runs the rest."));
  std::vector<const RunGroup*> evaluated;
  for (const RunGroup* group : groups) {
    if (group->first().last() != nullptr) evaluated.push_back(group);
  }
  if (evaluated.size() < 2) return;
  document.begin_side_by_side();
  document.chart(comparison_chart("curves-" + series.name, "Validation loss over real tokens", evaluated));
  document.chart(dots_chart("dots-" + series.name, "Where they ended", evaluated));
  document.end_side_by_side();
}

void add_claims(Document& document, const std::vector<RunGroup>& groups) {
  Document part("");
  std::vector<double> scales;
  for (const RunGroup& group : groups) {
    if (std::find(scales.begin(), scales.end(), group.scale) == scales.end()) scales.push_back(group.scale);
  }
  std::sort(scales.rbegin(), scales.rend());
  for (const Claim& claim : claims()) {
    for (const double scale : scales) add_claim(part, claim, groups, scale);
  }
  if (part.blocks().empty()) return;
  document.heading(2, "claims", "Claims and controls");
  document.paragraph(
      "What the published documents say, the runs that bear on it, and the controls beside them. All losses are over "
      "real tokens at the end of the run.");
  document.append(part);
}

void add_experiment_index(Document& document, const SeriesIndex& index, const std::vector<RunGroup>& groups) {
  document.heading(2, "index", "Experiment index");
  document.paragraph(
      marked_text("Every experiment the lab knows. Runs that are in this report are linked; `some lab run NAME` adds "
                  "others."));
  Table table;
  table.id = "experiment-index";
  table.columns = {{"series", "", false},          {"run", "", false},       {"what", "", false},
                   {"published loss", "", true},   {"perplexity", "", true}, {"here, as trained", "", true},
                   {"here, real tokens", "", true}};
  for (const Series& series : index.series) {
    for (const std::string& name : series.recipes) {
      const Recipe recipe = load_recipe(index.recipe_path(name), {});
      std::string loss = "–", perplexity = "–";
      if (recipe.published && !recipe.published->epochs.empty()) {
        const auto& values = recipe.published->epochs.back().values;
        if (values.count("val") > 0) loss = fmt::format("{:.4f}", values.at("val"));
        if (values.count("ppl") > 0) perplexity = fmt::format("{:.2f}", values.at("ppl"));
      }
      bool found = false;
      for (const RunGroup& group : groups) {
        if (group.recipe != name) continue;
        found = true;
        table.rows.push_back({series.name, Text().link(group.name, group.id()), recipe.title, loss, perplexity,
                              spread_of(group, final_headline).text(4), spread_of(group, final_loss).text(4)});
      }
      if (!found) table.rows.push_back({series.name, name, recipe.title, loss, perplexity, "–", "–"});
    }
  }
  document.begin_fold(Text(fmt::format("Every experiment ({} lines)", table.rows.size())));
  document.table(std::move(table));
  document.end_fold();
  add_published_numbers(document, index, groups);
}

void add_reasons(Document& document) {
  document.heading(2, reasons_id, "Why a number may differ from the published one");
  document.list({
      Text()
          .strong("Other stories. ")
          .add("The published runs read the first rows of the official files. Other stories, or another order, are met "
               "in kind, not to the digit; where padding is counted, stories "
               "of another mean length change the padded loss directly, since it is about the loss over real tokens "
               "times the share of real tokens."),
      Text()
          .strong("Tokenizer. ")
          .add("Published: one vocabulary of 8,192 trained on the whole data set. Here it is trained on the run's own "
               "training stories, unless ")
          .code("data.tokenizer")
          .add(" names a file: words "
               "are cut a little differently, so stories have a few more or fewer tokens. Bits per byte does not "
               "depend on this."),
      Text()
          .strong("Precision. ")
          .add("Published: fp16 with loss scaling, whose first step was usually skipped; routing scores in fp16 up to "
               "v4. Here: fp32 on a CPU, bf16 on a GPU, routing always in fp32."),
      Text()
          .strong("Evaluation. ")
          .add("Up to v4 the last stories that did not fill a validation batch were left out; here all are counted."),
      Text().strong("Chance. ").add("No seed was set in any published run, and each was run once."),
      Text()
          .strong("What settings cannot express. ")
          .add("The earliest versions had expert biases and queries that were not normalised. Their recipes say so."),
  });
}

}  // namespace some::lab
