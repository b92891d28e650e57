// Every setting of a memory (spec 8), with the defaults of recipes. Names are those of the [memory] table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/json.h"

namespace some {
template <typename Owner>
struct Setting;  // core/setting.h
}

namespace some {

// The list of shares that the memory's say is mixed over.
inline constexpr std::array<double, 7> share_list = {0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8};
inline constexpr std::int64_t shares_each = static_cast<std::int64_t>(share_list.size());

inline constexpr std::int64_t max_slots = std::int64_t{1} << 26;
inline constexpr std::size_t max_sharpnesses = 8;
inline constexpr std::int64_t max_values = 64;
inline constexpr std::int64_t max_window = 8192;  // positions of one lesson
inline constexpr std::int64_t max_parts = 4096;
inline constexpr std::int64_t max_rounds = 1000;
inline constexpr double token_affinity = 0.25;  // settling: what it counts that a slot is wholly the token
inline constexpr double never_match = 2.0;  // no product of unit vectors reaches it: nothing is merged, the oldest slot
                                            // goes first, which makes a plain cache of the store

struct MemorySettings {
  std::int64_t slots = 4096;
  double match = 0.8;  // a key of the same value that is nearer than this is hit; above 1: none ever is
  // How sharply a key's nearness counts. Several are read side by side, and the mixture finds out which to hear.
  std::vector<double> sharpness = {5.0, 20.0, 80.0};
  double decay = 0.001;     // of usage, a window
  double share = 0.01;      // what every weight of the mixture gains back after each token
  double counts = 1.0;      // a slot's say grows with this power of its count; 0, where it does not, is a control
  std::int64_t values = 8;  // tokens that a slot can hold, each with its tally
  bool inherit = true;      // a slot that gives way leaves what it holds to the nearest; false: it is lost
  // A large store in parts of equal size: a query looks only into those whose centres are nearest to it.
  std::int64_t parts = 1;   // 1: every query meets every slot
  std::int64_t look = 8;    // parts that a query looks into; as many as there are, or more: all
  std::int64_t rounds = 0;  // of settling, whenever a text has been read
  std::int64_t window = 0;  // tokens from one lesson to the next; 0: half of seq_len, at most 256
  // The token that ends a document: each is then read by itself, as in training. Without it a text is one stream.
  std::optional<std::int32_t> border = std::nullopt;

  // A store in which nothing is merged or passed on, so that the oldest slot goes first.
  void become_plain_cache() {
    match = never_match;
    values = 1;
    inherit = false;
  }
  std::int64_t mixed() const { return static_cast<std::int64_t>(sharpness.size()) * shares_each; }
  bool operator==(const MemorySettings&) const = default;
};

// As a recipe's [memory] table has them, where 0 slots stand for no memory. Include core/setting.h to use them.
const std::vector<Setting<MemorySettings>>& memory_settings();
// bad_input that names the setting and what would be right; `where` stands before it ("memory.", "--").
void check_settings(const MemorySettings& settings, const std::string& where);

// What a store takes, of keys of d numbers of so many bytes each.
double store_bytes(const MemorySettings& settings, std::int64_t d, std::size_t bytes_of_number);

nlohmann::json to_json(const MemorySettings& settings);
MemorySettings settings_from(const JsonObject& object);
double counts_from(const JsonObject& object);  // a power; true and false, which it once was, are 1 and 0

}  // namespace some
