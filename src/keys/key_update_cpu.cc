// The key update of spec 4 on the CPU: the sums of a step in, the moved keys out. Rows are kept in double precision
// from the first movement to the constraint and rounded once. Every expert's row has one owner and a fixed order, so
// threads change nothing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "keys/key_store.h"
#include "keys/rules.h"

namespace some::keys::cpu {
namespace {

constexpr std::int64_t kPieceWork = 1 << 15;

double length_of(const double* row, std::int64_t d) {
  double square = 0.0;
  for (std::int64_t j = 0; j < d; ++j) square += row[j] * row[j];
  return std::sqrt(square);
}

void scale(double* row, std::int64_t d, double factor) {
  for (std::int64_t j = 0; j < d; ++j) row[j] *= factor;
}

template <typename T>
class Update {
 public:
  Update(Context& ctx, KeyState& state, const KeySums& sums, const KeySettings& settings, const UpdateOptions& options)
      : ctx_(ctx),
        state_(state),
        sums_(sums),
        settings_(settings),
        options_(options),
        experts_(state.keys.dim(0)),
        d_(state.keys.dim(1)),
        top_k_(sums.slot_counts.dim(1)),
        positions_(sums.positions.data<std::int64_t>()[0]),
        usage_(state.usage.data<T>()) {}

  void run() {
    ArenaScope scope(*ctx_.arena);
    keys_ = ctx_.scratch({experts_, d_}, DType::f64).template data<double>();
    pulled_ = ctx_.scratch({experts_, d_}, DType::f64).template data<double>();
    std::copy_n(state_.keys.data<T>(), experts_ * d_, keys_);
    count_choices();
    update_usage();
    if (settings_.use_alpha) attract();
    if (settings_.use_beta && options_.beta != 0.0) pull_peers();
    if (settings_.clip_delta > 0.0) clip_movement();
    if (settings_.constraint_order == ConstraintOrder::before_decay) constrain();
    if (settings_.use_delta && state_.steps > settings_.decay_warmup) decay();
    if (settings_.constraint_order == ConstraintOrder::last) constrain();
    std::copy_n(keys_, experts_ * d_, state_.keys.data<T>());
    if (settings_.key_ema > 0.0) average();
    std::int64_t* counts = state_.counts.data<std::int64_t>();
    counts[2] = 0;
    counts[3] = positions_;
    if (settings_.respawn_threshold > 0.0) rebirth(counts);
  }

 private:
  // Pieces of about the same work, whose borders depend on the shapes alone; small stores are not worth waking threads
  // for.
  template <typename Body>
  void for_each_expert(std::int64_t work_each, Body&& body) {
    parallel_chunks(*ctx_.threads, experts_, std::max<std::int64_t>(1, kPieceWork / work_each),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t e = begin; e < end; ++e) body(e);
                    });
  }

  double* key(std::int64_t e) { return keys_ + e * d_; }
  const std::int32_t* slot_counts(std::int64_t e) const { return sums_.slot_counts.data<std::int32_t>() + e * top_k_; }

  void count_choices() {
    chosen_.resize(static_cast<std::size_t>(experts_));
    std::int64_t total = 0;
    for (std::int64_t e = 0; e < experts_; ++e) {
      std::int64_t& c = chosen_[static_cast<std::size_t>(e)];
      for (std::int64_t i = 0; i < top_k_; ++i) c += slot_counts(e)[i];
      total += c;
    }
    // E / (P k), and right as well while fewer than k are chosen (rules.h).
    if (settings_.usage == Usage::flux) factor_ = static_cast<double>(experts_) / static_cast<double>(total);
  }

  void update_usage() {  // spec 4.2
    const double keep = settings_.usage == Usage::cumulative ? 1.0 : settings_.ema_decay;
    const double take = settings_.usage == Usage::cumulative ? 1.0 : 1.0 - settings_.ema_decay;
    T* mass = state_.mass.data<T>();
    const T* gates = sums_.gate_sums.data<T>();
    for (std::int64_t e = 0; e < experts_; ++e) {
      usage_[e] = static_cast<T>(keep * usage_[e] +
                                 take * (factor_ * static_cast<double>(chosen_[static_cast<std::size_t>(e)])));
      mass[e] = static_cast<T>(keep * mass[e] + take * (factor_ * gates[e]));
    }
  }

  void attract() {  // spec 4.3
    for_each_expert(top_k_ * d_, [&](std::int64_t e) {
      const double a = std::max(settings_.alpha / (1.0 + usage_[e]), settings_.alpha_floor);
      double* row = key(e);
      for (std::int64_t i = 0; i < top_k_; ++i) {
        if (slot_counts(e)[i] == 0) continue;
        const double n = factor_ * slot_counts(e)[i];
        const T* sum = sums_.query_sums.data<T>() + (e * top_k_ + i) * d_;
        for (std::int64_t j = 0; j < d_; ++j) row[j] += a * (factor_ * sum[j] - n * row[j]);
      }
    });
  }

  // spec 4.4: reads the snapshot keys_, writes pulled_. sum_f w (K[f] - K[e]) = sum_f w K[f] - (sum_f w) K[e].
  void pull_peers() {
    const std::int32_t* together = sums_.together.data<std::int32_t>();
    for_each_expert(experts_ * d_, [&](std::int64_t e) {
      std::vector<std::pair<double, const double*>> peers;
      double total = 0.0;
      for (std::int64_t f = 0; f < experts_; ++f) {
        const std::int32_t count = together[e * experts_ + f];
        if (count == 0 || f == e) continue;
        const double mine = 1.0 + usage_[e], theirs = 1.0 + usage_[f];
        const double inertia =
            settings_.beta_inertia == BetaInertia::min ? std::min(mine, theirs) : std::max(mine, theirs);
        const double weight = factor_ * count * options_.beta / inertia;
        peers.emplace_back(weight, key(f));
        total += weight;
      }
      const double* row = key(e);
      double* out = pulled_ + e * d_;
      for (std::int64_t j = 0; j < d_; ++j) out[j] = row[j] - total * row[j];
      std::size_t n = 0;
      for (; n + 4 <= peers.size(); n += 4) {  // four at a time: the row is read and written a quarter as often
        const auto [wa, a] = peers[n];
        const auto [wb, b] = peers[n + 1];
        const auto [wc, c] = peers[n + 2];
        const auto [wf, f] = peers[n + 3];
        for (std::int64_t j = 0; j < d_; ++j) out[j] += (wa * a[j] + wb * b[j]) + (wc * c[j] + wf * f[j]);
      }
      for (; n < peers.size(); ++n) {
        const auto [weight, peer] = peers[n];
        for (std::int64_t j = 0; j < d_; ++j) out[j] += weight * peer[j];
      }
    });
    std::swap(keys_, pulled_);
  }

  void clip_movement() {  // spec 4.5; state_.keys still holds the rows from before 4.3
    for_each_expert(d_, [&](std::int64_t e) {
      const T* before = state_.keys.data<T>() + e * d_;
      double* row = key(e);
      double square = 0.0;
      for (std::int64_t j = 0; j < d_; ++j) square += (row[j] - before[j]) * (row[j] - before[j]);
      const double moved = std::sqrt(square);
      if (moved <= settings_.clip_delta) return;
      const double shorter = settings_.clip_delta / moved;
      for (std::int64_t j = 0; j < d_; ++j) row[j] = before[j] + (row[j] - before[j]) * shorter;
    });
  }

  void constrain() {  // spec 4.6
    if (settings_.constraint == Constraint::free) return;
    for_each_expert(d_, [&](std::int64_t e) {
      if (settings_.constraint == Constraint::normalize_used && chosen_[static_cast<std::size_t>(e)] == 0) return;
      const double length = length_of(key(e), d_);
      if (settings_.constraint == Constraint::clamp && length <= 1.0) return;
      scale(key(e), d_, 1.0 / std::max(length, kSmallestLength));
    });
  }

  double threshold() const {  // theta
    if (settings_.theta >= 0.0) return settings_.theta;
    std::vector<double> used;
    for (std::int64_t e = 0; e < experts_; ++e) {
      if (usage_[e] > 0) used.push_back(usage_[e]);
    }
    if (used.empty()) return 0.0;  // no usage lies below it
    std::sort(used.begin(), used.end());
    const double place = std::clamp(settings_.theta_percentile, 0.0, 1.0) * static_cast<double>(used.size() - 1);
    const std::size_t low = static_cast<std::size_t>(place), high = std::min(low + 1, used.size() - 1);
    return used[low] + (place - static_cast<double>(low)) * (used[high] - used[low]);
  }

  void decay() {  // spec 4.7
    const double theta = threshold();
    for (std::int64_t e = 0; e < experts_; ++e) {
      if (usage_[e] < theta) scale(key(e), d_, 1.0 - settings_.delta);
    }
  }

  void average() {  // spec 4.8
    T* mean = state_.average.data<T>();
    const double keep = settings_.key_ema;
    for (std::int64_t j = 0; j < experts_ * d_; ++j) mean[j] = static_cast<T>(keep * mean[j] + (1.0 - keep) * keys_[j]);
  }

  void rebirth(std::int64_t* counts) {  // spec 4.9
    std::vector<std::int64_t> dead;
    for (std::int64_t e = 0; e < experts_; ++e) {
      if (length_of(key(e), d_) < settings_.respawn_threshold) dead.push_back(e);
    }
    const std::int64_t deaths = static_cast<std::int64_t>(dead.size());
    counts[1] += deaths;
    counts[2] = deaths;
    if (deaths > positions_) return;
    counts[0] += deaths;
    for (std::int64_t n = 0; n < deaths; ++n) {
      const std::int64_t e = dead[static_cast<std::size_t>(n)];
      const T* query = sums_.sample_queries.data<T>() + n * d_;
      double* row = key(e);
      for (std::int64_t j = 0; j < d_; ++j) row[j] = query[j] + rebirth_noise(options_.stream, e, d_, j);
      scale(row, d_, 1.0 / std::max(length_of(row, d_), kSmallestLength));
      std::copy_n(row, d_, state_.keys.data<T>() + e * d_);
      if (settings_.key_ema > 0.0) std::copy_n(row, d_, state_.average.data<T>() + e * d_);
      usage_[e] = 0;
      state_.mass.data<T>()[e] = 0;
    }
  }

  Context& ctx_;
  KeyState& state_;
  const KeySums& sums_;
  const KeySettings& settings_;
  const UpdateOptions& options_;
  std::int64_t experts_, d_, top_k_, positions_;
  T* usage_;
  double factor_ = 1.0;               // on every sum of the step; not 1 for flux
  std::vector<std::int64_t> chosen_;  // c[e], before the factor
  double* keys_ = nullptr;
  double* pulled_ = nullptr;
};

void update_layer(Context& ctx, KeyState& state, const KeySums& sums, const KeySettings& settings,
                  const UpdateOptions& options) {
  if (settings.key_ema > 0.0 && !state.average)
    failed("key_ema is {}, but this key store was made without a running mean", settings.key_ema);
  if (settings.respawn_threshold > 0.0 && !sums.sample_priority) {
    failed("respawn_threshold is {}, but these key sums were made without a sample of queries",
           settings.respawn_threshold);
  }
  ++state.steps;  // spec 4.1
  if (sums.positions.data<std::int64_t>()[0] == 0) {
    std::fill_n(state.counts.data<std::int64_t>() + 2, 2, std::int64_t{0});
    return;
  }
  if (state.keys.dtype() == DType::f64) {
    Update<double>(ctx, state, sums, settings, options).run();
  } else {
    Update<float>(ctx, state, sums, settings, options).run();
  }
}

}  // namespace

void update_keys(Context& ctx, std::span<const LayerUpdate> layers, const KeySettings& settings) {
  for (const LayerUpdate& layer : layers) update_layer(ctx, *layer.state, *layer.sums, settings, layer.options);
}

}  // namespace some::keys::cpu
