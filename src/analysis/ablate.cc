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
      bias.data<double>()[place] = never_chosen;
    else
      bias.data<float>()[place] = static_cast<float>(never_chosen);
    keys_.choice_bias = bias.to(model.context().device);
  }
  ~NeverChosen() { keys_.choice_bias = before_; }
  NeverChosen(const NeverChosen&) = delete;
  NeverChosen& operator=(const NeverChosen&) = delete;

 private:
  KeyState& keys_;
  Tensor before_;
};

// Skips the feed-forward block of a layer during the lifetime of the object.
class WithoutBlock {
 public:
  WithoutBlock(Model& model, int layer)
      : layer_(model.layers().at(static_cast<std::size_t>(layer))), block_(std::move(layer_.ffn)) {}
  ~WithoutBlock() { layer_.ffn = std::move(block_); }
  WithoutBlock(const WithoutBlock&) = delete;
  WithoutBlock& operator=(const WithoutBlock&) = delete;

 private:
  Layer& layer_;
  std::unique_ptr<FeedForward> block_;
};

// Routes a layer by other keys during the lifetime of the object.
class OtherKeys {
 public:
  OtherKeys(Model& model, int layer, const Tensor& keys)
      : state_(model.layers().at(static_cast<std::size_t>(layer)).keys),
        keys_(state_.keys),
        average_(std::move(state_.average)) {
    state_.keys = keys.to(model.context().device);
    state_.average = Tensor();
  }
  ~OtherKeys() {
    state_.keys = keys_;
    state_.average = average_;
  }
  OtherKeys(const OtherKeys&) = delete;
  OtherKeys& operator=(const OtherKeys&) = delete;

 private:
  KeyState& state_;
  Tensor keys_, average_;
};

// Returns the initial keys of a layer, keys that moved as far in random directions (with the current norms), and the
// mean distance.
struct Movement {
  Tensor begin, random;
  double distance = 0;
};

Movement movement_of(const Tensor& begin, const Tensor& now, int layer, std::uint64_t seed) {
  const std::vector<double> from = read_vector(begin), to = read_vector(now);
  const std::int64_t experts = begin.dim(0), size = begin.dim(1);
  const RandomStream stream = random_stream(seed, fmt::format("ablate.movement.{}", layer));
  std::vector<double> random(from.size());
  Movement out;
  for (std::int64_t e = 0; e < experts; ++e) {
    double distance = 0, drawn = 0, length = 0, reached = 0;
    const auto first = static_cast<std::size_t>(e * size), last = first + static_cast<std::size_t>(size);
    for (std::size_t i = first; i < last; ++i) {
      random[i] = stream.normal(i);
      distance += (to[i] - from[i]) * (to[i] - from[i]);
      drawn += random[i] * random[i];
      length += to[i] * to[i];
    }
    for (std::size_t i = first; i < last; ++i) {
      random[i] = from[i] + random[i] * std::sqrt(distance / drawn);
      reached += random[i] * random[i];
    }
    for (std::size_t i = first; i < last; ++i) random[i] *= reached > 0 ? std::sqrt(length / reached) : 1;
    out.distance += std::sqrt(distance) / static_cast<double>(experts);
  }
  out.begin = begin;
  out.random = Tensor::empty(begin.shape(), begin.dtype());
  if (begin.dtype() == DType::f64)
    std::copy(random.begin(), random.end(), out.random.data<double>());
  else
    std::transform(random.begin(), random.end(), out.random.data<float>(),
                   [](double value) { return static_cast<float>(value); });
  return out;
}

void check_experts(const OpenedRun& run) {
  const ModelConfig& config = run.recipe.model;
  if (config.routing != RoutingKind::keys)
    bad_input(Code::model_unsuitable, "{} does not choose experts by keys, so none can be disabled", run.paths.folder);
  if (config.top_k >= config.experts)
    bad_input(Code::model_unsuitable, "{}: every token uses all {} experts, so none can be disabled", run.paths.folder,
              config.experts);
}

void check(const OpenedRun& run, const AblateOptions& options) {
  const ModelConfig& config = run.recipe.model;
  if (options.unit == AblateUnit::layer) {
    if (config.ffn == Ffn::none)
      bad_input(Code::model_unsuitable, "{} has no feed-forward blocks: none can be left out", run.paths.folder);
  } else {
    require_experts(run, "knock out");
  }
  if (options.layer) require_layer(config, *options.layer);
  if (options.unit != AblateUnit::layer) check_experts(run);
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

std::vector<std::string> ablate_units() { return {"expert", "layer", "movement"}; }

AblateReport ablate(OpenedRun& run, const AblateOptions& options) {
  check(run, options);
  const ModelConfig& config = run.recipe.model;
  const AnalysisText text = load_analysis_text(run, options.data, options.max_documents);
  const CollectOptions collect = predicted_positions(run, options.max_documents);
  const Choices whole = collect_assignments(*run.model, text.data, collect);
  if (whole.positions() == 0) bad_input(Code::data_nothing_to_predict, "{} has no token to predict", text.source);
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

  std::vector<Movement> movements;
  if (options.unit == AblateUnit::movement) {
    const std::vector<Tensor> begin = load_key_positions(run.paths.folder, run.recipe.run_id, 0, *run.model);
    if (begin.empty())
      bad_input(Code::start_keys_missing,
                "{}/keys/step-0.safetensors not found: the initial keys of the run are unknown", run.paths.folder);
    for (std::size_t i = 0; i < begin.size(); ++i)
      movements.push_back(
          movement_of(begin[i], run.model->layers()[i].keys.routing_keys(), static_cast<int>(i), options.seed));
  }

  std::vector<std::vector<double>> changes;
  const int per_layer = options.unit == AblateUnit::expert ? config.experts : options.unit == AblateUnit::layer ? 1 : 2;
  const int layers = options.layer ? 1 : config.layers, total = layers * per_layer;
  for (int number = 0; number < total && !report.stopped; ++number) {
    KnockOut one;
    one.layer = options.layer.value_or(number / per_layer);
    const auto layer = static_cast<std::size_t>(one.layer);
    std::optional<Choices> other;
    const auto measure = [&] { other = collect_assignments(*run.model, text.data, collect); };
    if (options.unit == AblateUnit::expert) {
      one.unit = "expert";
      one.expert = number % per_layer;
      const auto& chosen = whole.layers[layer].experts;
      one.load = static_cast<double>(std::count(chosen.begin(), chosen.end(), one.expert)) * config.experts /
                 static_cast<double>(chosen.size());
      const NeverChosen without(*run.model, one.layer, one.expert);
      measure();
    } else if (options.unit == AblateUnit::layer) {
      one.unit = "layer";
      const WithoutBlock without(*run.model, one.layer);
      measure();
    } else {
      const bool back = number % per_layer == 0;
      one.unit = back ? "movement" : "random movement";
      one.moved = movements[layer].distance;
      const OtherKeys instead(*run.model, one.layer, back ? movements[layer].begin : movements[layer].random);
      measure();
    }
    std::vector<double> by_document(static_cast<std::size_t>(text.documents), 0), by_class(word_classes, 0);
    for (std::size_t t = 0; t < other->nll.size(); ++t) {
      const double change = other->nll[t] - whole.nll[t];
      by_document[static_cast<std::size_t>(whole.document[t])] += change;
      by_class[classes[t]] += change;
    }
    const Change change = change_of(by_document, positions);
    one.change = change.mean;
    one.error = change.error;
    for (std::size_t c = 0; c < by_class.size(); ++c)
      one.by_class.push_back(class_count[c] > 0 ? by_class[c] / class_count[c] : 0);
    if (one.expert >= 0) one.words = frequent_tokens(whole, run, one.layer, one.expert);
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
  for (const KnockOut& one : report.knock_outs) {
    nlohmann::json& row = list.emplace_back(nlohmann::json{{"unit", one.unit},
                                                           {"layer", one.layer},
                                                           {"change", one.change},
                                                           {"error", one.error},
                                                           {"p", one.p},
                                                           {"by_class", classes(one.by_class)}});
    if (one.expert >= 0) row.update({{"expert", one.expert}, {"load", one.load}, {"words", one.words}});
    if (one.unit.ends_with("movement")) row["moved"] = one.moved;
  }
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
