#include "compress/model_predictor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/logistic.h"
#include "compress/saved_state.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/instruction_set.h"
#include "runs/run.h"

namespace some {

namespace {

constexpr int probe_steps = 6;
constexpr double mixture_share = 0.01;  // as in the memory's settings
constexpr std::int64_t context_entries = 1 << 20;

// Converts logits to integer weights of at least 1. Exact except for one floating-point subtraction.
void weigh(const double* logits, const TokenTree& tree, WeightSums& sums) {
  sums.resize(static_cast<std::size_t>(tree.size()) + 1);
  double highest = -INFINITY;
  for (int place = 0; place < tree.size(); ++place) {
    const double logit = logits[tree.token(place)];
    if (!std::isfinite(logit))
      failed(Code::loss_not_finite,
             "the model's logits are not finite, so this checkpoint is unusable; use an earlier one with --checkpoint "
             "STEP");
    highest = std::max(highest, logit);
  }
  std::uint64_t sum = 0;
  for (int place = 0; place < tree.size(); ++place) {
    sums[static_cast<std::size_t>(place)] = sum;
    const double below = (highest - logits[tree.token(place)]) * 65536.0;
    sum += 1 + (exp_minus(below < 1e9 ? static_cast<std::uint64_t>(below) : 1000000000) >> 4);
  }
  sums.back() = sum;
}

}  // namespace

ModelPredictor::ModelPredictor(Model& model, const Tokenizer& tokenizer, const TokenTree& tree, int parts)
    : model_(model),
      tree_(tree),
      capacity_(model.config().seq_len),
      cache_(model.make_cache(parts, capacity_)),
      vocabulary_(model.config().vocab),
      contexts_(ContextSettings{.entries = context_entries}, model.config().vocab),
      mixture_(0, contexts_.settings().orders(), model.config().vocab, mixture_share, false),
      positions_(static_cast<std::size_t>(parts)) {
  if (capacity_ < 2)
    bad_input(Code::model_unsuitable,
              "this run has a context of one token (model.seq_len = 1) and cannot predict a text; use --portable");
  // A text begins like a new document after an end-of-text token.
  windows_.assign(static_cast<std::size_t>(parts * capacity_), 0);
  lengths_.assign(static_cast<std::size_t>(parts), 1);
  for (int part = 0; part < parts; ++part) windows_[static_cast<std::size_t>(part * capacity_)] = tokenizer.eos_id();
}

void ModelPredictor::predict(std::span<const int> parts, std::vector<std::vector<WeightSums>>& result) {
  std::vector<std::int32_t> tokens, slots, positions, wanted;
  for (const int part : parts) {
    const std::int64_t length = lengths_[static_cast<std::size_t>(part)];
    tokens.push_back(windows_[static_cast<std::size_t>(part * capacity_ + length - 1)]);
    slots.push_back(part);
    positions.push_back(static_cast<std::int32_t>(length - 1));
    wanted.push_back(static_cast<std::int32_t>(wanted.size()));
  }
  model_.context().arena->reset();
  logits_ = read_vector(model_.decode(cache_, tokens, slots, positions, wanted, {}));
  result.resize(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    result[i].resize(distributions);
    weigh(logits_.data() + i * static_cast<std::size_t>(vocabulary_), tree_, result[i][0]);
    mix(parts[i], result[i][0], result[i][1]);
  }
}

// Mixes the model's distribution with those of the contexts.
void ModelPredictor::mix(int part, const WeightSums& model, WeightSums& mixed) {
  Position& position = positions_[static_cast<std::size_t>(part)];
  const auto places = static_cast<std::size_t>(tree_.size()), vocabulary = static_cast<std::size_t>(vocabulary_);
  std::vector<double>& probability = position.probabilities;
  position.match = contexts_.find(position.before);
  contexts_.distributions(position.match, probability);
  probability.insert(probability.begin(), vocabulary, 0.0);
  for (std::size_t place = 0; place < places; ++place) {
    probability[static_cast<std::size_t>(tree_.token(static_cast<int>(place)))] =
        static_cast<double>(model[place + 1] - model[place]) / static_cast<double>(model.back());
  }
  position.mixture.longest = position.match.longest;
  position.mixture.seen = position.match.seen;
  position.mixture.certain = position.match.certain;
  position.mixture.last = position.before.empty() ? -1 : position.before.back();
  std::vector<double> weights(static_cast<std::size_t>(mixture_.sources()));
  mixture_.weights(position.mixture, weights);
  mixed.resize(places + 1);
  std::uint64_t sum = 0;
  for (std::size_t place = 0; place < places; ++place) {
    const auto token = static_cast<std::size_t>(tree_.token(static_cast<int>(place)));
    double p = 0;
    for (std::size_t source = 0; source < weights.size(); ++source)
      p += weights[source] * probability[source * vocabulary + token];
    mixed[place] = sum;
    sum += 1 + static_cast<std::uint64_t>(p * 268435456.0);
  }
  mixed.back() = sum;
}

void ModelPredictor::append(int part, int place) {
  std::int32_t* window = windows_.data() + part * capacity_;
  std::int64_t& length = lengths_[static_cast<std::size_t>(part)];
  if (length == capacity_) {
    // The window is full: drops its first half and reads the rest again at new positions.
    const std::int64_t kept = std::max<std::int64_t>(1, capacity_ / 2);
    std::copy(window + capacity_ - kept, window + capacity_, window);
    length = kept;
    std::vector<std::int32_t> tokens(window, window + kept), slots(static_cast<std::size_t>(kept), part), positions;
    for (std::int64_t i = 0; i < kept; ++i) positions.push_back(static_cast<std::int32_t>(i));
    model_.context().arena->reset();
    model_.decode(cache_, tokens, slots, positions, {0}, {});
  }
  const std::int32_t token = tree_.token(place);
  window[length++] = token;

  Position& position = positions_[static_cast<std::size_t>(part)];
  std::vector<double> probabilities(static_cast<std::size_t>(mixture_.sources()));
  for (std::size_t source = 0; source < probabilities.size(); ++source)
    probabilities[source] =
        position.probabilities[source * static_cast<std::size_t>(vocabulary_) + static_cast<std::size_t>(token)];
  mixture_.learn(position.mixture, probabilities);
  contexts_.learn(position.before, token, -1);
  position.before.push_back(token);
  if (std::ssize(position.before) > contexts_.settings().longest) position.before.erase(position.before.begin());
}

std::vector<StateField> ModelPredictor::state() {
  std::vector<StateField> fields = {{"windows", windows_.data(), windows_.size() * sizeof(windows_[0])},
                                    {"lengths", lengths_.data(), lengths_.size() * sizeof(lengths_[0])}};
  for (std::size_t i = 0; i < cache_.layers.size(); ++i)
    fields.push_back({fmt::format("cache.{}", i), cache_.layers[i].raw(), cache_.layers[i].bytes()});
  for (std::size_t i = 0; i < cache_.states.size(); ++i)
    fields.push_back({fmt::format("states.{}", i), cache_.states[i].raw(), cache_.states[i].bytes()});
  return fields;
}

bool ModelPredictor::state_valid() const {
  const auto is_token = [this](std::int32_t token) { return token >= 0 && token < vocabulary_; };
  return std::all_of(windows_.begin(), windows_.end(), is_token) &&
         std::all_of(lengths_.begin(), lengths_.end(),
                     [this](std::int64_t length) { return length >= 1 && length <= capacity_; });
}

namespace {

// Stores lists of plain numbers one after another.
template <typename Number>
void put(std::string& bytes, const std::vector<Number>& list) {
  const std::uint64_t size = list.size();
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(reinterpret_cast<const char*>(list.data()), size * sizeof(Number));
}
template <typename Number>
void take(std::string_view& bytes, std::vector<Number>& list, const std::string& where) {
  std::uint64_t size = 0;
  const auto check = [&](bool fits) {
    if (!fits) state_damaged(where);
  };
  check(bytes.size() >= sizeof(size));
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  check(size <= bytes.size() / sizeof(Number));
  list.resize(size);
  std::memcpy(list.data(), bytes.data(), size * sizeof(Number));
  bytes.remove_prefix(size * sizeof(Number));
}

}  // namespace

std::string ModelPredictor::memory() const {
  std::string bytes;
  for (const Position& position : positions_) put(bytes, position.before);
  const ContextStore::State contexts = contexts_.state();
  put(bytes, contexts.nodes);
  put(bytes, contexts.entries);
  put(bytes, contexts.usage);
  put(bytes, contexts.places);
  put(bytes, contexts.counts_of_counts);
  put(bytes, std::vector<double>{contexts.unit});
  put(bytes, std::vector<std::int64_t>{contexts.evicted});
  put(bytes, mixture_.state());
  return bytes;
}

void ModelPredictor::restore_memory(const std::string& bytes, const std::string& where) {
  std::string_view left = bytes;
  for (Position& position : positions_) {
    take(left, position.before, where);
    if (std::ssize(position.before) > contexts_.settings().longest ||
        std::any_of(position.before.begin(), position.before.end(),
                    [this](std::int32_t token) { return token < 0 || token >= vocabulary_; }))
      state_damaged(where);
  }
  ContextStore::State contexts;
  std::vector<double> unit, mixture;
  std::vector<std::int64_t> evicted;
  take(left, contexts.nodes, where);
  take(left, contexts.entries, where);
  take(left, contexts.usage, where);
  take(left, contexts.places, where);
  take(left, contexts.counts_of_counts, where);
  take(left, unit, where);
  take(left, evicted, where);
  take(left, mixture, where);
  if (unit.size() != 1 || evicted.size() != 1 || !left.empty()) state_damaged(where);
  contexts.unit = unit[0];
  contexts.evicted = evicted[0];
  contexts_ = ContextStore::restore(contexts_.settings(), static_cast<int>(vocabulary_), contexts, where);
  mixture_.restore(mixture, mixture_.sources(), where);
}

std::string describe_arithmetic(const Context& ctx) {
  return fmt::format("{}; {}", instruction_set(), computed_by(ctx));
}

std::uint64_t probe_arithmetic(Model& model, const Tokenizer& tokenizer, const TokenTree& tree, int parts) {
  ModelPredictor predictor(model, tokenizer, tree, parts);
  std::vector<int> all;
  for (int part = 0; part < parts; ++part) all.push_back(part);
  std::vector<std::vector<WeightSums>> result;
  std::uint64_t hash = 0;
  int place = 0;
  for (int step = 0; step < probe_steps; ++step) {
    predictor.predict(all, result);
    hash = hash_bytes(predictor.logits().data(), predictor.logits().size_bytes(), hash);
    for (int part = 0; part < parts; ++part) {
      place = (place * 31 + 17) % tree.size();
      predictor.append(part, place);
    }
  }
  return hash;
}

}  // namespace some
