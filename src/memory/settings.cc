#include "memory/settings.h"

#include <cmath>

#include "base/error.h"

namespace some::memory {

void check_settings(const MemorySettings& settings, const std::string& where) {
  const auto within = [&](const char* name, double value, double low, double high, const char* right) {
    if (!(value >= low && value <= high)) bad_input("{}{}: {} is none; say {}", where, name, value, right);
  };
  if (settings.slots < 1 || settings.slots > most_slots)
    bad_input("{}slots: {} is none; say a number of slots from 1 to {}", where, settings.slots, most_slots);
  within("match", settings.match, -1, never_match, "a number from -1 to 1, or 2: nothing is ever merged");
  if (settings.sharpness.empty() || settings.sharpness.size() > most_sharpnesses)
    bad_input("{}sharpness: say 1 to {} numbers", where, most_sharpnesses);
  for (const double one : settings.sharpness) within("sharpness", one, 0, 1e5, "a number from 0 to 100000");
  within("decay", settings.decay, 0, 1, "a share from 0 to 1");
  within("share", settings.share, 0, 1, "a share from 0 to 1");
  if (settings.window < 0 || settings.window > most_window)
    bad_input("{}window: {} is none; say a number of tokens up to {}, or 0", where, settings.window, most_window);
}

nlohmann::json to_json(const MemorySettings& settings) {
  return {{"slots", settings.slots},  {"match", settings.match}, {"sharpness", settings.sharpness},
          {"decay", settings.decay},  {"share", settings.share}, {"counts", settings.counts},
          {"window", settings.window}};
}

MemorySettings settings_from(const JsonObject& object) {
  MemorySettings settings;
  settings.slots = object.need<std::int64_t>("slots");
  settings.match = object.need<double>("match");
  settings.sharpness = object.need<std::vector<double>>("sharpness");
  settings.decay = object.need<double>("decay");
  settings.share = object.need<double>("share");
  settings.counts = object.need<bool>("counts");
  settings.window = object.need<std::int64_t>("window");
  check_settings(settings, object.origin() + ": ");
  return settings;
}

}  // namespace some::memory
