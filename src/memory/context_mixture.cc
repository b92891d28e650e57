#include "memory/context_mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "memory/settings.h"

namespace some {
namespace {

constexpr double rate_per_share = 5;  // of the share: exponent-weighted steps towards the targets
// Multiples of the share: the smallest weight, which lets a source recover, and the fixed-share switching rate of the
// sets.
constexpr double floor_per_share = 0.01, set_share_per_share = 0.2;
constexpr std::size_t count_classes = 5, max_sources = 1 + max_betas + max_orders + 1;

// Copying: the probability that it starts at a position, and that it ends.
constexpr double start_of_copying = 0.01, end_of_copying = 0.1;
// Numbers of targets in a row that begin a class, and the pseudocount of each accuracy.
constexpr std::array<std::int64_t, 8> runs{0, 1, 2, 3, 4, 6, 9, 16};
constexpr double assumed_positions = 2, max_positions = 400;

std::size_t class_of_run(std::int64_t run) {
  return static_cast<std::size_t>(std::upper_bound(runs.begin(), runs.end(), run) - runs.begin()) - 1;
}

std::size_t class_of_count(std::int64_t seen, bool certain) {
  if (seen <= 1) return 0;
  if (certain) return seen == 2 ? 1 : 2;
  return seen < 8 ? 3 : 4;
}

}  // namespace

ContextMixture::ContextMixture(int states, int orders, int vocabulary, double share, bool followers)
    : states_(states), orders_(orders), vocabulary_(vocabulary), followers_(followers), share_(share) {
  const std::array<std::size_t, sets> sizes{1, index_of(orders + 1) * count_classes, index_of(sources()),
                                            index_of(vocabulary) + 1};
  for (std::size_t s = 0; s < sets_.size(); ++s) sets_[s].row_of.assign(sizes[s], -1);
  for (std::size_t r = 0; followers && r < runs.size(); ++r) {
    const auto run = static_cast<double>(runs[r]);
    const Accuracy before{assumed_positions * (run + 0.5) / (run + 2), assumed_positions};
    accuracies_.insert(accuracies_.end(), 2 * index_of(orders), before);
  }
  sets_[0].row_of[0] = 0;
  sets_[0].values = {0};
  sets_[0].targets = {0.0};
  sets_[0].weights.assign(index_of(sources()), 1.0 / sources());
  set_weights_.fill(1.0 / sets);
}

std::array<std::size_t, ContextMixture::sets> ContextMixture::values_of(const MixtureContext& context) const {
  return {0, index_of(context.longest + 1) * count_classes + class_of_count(context.seen, context.certain),
          index_of(best_), index_of(context.last + 1)};
}

const double* ContextMixture::row(std::size_t set, std::size_t value) const {
  const std::int32_t found = sets_[set].row_of[value];
  return found < 0 ? sets_[0].weights.data() : sets_[set].weights.data() + index_of(found) * index_of(sources());
}

std::size_t ContextMixture::make_row(std::size_t set, std::size_t value) {
  Set& own = sets_[set];
  if (own.row_of[value] < 0) {
    own.row_of[value] = static_cast<std::int32_t>(own.values.size());
    own.values.push_back(static_cast<std::int32_t>(value));
    own.targets.push_back(0);
    own.weights.insert(own.weights.end(), sets_[0].weights.begin(), sets_[0].weights.end());
  }
  return index_of(own.row_of[value]);
}

double ContextMixture::copying() const { return copied_ * (1 - end_of_copying) + (1 - copied_) * start_of_copying; }

std::int64_t ContextMixture::kind_of(const MixtureContext& context) const {
  if (!followers_ || !context.certain || context.longest < 0) return -1;
  return static_cast<std::int64_t>((class_of_run(run_) * index_of(orders_) + index_of(context.longest)) * 2 +
                                   (context.seen > 1 ? 1 : 0));
}

void ContextMixture::weights(const MixtureContext& context, std::span<double> out) const {
  blend(context, out);
  const std::int64_t kind = kind_of(context);
  if (kind < 0) return;
  const Accuracy& accuracy = accuracies_[index_of(kind)];
  const double follower = copying() * accuracy.right / accuracy.all;
  for (double& weight : out) weight *= 1 - follower;
  out.back() += follower;
}

void ContextMixture::blend(const MixtureContext& context, std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);
  const auto values = values_of(context);
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    const double* own = row(s, values[s]);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += set_weights_[s] * own[i];
  }
}

double ContextMixture::learn(const MixtureContext& context, std::span<const double> probabilities) {
  const std::size_t count = index_of(sources());
  const double floor = std::max(1e-12, floor_per_share * share_), set_share = set_share_per_share * share_;
  std::array<double, max_sources> mixed;
  weights(context, std::span(mixed).first(count));
  double out = 0;
  for (std::size_t i = 0; i < count; ++i) out += mixed[i] * probabilities[i];
  double blended = 0;  // without copying
  blend(context, std::span(mixed).first(count));
  for (std::size_t i = 0; i < count; ++i) blended += mixed[i] * probabilities[i];
  const auto values = values_of(context);
  std::array<double, sets> answers{};
  // The first set is updated last: new rows of the other sets start from its weights before this target.
  for (std::size_t s = sets_.size(); s-- > 0;) {
    const std::size_t index = make_row(s, values[s]);
    double* own = sets_[s].weights.data() + index * count;
    for (std::size_t i = 0; i < count; ++i) answers[s] += own[i] * probabilities[i];
    double& targets = sets_[s].targets[index];
    targets += 1;
    const double step = std::max(std::min(0.5, rate_per_share * share_), 1 / (targets + 1.5));
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      own[i] = std::max(floor, (1 - step) * own[i] + step * (own[i] * probabilities[i] / answers[s]));
      sum += own[i];
    }
    for (std::size_t i = 0; i < count; ++i) own[i] /= sum;
  }
  double sum = 0;
  for (std::size_t s = 0; s < answers.size(); ++s) sum += set_weights_[s] *= answers[s];
  for (double& weight : set_weights_) weight = (1 - set_share) * (weight / sum) + set_share / sets;
  best_ = static_cast<int>(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
  if (!followers_) return out;
  const std::int64_t kind = kind_of(context);
  copied_ = copying();
  if (kind < 0) {
    run_ = 0;
    return out;
  }
  Accuracy& accuracy = accuracies_[index_of(kind)];
  const double right = probabilities.back(), share = accuracy.right / accuracy.all;
  copied_ = std::min(1.0, copied_ * ((1 - share) * blended + share * right) / out);
  run_ = right >= 0.5 ? run_ + 1 : 0;
  accuracy.right += right;
  accuracy.all += 1;
  if (accuracy.all > max_positions) {
    accuracy.right /= 2;
    accuracy.all /= 2;
  }
  return out;
}

std::vector<double> ContextMixture::state() const {
  std::vector<double> out(set_weights_.begin(), set_weights_.end());
  out.push_back(best_);
  for (const Set& set : sets_) {
    out.push_back(static_cast<double>(set.values.size()));
    out.insert(out.end(), set.values.begin(), set.values.end());
    out.insert(out.end(), set.targets.begin(), set.targets.end());
    out.insert(out.end(), set.weights.begin(), set.weights.end());
  }
  if (!followers_) return out;
  out.push_back(copied_);
  out.push_back(static_cast<double>(run_));
  for (const Accuracy& one : accuracies_) {
    out.push_back(one.right);
    out.push_back(one.all);
  }
  return out;
}

void ContextMixture::restore(std::span<const double> state, int stored, const std::string& where) {
  ContextMixture out(states_, orders_, vocabulary_, share_, followers_);
  std::size_t index = 0;
  const auto damaged = [&] {
    bad_input(Code::memory_damaged, "{}: the weights of the mixture are damaged (number {} of {}); restore a copy",
              where, index, state.size());
  };
  const auto next = [&](double low, double high) {
    if (index >= state.size() || !(state[index] >= low && state[index] <= high)) damaged();
    return state[index++];
  };
  for (double& one : out.set_weights_) one = next(0, 1.001);
  out.best_ = static_cast<int>(next(0, stored - 1));
  for (Set& set : out.sets_) {
    const auto rows = index_of(next(0, static_cast<double>(set.row_of.size())));
    std::fill(set.row_of.begin(), set.row_of.end(), -1);
    set.values.clear();
    for (std::size_t r = 0; r < rows; ++r) {
      const auto value = index_of(next(0, static_cast<double>(set.row_of.size() - 1)));
      if (set.row_of[value] >= 0) damaged();
      set.row_of[value] = static_cast<std::int32_t>(r);
      set.values.push_back(static_cast<std::int32_t>(value));
    }
    set.targets.resize(rows);
    for (double& one : set.targets) one = next(0, 1e15);
    set.weights.assign(rows * index_of(out.sources()), 0.0);
    for (std::size_t r = 0; r < rows; ++r) {
      for (int i = 0; i < stored; ++i) set.weights[r * index_of(out.sources()) + index_of(i)] = next(0, 1.001);
    }
  }
  if (followers_ && stored == out.sources()) {
    out.copied_ = next(0, 1);
    out.run_ = static_cast<std::int64_t>(next(0, 1e15));
    for (Accuracy& one : out.accuracies_) {
      one.right = next(0, 1e3);
      one.all = next(0.5, 1e3);
      if (one.right > one.all) damaged();
    }
  }
  if (index != state.size() || out.sets_[0].values.size() != 1) damaged();
  *this = std::move(out);
}

std::span<const std::int32_t> context_before(std::span<const std::int32_t> tokens, std::int64_t t, int longest,
                                             std::optional<std::int32_t> border) {
  std::int64_t begin = t;
  const auto begins_document = [&](std::int64_t i) {
    return border && i > 0 && tokens[static_cast<std::size_t>(i - 1)] == *border;
  };
  while (begin > 0 && t - begin < longest && (begin == t || !begins_document(begin))) --begin;
  return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(t - begin));
}

MixtureContext mixture_context(const ContextMatch& match, std::span<const std::int32_t> before) {
  MixtureContext out;
  out.longest = match.longest;
  out.seen = match.seen;
  out.certain = match.certain;
  out.last = before.empty() ? -1 : before.back();
  return out;
}

double mix_position(const ContextStore& contexts, ContextMixture& mixture, std::span<const std::int32_t> before,
                    std::int32_t target, double model, std::span<const double> states) {
  std::array<double, max_sources> sources;
  const ContextMatch match = contexts.find(before);
  sources[0] = std::max(std::exp(-model), std::numeric_limits<double>::min());
  std::copy(states.begin(), states.end(), sources.begin() + 1);
  const std::size_t first = 1 + states.size(), orders = static_cast<std::size_t>(contexts.settings().orders());
  contexts.estimate(match, target, std::span(sources).subspan(first, orders));
  sources[first + orders] = follower_estimate(match, target, sources[first + orders - 1]);
  return -std::log(mixture.learn(mixture_context(match, before), std::span(sources).first(first + orders + 1)));
}

}  // namespace some
