#include "analysis/ablate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/assignments.h"
#include "core/error.h"
#include "core/random.h"

namespace some {
namespace {

// Disables an expert during the lifetime of the object by adding a bias to its selection score. The scores that
// determine the gates do not change.
class NeverChosen {
 public:
  NeverChosen(Model& model, int layer, int expert)
      : keys_(model.layers().at(static_cast<std::size_t>(layer)).keys), before_(keys_.choice_bias) {
    Tensor bias =
        before_ ? before_.to(Device::cpu).clone() : Tensor::zeros({model.config().experts}, keys_.keys.dtype());
    const auto place = static_cast<std::size_t>(expert);
    if (bias.dtype() == DType::f64)
      bias.data<double>()[place] = -1e30;
    else
      bias.data<float>()[place] = -1e30F;
    keys_.choice_bias = bias.to(model.context().device);
  }
  ~NeverChosen() { keys_.choice_bias = before_; }
  NeverChosen(const NeverChosen&) = delete;
  NeverChosen& operator=(const NeverChosen&) = delete;

 private:
  KeyState& keys_;
  Tensor before_;
};

void check(const OpenedRun& run, const AblateOptions& options) {
  require_experts(run, "knock out");
  const ModelConfig& config = run.recipe.model;
  if (options.layer) require_layer(config, *options.layer);
  if (config.routing != RoutingKind::keys)
    bad_input(Code::model_unsuitable, "{} does not choose its experts by keys: none can be knocked out",
              run.paths.folder);
  if (config.top_k >= config.experts)
    bad_input(Code::model_unsuitable, "{}: every token takes all {} experts: none can be knocked out", run.paths.folder,
              config.experts);
  if (options.shuffles < 1 || options.shuffles > 100000)
    bad_input(Code::option_invalid, "{} {}: must be from 1 to 100000", "--shuffles", options.shuffles);
}

// Returns the mean over documents, weighted by their tokens, and its standard error.
struct Change {
  double mean = 0, error = 0;
};
Change change_of(const std::vector<double>& by_document, double positions) {
  Change out;
  double squares = 0;
  for (const double one : by_document) {
    out.mean += one / positions;
    squares += one * one;
  }
  const auto documents = static_cast<double>(by_document.size());
  const double sum = out.mean * positions;
  if (documents > 1)
    out.error = std::sqrt(std::max(0.0, squares - sum * sum / documents) * documents / (documents - 1)) / positions;
  return out;
}

// Returns |sum| in units of its deviation under random signs; 0 if nothing changed.
double z_of(double sum, double squares) { return squares > 0 ? std::abs(sum) / std::sqrt(squares) : 0; }

std::vector<std::string> frequent_tokens(const Choices& choices, const OpenedRun& run, int layer, int expert) {
  constexpr std::size_t shown = 5;
  std::map<std::int32_t, std::int64_t> counts;
  const LayerAssignments& firings = choices.layers[static_cast<std::size_t>(layer)];
  for (std::size_t i = 0; i < firings.experts.size(); ++i) {
    if (firings.experts[i] == expert) counts[choices.tokens[i / static_cast<std::size_t>(choices.top_k)]] += 1;
  }
  std::vector<std::pair<std::int32_t, std::int64_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::min(shown, order.size()); ++i)
    out.emplace_back(run.tokenizer.token_bytes(order[i].first));
  return out;
}

// Returns the word class of the token that each position predicts.
std::vector<std::size_t> predicted_classes(const Choices& choices, const OpenedRun& run, const TokenData& data) {
  std::vector<std::size_t> out;
  std::int32_t document = -1;
  std::vector<WordClass> classes;
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    if (choices.document[t] != document) {
      document = choices.document[t];
      classes = classify_tokens(run.tokenizer, data.ids(document), data.bytes(document));
    }
    out.push_back(static_cast<std::size_t>(classes[static_cast<std::size_t>(choices.places[t]) + 1]));
  }
  return out;
}

}  // namespace

std::vector<double> sign_flip_p(const std::vector<std::vector<double>>& changes, int shuffles, std::uint64_t seed) {
  std::vector<double> own, squares;
  for (const std::vector<double>& unit : changes) {
    double sum = 0, square = 0;
    for (const double one : unit) {
      sum += one;
      square += one * one;
    }
    squares.push_back(square);
    own.push_back(z_of(sum, square));
  }
  std::vector<int> reached(changes.size(), 0);
  const std::size_t documents = changes.empty() ? 0 : changes[0].size();
  std::vector<double> sign(documents);
  const RandomStream stream = random_stream(seed, "ablate.signs");
  for (int shuffle = 0; shuffle < shuffles; ++shuffle) {
    for (std::size_t j = 0; j < documents; ++j) {
      const auto number = static_cast<std::uint64_t>(shuffle) * documents + j;
      sign[j] = stream.below(number, 2) == 0 ? 1 : -1;
    }
    double largest = 0;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < documents; ++j) sum += sign[j] * changes[i][j];
      largest = std::max(largest, z_of(sum, squares[i]));
    }
    for (std::size_t i = 0; i < changes.size(); ++i) reached[i] += largest >= own[i] * (1 - 1e-12);
  }
  std::vector<double> out;
  for (const int count : reached) out.push_back((1.0 + count) / (1.0 + shuffles));
  return out;
}

AblateReport ablate(OpenedRun& run, const AblateOptions& options) {
  check(run, options);
  const ModelConfig& config = run.recipe.model;
  const AnalysisText text = load_analysis_text(run, options.data, options.max_documents);
  CollectOptions collect;
  collect.max_documents = options.max_documents;
  collect.rows = run.recipe.train.batch;
  collect.predicted_only = true;
  collect.pad_id = run.tokenizer.pad_id();
  collect.eos_id = run.tokenizer.eos_id();
  collect.long_documents = run.recipe.data.long_documents;
  const Choices whole = collect_assignments(*run.model, text.data, collect);
  if (whole.positions() == 0)
    bad_input(Code::data_nothing_to_predict, "{} predicts no token: there is nothing to measure", text.source);
  const auto positions = static_cast<double>(whole.positions());
  const std::vector<std::size_t> classes = predicted_classes(whole, run, text.data);

  AblateReport report;
  report.run = run.paths.folder;
  report.step = run.step;
  report.data = text.source;
  report.documents = text.documents;
  report.positions = whole.positions();
  report.shuffles = options.shuffles;
  for (const double one : whole.nll) report.loss += one / positions;
  std::vector<double> class_count(word_classes, 0);
  for (const std::size_t one : classes) class_count[one] += 1;
  for (const double one : class_count) report.class_shares.push_back(one / positions);

  std::vector<std::vector<double>> changes;
  const int layers = options.layer ? 1 : config.layers, total = layers * config.experts;
  for (int number = 0; number < total && !report.stopped; ++number) {
    KnockOut one;
    one.layer = options.layer.value_or(number / config.experts);
    one.expert = number % config.experts;
    const auto& chosen = whole.layers[static_cast<std::size_t>(one.layer)].experts;
    one.load = static_cast<double>(std::count(chosen.begin(), chosen.end(), one.expert)) * config.experts /
               static_cast<double>(chosen.size());
    std::vector<double> by_document(static_cast<std::size_t>(text.documents), 0), by_class(word_classes, 0);
    {
      const NeverChosen without(*run.model, one.layer, one.expert);
      const Choices other = collect_assignments(*run.model, text.data, collect);
      for (std::size_t t = 0; t < other.nll.size(); ++t) {
        const double change = other.nll[t] - whole.nll[t];
        by_document[static_cast<std::size_t>(whole.document[t])] += change;
        by_class[classes[t]] += change;
      }
    }
    const Change change = change_of(by_document, positions);
    one.change = change.mean;
    one.error = change.error;
    for (std::size_t c = 0; c < by_class.size(); ++c)
      one.by_class.push_back(class_count[c] > 0 ? by_class[c] / class_count[c] : 0);
    one.words = frequent_tokens(whole, run, one.layer, one.expert);
    report.knock_outs.push_back(std::move(one));
    changes.push_back(std::move(by_document));
    if (options.progress) options.progress(number + 1, total);
    report.stopped = options.stop && options.stop() && number + 1 < total;
  }
  const std::vector<double> p = sign_flip_p(changes, options.shuffles, options.seed);
  for (std::size_t i = 0; i < p.size(); ++i) report.knock_outs[i].p = p[i];
  return report;
}

nlohmann::json to_json(const AblateReport& report) {
  const auto classes = [](const std::vector<double>& values) {
    nlohmann::json out = nlohmann::json::object();
    for (std::size_t c = 0; c < values.size(); ++c) out[name_of(static_cast<WordClass>(c))] = values[c];
    return out;
  };
  nlohmann::json list = nlohmann::json::array();
  for (const KnockOut& one : report.knock_outs)
    list.push_back({{"layer", one.layer},
                    {"expert", one.expert},
                    {"load", one.load},
                    {"change", one.change},
                    {"error", one.error},
                    {"p", one.p},
                    {"by_class", classes(one.by_class)},
                    {"words", one.words}});
  return {{"run", report.run},
          {"step", report.step},
          {"data", report.data},
          {"documents", report.documents},
          {"positions", report.positions},
          {"loss", report.loss},
          {"shuffles", report.shuffles},
          {"class_shares", classes(report.class_shares)},
          {"knock_outs", list},
          {"stopped", report.stopped}};
}

}  // namespace some
