// Returns values of a setting that differ from its current one, for tests over all settings.
#pragma once

#include <vector>

#include "core/setting.h"

namespace some {

inline std::vector<SettingValue> other_values(const SettingInfo& setting, const SettingValue& now, int layers) {
  std::vector<SettingValue> out;
  const auto keep = [&](const SettingValue& value) {
    if (value != now) out.push_back(value);
  };
  switch (setting.kind) {
    case SettingKind::boolean: keep(!std::get<bool>(now)); break;
    case SettingKind::integer:
      for (const std::int64_t value : {1, 2, 3, 7}) {
        if (setting.contains(static_cast<double>(value))) keep(value);
      }
      break;
    case SettingKind::number:
      for (const double value : {0.0, 0.35, 0.6}) {
        if (setting.contains(value)) keep(value);
      }
      break;
    case SettingKind::text: keep(std::string("another")); break;
    case SettingKind::choice:
      for (const std::string& choice : setting.choices) keep(choice);
      break;
    case SettingKind::numbers: keep(std::vector<double>{0.125, 0.5}); break;
    case SettingKind::integers:
      keep(std::vector<double>{});
      keep(std::vector<double>{0});
      break;
    case SettingKind::layer_scale: keep(std::vector<double>(static_cast<std::size_t>(layers), 0.25)); break;
    case SettingKind::anneal:
      keep(Anneal{});
      keep(Anneal{AnnealShape::cosine, 1.0, 0.2});
      break;
  }
  return out;
}

}  // namespace some
