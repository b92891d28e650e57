// Reference implementation of the key update (spec 4), token by token and pair by pair in double precision, without any
// of the sums. Slow and simple: every setting is compared with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/random.h"
#include "keys/key_store.h"
#include "runtime/context.h"

namespace some::test {

using Row = std::vector<double>;

struct Step {  // result of one forward pass
  std::vector<Row> queries;
  std::vector<std::vector<int>> choices;
  std::vector<Row> gates;
  std::vector<std::int32_t> targets;  // empty: every position takes part
  double fraction = 1.0, beta = 0.0;
  RandomStream stream, noise;
  std::int64_t first_position = 0;
};

inline double length(const Row& row) {
  double square = 0;
  for (const double x : row) square += x * x;
  return std::sqrt(square);
}

class Reference {
 public:
  std::vector<Row> keys, average;
  Row usage, mass, bias;
  std::int64_t steps = 0, births = 0, deaths = 0;
  KeySettings settings;

  void update(const Step& step) {
    ++steps;
    std::vector<std::size_t> tokens;
    for (std::size_t t = 0; t < step.queries.size(); ++t) {
      if (!step.targets.empty() && step.targets[t] < 0) continue;
      const double drawn = step.stream.uniform(t + static_cast<std::size_t>(step.first_position));
      if (drawn < step.fraction) tokens.push_back(t);
    }
    if (tokens.empty()) return;
    const std::size_t experts = keys.size(), d = keys[0].size(), top_k = step.choices[0].size();
    double share = 1.0;
    if (settings.usage == Usage::flux)
      share = static_cast<double>(experts) / static_cast<double>(tokens.size() * top_k);

    Row count(experts, 0.0), weight(experts, 0.0);
    for (const std::size_t t : tokens) {
      for (std::size_t i = 0; i < top_k; ++i) {
        count[at(step, t, i)] += share;
        weight[at(step, t, i)] += share * step.gates[t][i];
      }
    }
    for (std::size_t e = 0; e < experts; ++e) {
      if (settings.usage == Usage::cumulative) {
        usage[e] += count[e];
        mass[e] += weight[e];
      } else {
        usage[e] = settings.ema_decay * usage[e] + (1 - settings.ema_decay) * count[e];
        mass[e] = settings.ema_decay * mass[e] + (1 - settings.ema_decay) * weight[e];
      }
    }

    if (settings.use_balance) {
      const double fair = std::accumulate(count.begin(), count.end(), 0.0) / static_cast<double>(experts);
      for (std::size_t e = 0; e < experts; ++e) {
        if (std::fabs(count[e] - fair) > (settings.balance_slack + 1e-9) * fair)
          bias[e] += count[e] < fair ? settings.balance_rate : -settings.balance_rate;
      }
    }

    const std::vector<Row> before = keys;
    if (settings.use_alpha) {
      for (std::size_t slot = 0; slot < top_k; ++slot) {
        const std::vector<Row> start = keys;
        for (const std::size_t t : tokens) {
          const std::size_t e = at(step, t, slot);
          const double a = std::max(settings.alpha / (1 + usage[e]), settings.alpha_floor);
          for (std::size_t j = 0; j < d; ++j) keys[e][j] += a * share * (step.queries[t][j] - start[e][j]);
        }
      }
    }
    if (settings.use_beta) {
      const std::vector<Row> start = keys;
      for (const std::size_t t : tokens) {
        for (std::size_t i = 0; i < top_k; ++i) {
          for (std::size_t other = 0; other < top_k; ++other) {
            const std::size_t e = at(step, t, i), f = at(step, t, other);
            if (e == f) continue;
            const double mine = 1 + usage[e], theirs = 1 + usage[f];
            const double inertia =
                settings.beta_inertia == BetaInertia::min ? std::min(mine, theirs) : std::max(mine, theirs);
            for (std::size_t j = 0; j < d; ++j) keys[e][j] += share * step.beta / inertia * (start[f][j] - start[e][j]);
          }
        }
      }
    }
    if (settings.clip_delta > 0) {
      for (std::size_t e = 0; e < experts; ++e) {
        Row moved(d);
        for (std::size_t j = 0; j < d; ++j) moved[j] = keys[e][j] - before[e][j];
        const double far = length(moved);
        if (far <= settings.clip_delta) continue;
        for (std::size_t j = 0; j < d; ++j) keys[e][j] = before[e][j] + moved[j] * settings.clip_delta / far;
      }
    }
    if (settings.constraint_order == ConstraintOrder::before_decay) constrain(count);
    if (settings.use_delta && steps > settings.decay_warmup) decay();
    if (settings.constraint_order == ConstraintOrder::last) constrain(count);
    if (settings.key_ema > 0) {
      for (std::size_t e = 0; e < experts; ++e) {
        for (std::size_t j = 0; j < d; ++j)
          average[e][j] = settings.key_ema * average[e][j] + (1 - settings.key_ema) * keys[e][j];
      }
    }
    if (settings.respawn_threshold > 0) rebirth(step, tokens);
  }

 private:
  static std::size_t at(const Step& step, std::size_t t, std::size_t i) {
    return static_cast<std::size_t>(step.choices[t][i]);
  }

  void constrain(const Row& count) {
    for (std::size_t e = 0; e < keys.size(); ++e) {
      const double long_ = length(keys[e]);
      const bool apply = settings.constraint == Constraint::normalize ||
                         (settings.constraint == Constraint::normalize_used && count[e] > 0) ||
                         (settings.constraint == Constraint::clamp && long_ > 1);
      if (!apply) continue;
      for (double& x : keys[e]) x /= std::max(long_, 1e-12);
    }
  }

  void decay() {
    Row used;
    for (const double u : usage) {
      if (u > 0) used.push_back(u);
    }
    std::sort(used.begin(), used.end());
    double theta = settings.theta;
    if (theta < 0) {
      if (used.empty()) return;
      const double place = settings.theta_percentile * (static_cast<double>(used.size()) - 1);
      const double low = std::floor(place), high = std::ceil(place);
      theta = used[static_cast<std::size_t>(low)] +
              (place - low) * (used[static_cast<std::size_t>(high)] - used[static_cast<std::size_t>(low)]);
    }
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (usage[e] >= theta) continue;
      for (double& x : keys[e]) x *= 1 - settings.delta;
    }
  }

  void rebirth(const Step& step, const std::vector<std::size_t>& tokens) {
    std::vector<std::size_t> dead;
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (length(keys[e]) < settings.respawn_threshold) dead.push_back(e);
    }
    deaths += static_cast<std::int64_t>(dead.size());
    if (dead.size() > tokens.size()) return;
    births += static_cast<std::int64_t>(dead.size());
    std::vector<std::pair<std::int64_t, std::size_t>> drawn;
    for (const std::size_t t : tokens) {
      drawn.emplace_back(sample_priority(step.stream, step.first_position + static_cast<std::int64_t>(t)), t);
    }
    std::sort(drawn.begin(), drawn.end());
    for (std::size_t n = 0; n < dead.size(); ++n) {
      const std::size_t e = dead[n], d = keys[e].size();
      for (std::size_t j = 0; j < d; ++j) {
        keys[e][j] = step.queries[drawn[n].second][j] + 0.01 * step.noise.normal(e * d + j);
      }
      const double long_ = length(keys[e]);
      for (double& x : keys[e]) x /= long_;
      if (settings.key_ema > 0) average[e] = keys[e];
      usage[e] = mass[e] = bias[e] = 0;
    }
  }
};

}  // namespace some::test
