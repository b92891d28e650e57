#include "memory/settings.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/old_names.h"
#include "core/setting.h"

namespace some {

const std::vector<Setting<MemorySettings>>& memory_settings() {
  static const std::vector<Setting<MemorySettings>> settings = [] {
    SettingList<MemorySettings> list;
    list.integer("slots", &MemorySettings::slots, 0, static_cast<double>(max_slots),
                 "Slots of a memory that is built from the training text after training; 0 = no memory.");
    list.number("threshold", &MemorySettings::threshold, -1, never_match,
                "Cosine threshold for a match with a slot of the same token; 2 = nothing is merged.");
    Setting<MemorySettings>& beta =
        list.sequence("beta", SettingKind::numbers, &MemorySettings::beta, 0,
                      "Inverse temperature of the key products; with several values the mixture learns their weights.");
    beta.high = 1e5;
    for (int n = 1; n <= static_cast<int>(max_betas); ++n) beta.lengths.push_back(n);
    list.number("decay", &MemorySettings::decay, 0, 1, "Decay of slot usage per update.");
    list.number("switch_rate", &MemorySettings::switch_rate, 0, 1,
                "Fixed-share switching rate of the mixture of model and memory, per token.");
    list.number("counts", &MemorySettings::counts, 0, 1,
                "Exponent of a slot's count in its weight; 1 = like as many separate slots, 0 = counts are ignored.");
    list.integer("values", &MemorySettings::values, 1, static_cast<double>(max_values),
                 "Tokens per slot, each with a count; a slot is inserted with one and receives others by merging.");
    list.boolean("merge_evicted", &MemorySettings::merge_evicted,
                 "Merge-on-evict: an evicted slot is merged into its nearest neighbor; false = it is lost.");
    list.integer("partitions", &MemorySettings::partitions, 1, static_cast<double>(max_partitions),
                 "Partitions of the memory; a query searches the nearest; 1 = all slots.");
    list.integer("nprobe", &MemorySettings::nprobe, 1, static_cast<double>(max_partitions),
                 "Partitions searched per query.");
    list.integer("refinement_passes", &MemorySettings::refinement_passes, 0, static_cast<double>(max_refinement_passes),
                 "k-means refinement passes over everything read.");
    list.integer("window", &MemorySettings::window, 0, static_cast<double>(max_window),
                 "Tokens per memory update; 0 = half of model.seq_len, at most 256.");
    list.integer("contexts", &MemorySettings::contexts, 0, longest_context,
                 "Maximum length of counted contexts in tokens; 0 = no contexts.");
    list.integer("context_entries", &MemorySettings::context_entries, static_cast<double>(min_context_entries),
                 static_cast<double>(max_context_entries),
                 "Maximum number of (context, following token) pairs; the least used are evicted.");
    return list.list;
  }();
  return settings;
}

void check_settings(const MemorySettings& settings, const std::string& where) {
  const auto within = [&](const char* name, double value, double low, double high, const char* right) {
    if (!(value >= low && value <= high))
      bad_input(Code::setting_out_of_range, "{}: {} is out of range; use {}", where + name, value, right);
  };
  if (settings.slots < 1 || settings.slots > max_slots)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; use a number of slots from 1 to {}", where + "slots",
              settings.slots, max_slots);
  within("threshold", settings.threshold, -1, never_match, "a number from -1 to 1, or 2 (nothing is merged)");
  if (settings.beta.empty() || settings.beta.size() > max_betas)
    bad_input(Code::setting_out_of_range, "{}: must be 1 to {} numbers", where + "beta", max_betas);
  for (const double one : settings.beta) within("beta", one, 0, 1e5, "a number from 0 to 100000");
  within("decay", settings.decay, 0, 1, "a share from 0 to 1");
  within("switch_rate", settings.switch_rate, 0, 1, "a share from 0 to 1");
  within("counts", settings.counts, 0, 1, "a power from 0 (counts do not matter) to 1");
  if (settings.values < 1 || settings.values > max_values)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; use a number of tokens from 1 to {}",
              where + "values", settings.values, max_values);
  if (settings.partitions < 1 || settings.partitions > max_partitions)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; use a number of partitions from 1 to {}",
              where + "partitions", settings.partitions, max_partitions);
  if (settings.slots % settings.partitions != 0)
    bad_input(Code::setting_out_of_range, "{}: {} slots cannot be divided into {} equal partitions; use a divisor",
              where + "partitions", settings.slots, settings.partitions);
  if (settings.nprobe < 1 || settings.nprobe > max_partitions)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; use a number of partitions from 1 to {}",
              where + "nprobe", settings.nprobe, max_partitions);
  if (settings.refinement_passes < 0 || settings.refinement_passes > max_refinement_passes)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; use a number of passes up to {}",
              where + "refinement_passes", settings.refinement_passes, max_refinement_passes);
  if (settings.window < 0 || settings.window > max_window)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; use a number of tokens up to {}, or 0",
              where + "window", settings.window, max_window);
  if (settings.contexts < 0 || settings.contexts > longest_context)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; must be a number of tokens from 0 (none) to {}",
              where + "contexts", settings.contexts, longest_context);
  if (settings.context_entries < min_context_entries || settings.context_entries > max_context_entries)
    bad_input(Code::setting_out_of_range, "{}: {} is out of range; must be from {} to {}", where + "context_entries",
              settings.context_entries, min_context_entries, max_context_entries);
}

double store_bytes(const MemorySettings& settings, std::int64_t d, std::size_t bytes_of_number) {
  const auto number = static_cast<double>(bytes_of_number), width = static_cast<double>(d);
  const double of_entry = sizeof(std::int32_t) + number + 2 * sizeof(std::int64_t), of_slot = (width + 2) * number;
  const double of_partitions = settings.partitions > 1 ? static_cast<double>(settings.partitions) * width * number : 0;
  const double of_contexts =
      settings.contexts > 0 ? static_cast<double>(settings.context_entries) * ContextStore::bytes_per_entry() : 0;
  return static_cast<double>(settings.slots) * (of_slot + of_entry * static_cast<double>(settings.values)) +
         of_partitions + of_contexts;
}

nlohmann::json to_json(const MemorySettings& settings) {
  nlohmann::json out{
      {"slots", settings.slots},   {"threshold", settings.threshold},         {"beta", settings.beta},
      {"decay", settings.decay},   {"switch_rate", settings.switch_rate},     {"counts", settings.counts},
      {"values", settings.values}, {"merge_evicted", settings.merge_evicted}, {"window", settings.window}};
  if (settings.partitions > 1 || settings.nprobe != MemorySettings{}.nprobe) {
    out["partitions"] = settings.partitions;
    out["nprobe"] = settings.nprobe;
  }
  if (settings.contexts > 0 || settings.context_entries != MemorySettings{}.context_entries) {
    out["contexts"] = settings.contexts;
    out["context_entries"] = settings.context_entries;
  }
  if (settings.refinement_passes > 0) out["refinement_passes"] = settings.refinement_passes;
  if (settings.border) out["document_end"] = *settings.border;
  return out;
}

double counts_from(const JsonObject& object) {
  if (object.has("counts") && object.json().at("counts").is_boolean()) return object.need<bool>("counts") ? 1.0 : 0.0;
  return object.get<double>("counts", MemorySettings{}.counts);
}

MemorySettings settings_from(const JsonObject& stored) {
  const JsonObject object = with_current_settings(stored, "memory");
  MemorySettings settings;
  settings.slots = object.need<std::int64_t>("slots");
  settings.threshold = object.need<double>("threshold");
  settings.beta = object.need<std::vector<double>>("beta");
  settings.decay = object.need<double>("decay");
  settings.switch_rate = object.need<double>("switch_rate");
  settings.counts = counts_from(object);
  // Defaults for memories written before these settings existed.
  settings.values = object.get<std::int64_t>("values", 1);
  settings.merge_evicted = object.get<bool>("merge_evicted", false);
  settings.partitions = object.get<std::int64_t>("partitions", settings.partitions);
  settings.nprobe = object.get<std::int64_t>("nprobe", settings.nprobe);
  settings.refinement_passes = object.get<std::int64_t>("refinement_passes", 0);
  settings.window = object.need<std::int64_t>("window");
  settings.contexts = object.get<std::int64_t>("contexts", 0);
  settings.context_entries = object.get<std::int64_t>("context_entries", settings.context_entries);
  if (object.has("document_end"))
    settings.border = object.need<int>("document_end", 0, std::numeric_limits<int>::max());
  check_settings(settings, object.origin() + ": ");
  return settings;
}

}  // namespace some
