#include "analysis/knock_outs/ablate_rules.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/ablate.h"
#include "analysis/assignments.h"
#include "core/error.h"
#include "inference/key_learner.h"
#include "runs/checkpoint.h"

namespace some {
namespace {

// Restores the keys of a model on destruction.
class KeysRestored {
 public:
  explicit KeysRestored(Model& model) : model_(model), before_(model) {}
  ~KeysRestored() { before_.restore(model_); }
  KeysRestored(const KeysRestored&) = delete;
  KeysRestored& operator=(const KeysRestored&) = delete;
  void restore() const { before_.restore(model_); }

 private:
  Model& model_;
  KeySnapshot before_;
};

std::vector<std::string> split_rules(const std::string& rules) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= rules.size();) {
    const std::size_t end = std::min(rules.find(',', begin), rules.size());
    out.push_back(rules.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// Reads documents in batches, as training does, with one key update per batch; returns the number of updates.
std::int64_t learn_keys(OpenedRun& run, const TokenData& text, const KeySettings& settings) {
  Model& model = *run.model;
  KeyLearner learner(model, settings, run.step);
  BatchOptions how;
  how.seq_len = run.recipe.model.seq_len;
  how.pad_id = run.tokenizer.pad_id();
  how.eos_id = run.tokenizer.eos_id();
  how.long_documents = run.recipe.data.long_documents;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < text.documents(); ++i) {
    rows.push_back(i);
    if (std::ssize(rows) < run.recipe.train.batch && i + 1 < text.documents()) continue;
    const Batch batch = make_batch(text, rows, how);
    model.context().arena->reset();
    const DeviceBatch device_batch = upload(model.context(), batch);
    const LayerObserver observe = [&](int layer, const RouterTape& tape) {
      learner.observe(layer, tape, &device_batch.targets);
    };
    model.evaluate(device_batch, {}, {observe});
    learner.pass_done(batch.size());
    learner.update();
    rows.clear();
  }
  return learner.updates();
}

struct Measured {
  std::vector<double> by_document;  // sums of losses
  double loss = 0;
};

class Measure {
 public:
  Measure(OpenedRun& run, const AblateRulesOptions& options)
      : run_(run),
        text_(load_analysis_text(run, options.data, options.max_documents)),
        how_(predicted_positions(run, options.max_documents)) {}
  const AnalysisText& text() const { return text_; }
  std::int64_t positions() const { return positions_; }

  Measured measure() {
    const Choices choices = collect_assignments(*run_.model, text_.data, how_);
    if (choices.positions() == 0) bad_input(Code::data_nothing_to_predict, "{} has no token to predict", text_.source);
    positions_ = choices.positions();
    Measured out;
    out.by_document.resize(static_cast<std::size_t>(text_.documents), 0);
    for (std::size_t t = 0; t < choices.nll.size(); ++t) {
      out.by_document[static_cast<std::size_t>(choices.document[t])] += choices.nll[t];
      out.loss += choices.nll[t] / static_cast<double>(positions_);
    }
    return out;
  }

 private:
  OpenedRun& run_;
  AnalysisText text_;
  CollectOptions how_;
  std::int64_t positions_ = 0;
};

double mean_distance(Model& model, const KeySnapshot& from) {
  double sum = 0;
  for (const Layer& layer : model.layers()) sum += from.distance(model, layer.index).mean;
  return sum / static_cast<double>(model.layers().size());
}

}  // namespace

AblateRulesReport ablate_rules(OpenedRun& run, const AblateRulesOptions& options) {
  require_experts(run, "knock out key rules");
  if (options.shuffles < 1 || options.shuffles > 100000)
    bad_input(Code::option_invalid, "{} {}: must be from 1 to 100000", "--shuffles", options.shuffles);
  Model& model = *run.model;
  const KeySettings own = run.recipe.model.keys;
  AblateRulesReport report;
  report.rules = rules_text(own);
  if (report.rules == "none")
    bad_input(Code::model_unsuitable, "{}: no rule moved the keys of this run, so none can be disabled",
              run.paths.folder);
  const std::vector<Tensor> begin = load_key_positions(run.paths.folder, run.recipe.run_id, 0, model);
  if (begin.empty())
    bad_input(Code::start_keys_missing, "{}/keys/step-0.safetensors not found: the initial keys of the run are unknown",
              run.paths.folder);
  const TokenData lessons = load_tokens(*run.ctx, run.recipe.data.train, run.recipe.data, run.tokenizer,
                                        options.learn_documents, run.paths.cache());
  Measure measure(run, options);
  report.run = run.paths.folder;
  report.step = run.step;
  report.data = measure.text().source;
  report.documents = measure.text().documents;
  report.learn_documents = lessons.documents();
  report.shuffles = options.shuffles;
  report.loss_trained = measure.measure().loss;

  const KeysRestored restored(model);
  const auto go_back = [&] {
    restored.restore();
    for (std::size_t i = 0; i < begin.size(); ++i) {
      KeyState& keys = model.layers()[i].keys;
      keys.keys = begin[i].to(model.context().device).clone();
      if (keys.average) keys.average = keys.keys.clone();
    }
  };
  const std::vector<std::string> rules = split_rules(report.rules);
  const int total = static_cast<int>(rules.size()) + 2;
  int done = 0;
  const auto told = [&] {
    if (options.progress) options.progress(++done, total);
    return options.stop && options.stop() && done < total;
  };
  // Keys that learned by these rules; an empty list keeps them where they began.
  const auto learned = [&](const std::string& by, double& moved) {
    go_back();
    const KeySnapshot start(model);
    if (!by.empty()) report.updates = learn_keys(run, lessons, choose_rules(own, by));
    moved = mean_distance(model, start);
    return measure.measure();
  };
  const Measured all = learned(report.rules, report.moved);
  report.loss = all.loss;
  report.positions = measure.positions();
  report.stopped = told();
  std::vector<std::vector<double>> changes;
  for (std::size_t i = 0; i <= rules.size() && !report.stopped; ++i) {
    RuleKnockOut one;
    one.without = i < rules.size() ? rules[i] : "all";
    std::string others;
    for (std::size_t j = 0; j < rules.size() && i < rules.size(); ++j) {
      if (j != i) others += (others.empty() ? "" : ",") + rules[j];
    }
    // Without its only rule, keys stay where they began.
    if (i == rules.size() && rules.size() == 1) break;
    const Measured other = learned(others, one.moved);
    one.change = other.loss - all.loss;
    std::vector<double>& row = changes.emplace_back();
    double sum = 0, squares = 0;
    for (std::size_t d = 0; d < all.by_document.size(); ++d) {
      row.push_back(other.by_document[d] - all.by_document[d]);
      sum += row.back();
      squares += row.back() * row.back();
    }
    if (const auto count = static_cast<double>(row.size()); count > 1)
      one.error = std::sqrt(std::max(0.0, squares - sum * sum / count) * count / (count - 1)) /
                  static_cast<double>(report.positions);
    report.knock_outs.push_back(one);
    report.stopped = told();
  }
  const std::vector<double> p = sign_flip_p(changes, options.shuffles, options.seed);
  for (std::size_t i = 0; i < p.size(); ++i) report.knock_outs[i].p = p[i];
  return report;
}

nlohmann::json to_json(const AblateRulesReport& report) {
  nlohmann::json list = nlohmann::json::array();
  for (const RuleKnockOut& one : report.knock_outs)
    list.push_back(
        {{"without", one.without}, {"change", one.change}, {"error", one.error}, {"p", one.p}, {"moved", one.moved}});
  return {{"run", report.run},
          {"step", report.step},
          {"data", report.data},
          {"rules", report.rules},
          {"documents", report.documents},
          {"positions", report.positions},
          {"learn_documents", report.learn_documents},
          {"updates", report.updates},
          {"loss", report.loss},
          {"loss_trained", report.loss_trained},
          {"moved", report.moved},
          {"shuffles", report.shuffles},
          {"knock_outs", list},
          {"stopped", report.stopped}};
}

}  // namespace some
