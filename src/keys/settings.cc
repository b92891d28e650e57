#include "keys/settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace some::keys {

double BetaAnneal::at(double progress) const {
  const double p = std::clamp(progress, 0.0, 1.0);
  switch (shape) {
    case AnnealShape::none: return 1.0;
    case AnnealShape::linear: return start + (end - start) * p;
    case AnnealShape::cosine: return end + (start - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * p));
    case AnnealShape::exponential:
      if (start <= 0.0 || end <= 0.0) {
        bad_input(
            "some.beta_anneal: an exponential needs start and end above 0 (have {} and {}); use \"linear\" or "
            "\"cosine\" to reach 0",
            start, end);
      }
      return start * std::pow(end / start, p);
  }
  return 1.0;
}

}  // namespace some::keys
