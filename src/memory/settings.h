// Every setting of a memory (spec 8), with the defaults of recipes. Names are those of the [memory] table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/files/json.h"
#include "memory/contexts.h"

namespace some {
template <typename Owner>
struct Setting;  // core/setting.h
}

namespace some {

// Memory weights (shares) that the mixture ranges over.
inline constexpr std::array<double, 7> mixture_shares = {0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8};
inline constexpr std::int64_t shares_each = static_cast<std::int64_t>(mixture_shares.size());

inline constexpr std::int64_t max_slots = std::int64_t{1} << 26;
inline constexpr std::size_t max_betas = 8;
inline constexpr std::int64_t max_values = 64;
inline constexpr std::int64_t max_window = 8192;  // positions of one update
inline constexpr std::int64_t max_partitions = 4096;
inline constexpr std::int64_t max_refinement_passes = 1000;
inline constexpr double token_affinity = 0.25;  // refinement: factor on the token's fraction of the slot
inline constexpr double never_match = 2.0;      // above any product of unit vectors: a plain cache

struct MemorySettings {
  std::int64_t slots = 4096;
  double threshold = 0.8;  // cosine threshold: a key of the same token with a larger product is matched; above 1: never
  // Inverse temperatures of the key products. Several are evaluated side by side, and the mixture learns their weights.
  std::vector<double> beta = {5.0, 20.0, 80.0};
  double decay = 0.001;       // of usage, per window
  double switch_rate = 0.01;  // fixed-share switching rate: share of the uniform weight mixed in after each token
  double counts = 1.0;        // exponent of a slot's count in its weight; 0 ignores counts (a control)
  std::int64_t values = 8;    // tokens that a slot can hold, each with its count
  bool merge_evicted = true;  // merge-on-evict: an evicted slot is merged into its nearest neighbor; false: it is lost
  // Partitions of equal size for a large store: a query searches only those with the nearest centroids.
  std::int64_t partitions = 1;         // 1: every query is compared with every slot
  std::int64_t nprobe = 8;             // partitions that a query searches; at least the number of partitions: all
  std::int64_t refinement_passes = 0;  // k-means passes after reading a text
  std::int64_t window = 0;             // tokens per update; 0: half of seq_len, at most 256
  // Exact contexts (memory/contexts.h), learned after every token: tokens of the longest one. 0: none.
  std::int64_t contexts = 0;
  std::int64_t context_entries = 131072;  // (context, follower) pairs at most
  // The token that ends a document: each document is then read separately, as in training. Without it a text is one
  // stream.
  std::optional<std::int32_t> border = std::nullopt;

  // Configures a store in which nothing is matched or merged, so that the oldest slot is evicted first.
  void become_plain_cache() {
    threshold = never_match;
    values = 1;
    merge_evicted = false;
  }
  // Settings of the contexts; `window` must not be 0. Their usage decays as fast as that of the slots.
  ContextSettings of_contexts() const {
    return {static_cast<int>(contexts), context_entries, decay / static_cast<double>(window)};
  }
  std::int64_t mixed() const { return static_cast<std::int64_t>(beta.size()) * shares_each; }
  bool operator==(const MemorySettings&) const = default;
};

// Settings of a recipe's [memory] table, where 0 slots means no memory. Include core/setting.h to use them.
const std::vector<Setting<MemorySettings>>& memory_settings();
// Throws bad_input that names the setting and its valid range; `where` is the prefix of the name ("memory.", "--").
void check_settings(const MemorySettings& settings, const std::string& where);

// Returns the bytes of a store with keys of d numbers, at bytes_of_number each.
double store_bytes(const MemorySettings& settings, std::int64_t d, std::size_t bytes_of_number);

nlohmann::json to_json(const MemorySettings& settings);
MemorySettings settings_from(const JsonObject& object);
double counts_from(const JsonObject& object);  // an exponent; in older files true and false, which mean 1 and 0

}  // namespace some
