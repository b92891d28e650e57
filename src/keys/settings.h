// Every setting of the key update (spec 4), with the defaults of recipes. Names are those of the [some] table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rooms.h"

namespace some::keys {

enum class Usage { ema, cumulative, flux };
enum class Constraint { normalize, normalize_used, clamp, free };
enum class ConstraintOrder { before_decay, last };
enum class BetaInertia { min, max };
enum class AnnealShape { none, linear, cosine, exponential };

struct BetaAnneal {  // factor on beta over training: from `start` to `end`
  AnnealShape shape = AnnealShape::none;
  double start = 1.0;
  double end = 1.0;
  double at(double progress) const;  // progress in [0, 1]
};

struct KeySettings {
  double alpha = 0.01, beta = 0.005, delta = 0.001;
  bool use_alpha = true, use_beta = true, use_delta = true;
  double alpha_floor = 0.0;
  BetaInertia beta_inertia = BetaInertia::min;
  BetaAnneal beta_anneal;
  std::vector<double> beta_layer_scale;  // empty: 1 everywhere; otherwise one number a layer (study D1)
  double clip_delta = 0.0;               // 0: never
  Usage usage = Usage::ema;
  double ema_decay = 0.99;
  double theta_percentile = 0.05;
  double theta = -1.0;  // >= 0: absolute threshold instead of the percentile
  std::int64_t decay_warmup = 400;
  Constraint constraint = Constraint::normalize;
  ConstraintOrder constraint_order = ConstraintOrder::before_decay;
  double key_ema = 0.0;  // 0: route by the keys themselves
  double respawn_threshold = 0.0;
  std::vector<int> frozen_layers;  // study D2
  std::int64_t update_every = 1;
  double update_fraction = 1.0;
};

}  // namespace some::keys
