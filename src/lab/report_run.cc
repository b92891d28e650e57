// The section of one experiment.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/pages/key_charts.h"
#include "keys/measures.h"
#include "lab/charts.h"
#include "lab/report_parts.h"

namespace some {
namespace {

constexpr std::size_t max_key_points = 2000;  // per map, over all paths

std::string epoch_text(double epoch) {
  return epoch == std::floor(epoch) ? fmt::format("{:.0f}", epoch) : fmt::format("{:.2f}", epoch);
}

// Returns the most important settings in one line, because differences from another run do not show them.
std::string settings_in_short(const Recipe& recipe) {
  const ModelConfig& model = recipe.model;
  std::string out = fmt::format("{} layers of {}, {} heads, rows of {} tokens; ", model.layers, model.d_model,
                                model.heads, model.seq_len);
  if (model.ffn == Ffn::some) {
    out += fmt::format("{} experts of {}, top-k {}, {} initialization, {} router; alpha {}, beta {}, delta {}{}; ",
                       model.experts, model.d_ffn, model.top_k, model.init,
                       model.router == RouterKind::mlp ? "mlp" : "linear",
                       model.keys.use_alpha ? fmt::to_string(model.keys.alpha) : "off",
                       model.keys.use_beta ? fmt::to_string(model.keys.beta) : "off",
                       model.keys.use_delta ? fmt::to_string(model.keys.delta) : "off",
                       model.keys.balance_rate > 0 ? fmt::format(", balance {}", model.keys.balance_rate) : "");
  } else {
    out += model.ffn == Ffn::dense ? fmt::format("a dense block of {}; ", model.dense_hidden())
                                   : std::string("no feed-forward block; ");
  }
  out += fmt::format("vocabulary {}, {} documents, {} per step, {} epoch{}, learning rate {}.", recipe.data.vocab,
                     recipe.data.train_documents > 0 ? fmt::to_string(recipe.data.train_documents) : "all",
                     recipe.train.batch * recipe.train.accumulate, recipe.train.epochs,
                     recipe.train.epochs == 1 ? "" : "s", recipe.train.lr);
  return out;
}

void add_settings(Document& document, const RunGroup& group) {
  const auto items = [](const std::vector<std::string>& differences) {
    std::vector<Text> out;
    for (const std::string& difference : differences) out.push_back(Text().code(difference));
    return out;
  };
  const Recipe& run = group.first().recipe;
  document.paragraph(settings_in_short(run));
  if (!group.file) {
    const auto differences = recipe_differences(run, Recipe());
    document.begin_fold(Text(fmt::format("Settings: {} differ from the defaults (in brackets)", differences.size())));
    document.list(items(differences));
    document.end_fold();
    return;
  }
  if (group.base) {
    const auto differences = recipe_differences(*group.file, *group.base);
    document.paragraph(Text("Settings, as differences from ").code(group.base_name).add(" (its value in brackets):"));
    document.list(differences.empty() ? std::vector<Text>{Text("none")} : items(differences));
  } else {
    const auto differences = recipe_differences(*group.file, Recipe());
    document.begin_fold(Text(fmt::format("Settings: {} differ from the defaults (in brackets)", differences.size())));
    document.list(items(differences));
    document.end_fold();
  }
  const auto changed = recipe_differences(run, *group.file);
  if (!changed.empty()) {
    document.begin_fold(
        Text(fmt::format("This run differs from its recipe in {} settings{} (the recipe's value in brackets)",
                         changed.size(), group.scaled() ? fmt::format(", being scaled by {}", group.scale) : "")));
    document.list(items(changed));
    document.end_fold();
  }
}

void add_honest_numbers(Document& document, const RunGroup& group) {
  const RunHistory& run = group.first();
  if (run.evaluations.empty()) return;
  Table table;
  table.id = group.id() + "-real";
  const bool padded = run.recipe.data.count_pads;
  table.caption =
      padded ? "Over non-padding tokens (padded loss: over all positions; the published loss is a mean over batches)"
             : "Over non-padding tokens";
  const bool experts = !run.evaluations.front().layers.empty();
  table.columns = {{"epoch", "", true},
                   {"step", "", true},
                   {"loss", "", true},
                   {"perplexity", "", true},
                   {"bits per byte", "", true}};
  if (padded) {
    table.columns.push_back({"padded loss", "", true});
    table.columns.push_back({"fraction of non-padding tokens", "", true});
  }
  if (experts) {
    const std::string layer = fmt::format("layer {}", run.middle);
    for (const char* name : {"Gini", "effective experts", "gate entropy", "keys moved (mean)", "(most)"})
      table.columns.push_back({name, layer, true});
  }
  for (std::size_t i = 0; i < run.evaluations.size(); ++i) {
    const EvalPoint& point = run.evaluations[i];
    const auto here = [&](auto value) {
      return spread_of(group, [&](const RunHistory& one) -> std::optional<double> {
        if (i >= one.evaluations.size() || one.evaluations[i].step != point.step) return std::nullopt;
        return value(one.evaluations[i]);
      });
    };
    std::vector<Text> row{epoch_text(point.epoch), fmt::to_string(point.step)};
    row.push_back(here([](const EvalPoint& e) { return e.loss; }).text(4));
    row.push_back(here([](const EvalPoint& e) { return e.perplexity; }).text(2));
    row.push_back(here([](const EvalPoint& e) { return e.bits_per_byte; }).text(4));
    if (padded) {
      row.push_back(here([](const EvalPoint& e) { return e.padded_loss.value_or(NAN); }).text(4));
      row.push_back(fmt::format("{:.1f} %", 100 * point.real_share));
    }
    if (experts) {
      const LayerPoint& layer = point.layers.at(run.middle);
      row.push_back(here([&](const EvalPoint& e) { return e.layers.at(run.middle).gini; }).text(3));
      row.push_back(fixed(layer.effective, 1));
      row.push_back(fixed(layer.gate_entropy, 3));
      row.push_back(fixed(layer.moved_mean, 3));
      row.push_back(fixed(layer.moved_most, 3));
    }
    table.rows.push_back(std::move(row));
  }
  document.table(std::move(table));
}

void add_seeds(Document& document, const RunGroup& group) {
  if (group.runs.size() < 2) return;
  Table table;
  table.id = group.id() + "-seeds";
  table.caption = "Seeds";
  table.columns = {{"run", "", false}, {"seed", "", true},          {"state", "", false},         {"steps", "", true},
                   {"loss", "", true}, {"bits per byte", "", true}, {"loss as trained", "", true}};
  for (const RunHistory& run : group.runs) {
    const EvalPoint* last = run.last();
    table.rows.push_back(
        {run.found.name, fmt::to_string(run.recipe.seed), run.found.state_text(),
         last == nullptr ? "–" : fmt::to_string(last->step), last == nullptr ? "–" : fixed(last->loss, 4),
         last == nullptr ? "–" : fixed(last->bits_per_byte, 4), last == nullptr ? "–" : fixed(last->headline, 4)});
  }
  table.rows.push_back({Text().strong("mean ± sd"), "", "", "", spread_of(group, final_loss).text(4),
                        spread_of(group, final_bits).text(4), spread_of(group, final_headline).text(4)});
  document.table(std::move(table));
}

// Describes the epoch with the largest difference from the published run, if that is much larger than at the last
// epoch.
Text farthest_epoch(const ReportTexts& texts, const RunGroup& group, double last_difference) {
  const PublishedEpoch* farthest = nullptr;
  double most = 0;
  for (const PublishedEpoch& epoch : group.published()->epochs) {
    const auto told = epoch.values.find("val");
    const Spread here = spread_of(group, [&](const RunHistory& one) { return one.measured("val", epoch.epoch); });
    if (told == epoch.values.end() || here.count == 0) continue;
    if (const double difference = here.mean - told->second; std::abs(difference) > std::abs(most)) {
      farthest = &epoch;
      most = difference;
    }
  }
  if (farthest == nullptr || std::abs(most) < 2 * std::abs(last_difference) ||
      std::abs(most) < 0.05 * farthest->values.at("val"))
    return {};
  return texts.say("farthest", {{"epoch", fmt::to_string(farthest->epoch)},
                                {"difference", fixed(std::abs(most), 4)},
                                {"side", most > 0 ? "above" : "below"}});
}

// Compares the last published loss with the reproduced one.
void add_comparison(Document& document, const ReportTexts& texts, const RunGroup& group) {
  const PublishedEpoch& epoch = group.published()->epochs.back();
  const auto told = epoch.values.find("val");
  if (told == epoch.values.end()) return;
  const Spread here = spread_of(group, [&](const RunHistory& one) { return one.measured("val", epoch.epoch); });
  if (here.count == 0) {
    document.paragraph(
        texts.say("no-evaluation", {{"epoch", fmt::to_string(epoch.epoch)}, {"loss", fixed(told->second, 4)}}));
    return;
  }
  const double difference = here.mean - told->second;
  Text text(fmt::format("After epoch {} the published validation loss is {:.4f}; here it is {}, ", epoch.epoch,
                        told->second, here.text(4)));
  text.strong(std::abs(difference) < 0.00005
                  ? std::string("the same")
                  : fmt::format("{:.4f} {}", std::abs(difference), difference > 0 ? "above" : "below"));
  text.add(fmt::format(" ({:+.1f} %). ", 100 * difference / told->second));
  if (const Text farthest = farthest_epoch(texts, group, difference); !farthest.spans.empty())
    text.append(farthest).add(" ");
  if (here.count > 1) {
    const bool inside = std::abs(difference) <= 2 * here.deviation;
    text.append(texts.say(inside ? "seeds-within" : "seeds-beyond",
                          {{"seeds", fmt::to_string(here.count)}, {"deviation", fixed(here.deviation, 4)}}));
  } else {
    text.append(texts.say("one-against-one"));
  }
  if (std::abs(difference) > 0.02 * told->second && !texts.reasons.empty())
    text.add(" ").link("Why a number may differ", reasons_id).add(".");
  document.paragraph(std::move(text));
}

// Adds the state of a run that is not finished.
void add_state(Document& document, const ReportTexts& texts, const RunHistory& run) {
  const RunState state = run.found.state;
  if (!run.found.failure.empty() && state == RunState::interrupted)
    document.note(texts.say("failed", {{"why", run.found.failure}}));
  if (run.last() == nullptr) {
    document.note(texts.say("not-evaluated"));
  } else if (state != RunState::finished) {
    document.note(texts.say(state == RunState::running ? "going-on" : "not-finished",
                            {{"step", fmt::to_string(run.last()->step)}}));
  }
}

// Adds the result of the comparison with the published numbers.
void add_verdict(Document& document, const ReportTexts& texts, const RunGroup& group) {
  const RunHistory& run = group.first();
  add_state(document, texts, run);
  const EvalPoint* last = run.last();
  if (last == nullptr) return;
  switch (group.departure()) {
    case RecipeDifference::scaled:
      document.paragraph(texts.say("scaled", {{"scale", fmt::to_string(group.scale)}}));
      break;
    case RecipeDifference::other_size: document.paragraph(texts.say("other-size")); break;
    case RecipeDifference::other_text:
      document.paragraph(texts.say("other-text", {{"text", run.recipe.data.train}}));
      break;
    case RecipeDifference::none:
      if (group.published() != nullptr && !group.published()->epochs.empty()) add_comparison(document, texts, group);
      break;
  }
  if (run.recipe.data.count_pads) {
    document.paragraph(texts.say("padding", {{"share", fmt::format("{:.1f} %", 100 * last->real_share)},
                                             {"loss", spread_of(group, final_loss).text(4)},
                                             {"bits", spread_of(group, final_bits).text(4)}}));
  }
  const EvalPoint* best = run.best();
  if (last->headline > 1.05 * best->headline) {
    document.paragraph(texts.say(
        "diverged",
        {{"epoch", epoch_text(best->epoch)}, {"best", fixed(best->headline, 4)}, {"last", fixed(last->headline, 4)}}));
  }
}

void add_samples(Document& document, const ReportTexts& texts, const RunGroup& group, const RunSamples& samples) {
  if (samples.samples.empty()) {
    if (!samples.skipped.empty()) document.paragraph("Sample text: " + samples.skipped + ".");
    return;
  }
  document.heading(4, group.id() + "-samples", fmt::format("Generated text (step {})", samples.step));
  for (const Sample& sample : samples.samples) {
    document.paragraph(Text("From ").code(sample.prompt).add(", " + sample.how + ":"));
    document.quote(sample.text);
  }
  if (samples.trace.empty()) return;
  document.begin_fold(Text(fmt::format("Trace: experts of each token of the first text, layer {}", samples.layer)));
  Table table;
  table.id = group.id() + "-trace";
  table.columns = {{"token", "", false}, {"experts, best first", "", false}, {"gates", "", false}};
  for (const TracedToken& token : samples.trace) {
    std::string experts, gates;
    for (std::size_t i = 0; i < token.experts.size(); ++i) {
      experts += fmt::format("{}{}", i > 0 ? " " : "", token.experts[i]);
      gates += fmt::format("{}{:.2f}", i > 0 ? " " : "", token.gates.at(i));
    }
    table.rows.push_back({Text().code(token.token), experts, gates});
  }
  document.table(std::move(table));
  document.paragraph(texts.say("trace"));
  document.end_fold();
}

// Adds charts of usage and keys. Returns false if no positions were saved.
bool add_key_charts(Document& document, const RunGroup& group, Threads& threads) {
  const RunHistory& run = group.first();
  const auto usage = read_last_usage(run.found.folder, run.recipe.run_id);
  if (run.middle >= usage.size()) return false;
  const int middle = static_cast<int>(run.middle);
  std::vector<int> layers(usage.size());
  std::iota(layers.begin(), layers.end(), 0);
  document.chart(usage_histogram(group.id() + "-usage", middle, usage[run.middle]));
  document.chart(usage_ranks(group.id() + "-ranks", layers, middle, usage));
  const auto positions = read_key_positions(run.found.folder, run.recipe.run_id, middle,
                                            positions_per_map(run.recipe.model.experts, max_key_points));
  if (positions.size() < 2 || positions.back().keys.count < 3) return true;
  const LayerPoint& layer = run.last()->layers.at(run.middle);
  document.chart(
      key_map_chart(threads, group.id() + "-keys", fmt::format("Keys of layer {} and their path", middle),
                    fmt::format("One circle per key, larger and darker for more used experts; the line leads to its "
                                "initial position. Keys moved by {:.3f} on average, {:.3f} at most.",
                                layer.moved_mean, layer.moved_most),
                    positions, positions.back().usage));
  return true;
}

}  // namespace

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

void add_run(Document& document, const ReportTexts& texts, const RunGroup& group, const RunSamples& samples,
             Threads& threads) {
  const RunHistory& run = group.first();
  document.heading(3, group.id(), group.name);
  Text about;
  about.strong(group.title().empty() ? group.name : group.title()).add(". ");
  if (group.published() != nullptr)
    about.add(fmt::format("Published in: {}. {}", group.published()->source, group.published()->note));
  else
    about.add("No numbers of this run were published.");
  document.paragraph(std::move(about));
  document.paragraph(Text("Text: ")
                         .code(run.recipe.data.train)
                         .add(group.reads_builtin() ? ", instead of the recipe's own. Folder: " : ". Folder: ")
                         .code(run.found.folder)
                         .add("."));
  add_settings(document, group);
  add_verdict(document, texts, group);
  add_published_comparison(document, group);
  add_honest_numbers(document, group);
  add_seeds(document, group);
  add_size_and_speed(document, group);
  if (run.evaluations.empty() && run.train.empty()) return;
  document.begin_side_by_side();
  document.chart(loss_chart(group));
  bool positions = true;
  if (!run.evaluations.empty() && !run.evaluations.front().layers.empty()) {
    document.chart(layer_chart(group, false));
    document.chart(layer_chart(group, true));
    positions = add_key_charts(document, group, threads);
  }
  document.end_side_by_side();
  if (!positions) document.paragraph(texts.say("no-keys"));
  add_samples(document, texts, group, samples);
}

}  // namespace some
