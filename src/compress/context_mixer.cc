#include "compress/context_mixer.h"

#include <algorithm>
#include <array>

#include "compress/logistic.h"

namespace some {

namespace {

constexpr int histories_each = 1024;
#ifdef SOME_SMALL_TABLES  // for fuzzing: thousands of mixers per second
constexpr int correction_bits = 4;
#else
constexpr int correction_bits = 16;
#endif
constexpr int correction_classes = 33, correction_rate = 40;
constexpr std::int32_t correction_step = 2 * max_log_odds / (correction_classes - 1);

// Mixes the bits of a hash.
std::uint64_t spread(std::uint64_t hash) {
  hash *= 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 29;
  return hash * 0xBF58476D1CE4E5B9ull;
}

// Table of 65536 / (n + 1.5).
constexpr std::array<std::int32_t, 1024> make_rates() {
  std::array<std::int32_t, 1024> rates{};
  for (int n = 0; n < 1024; ++n) rates[static_cast<std::size_t>(n)] = 131072 / (2 * n + 3);
  return rates;
}
constexpr std::array<std::int32_t, 1024> rates = make_rates();

int count_class(int n) {
  constexpr std::array<std::uint8_t, 17> small = {0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 8, 9, 9, 9, 9, 10};
  if (n <= 16) return small[static_cast<std::size_t>(n)];
  return n < 24 ? 10 : n < 32 ? 11 : n < 48 ? 12 : n < 96 ? 13 : n < 200 ? 14 : 15;
}

int history_of(const ContextSlot& slot) {
  return (count_class(slot.zeros) * 16 + count_class(slot.ones)) * 4 + (slot.last & 3);
}

// After many equal decisions, a contrary one reduces their count.
std::uint8_t shrunk(std::uint8_t n) {
  if (n < 3) return n;
  return static_cast<std::uint8_t>(n < 8 ? n / 2 + 1 : n < 32 ? 5 + n / 16 : 7);
}

}  // namespace

ContextMixer::ContextMixer(const MixerSettings& settings) : settings_(settings) {
  const auto contexts = static_cast<std::size_t>(settings.contexts);
  inputs_ = settings.contexts * inputs_each + settings.extra + 1;
  padded_ = (inputs_ + 7) / 8 * 8;
  slots_.resize(contexts << settings.table_bits);
  histories_.resize(contexts * static_cast<std::size_t>(settings.kinds) * histories_each);
  constexpr std::array<int, 16> middle = {0, 1, 2, 3, 4, 5, 6, 7, 9, 13, 19, 27, 39, 70, 140, 230};
  for (int history = 0; history < histories_each; ++history) {
    const int zeros = middle[static_cast<std::size_t>(history / 64)],
              ones = middle[static_cast<std::size_t>(history / 4 % 16)];
    // Table of (ones + 0.4) / (zeros + ones + 0.8).
    const std::uint32_t p =
        static_cast<std::uint32_t>((std::int64_t{ones} * 10 + 4) * ((1 << 22) - 1) / ((zeros + ones) * 10 + 8));
    histories_[static_cast<std::size_t>(history)] = p << 10;
  }
  for (std::size_t i = histories_each; i < histories_.size(); i += histories_each)
    std::copy_n(histories_.begin(), histories_each, histories_.begin() + static_cast<std::ptrdiff_t>(i));
  std::size_t all = 0;
  for (const int selector : settings.selectors) {
    set_begin_.push_back(all);
    all += static_cast<std::size_t>(selector) * static_cast<std::size_t>(padded_);
  }
  weights_.assign(all, 0);
  const std::size_t sets = settings.selectors.size();
  for (int input = 0; input < padded_; ++input) {
    if (input < settings.contexts * inputs_each)
      weights_[static_cast<std::size_t>(input)] = input % inputs_each == 0 ? 65536 * 16 / 100 : 0;
    else if (input < settings.contexts * inputs_each + settings.extra)
      weights_[static_cast<std::size_t>(input)] = 65536 * 30 / 100;
  }
  for (std::size_t i = static_cast<std::size_t>(padded_); i < all; i += static_cast<std::size_t>(padded_))
    std::copy_n(weights_.begin(), padded_, weights_.begin() + static_cast<std::ptrdiff_t>(i));
  final_weights_.assign(static_cast<std::size_t>(settings.final_selector) * sets,
                        static_cast<std::int32_t>(65536 / sets));
  corrections_.resize(static_cast<std::size_t>(correction_classes) << correction_bits);
  for (int i = 0; i < correction_classes; ++i)
    corrections_[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(squash(i * correction_step - max_log_odds));
  for (std::size_t filled = correction_classes; filled < corrections_.size(); filled *= 2)
    std::copy_n(corrections_.begin(), std::min(filled, corrections_.size() - filled),
                corrections_.begin() + static_cast<std::ptrdiff_t>(filled));
  found_.resize(contexts);
  history_.resize(contexts);
  input_.assign(static_cast<std::size_t>(padded_), 0);
  set_at_.resize(sets);
  set_probability_.resize(sets);
  set_input_.resize(sets);
}

ContextSlot& ContextMixer::find(int context, std::uint64_t hash) {
  hash = spread(hash);
  const std::size_t mask = (std::size_t{1} << settings_.table_bits) - 1;
  ContextSlot* table = slots_.data() + (static_cast<std::size_t>(context) << settings_.table_bits);
  const std::size_t at = (hash >> 20) & mask;
  const auto check = static_cast<std::uint16_t>(hash >> 48);
  ContextSlot* worst = nullptr;
  for (std::size_t i = 0; i < 4; ++i) {
    ContextSlot& slot = table[at ^ i];
    if (slot.seen == 0 || slot.check == check) {
      if (slot.seen == 0) slot = {.check = check};
      return slot;
    }
    if (worst == nullptr || slot.seen < worst->seen) worst = &slot;
  }
  *worst = {.check = check};
  return *worst;
}

std::uint32_t ContextMixer::predict(const Decision& decision) {
  const LogisticTables& tables = logistic_tables();
  const auto contexts = static_cast<std::size_t>(settings_.contexts);
  std::int32_t* input = input_.data();
  for (std::size_t i = 0; i < contexts; ++i) {
    ContextSlot& slot = find(static_cast<int>(i), decision.contexts[i]);
    found_[i] = &slot;
    const std::size_t kind = i * static_cast<std::size_t>(settings_.kinds) + static_cast<std::size_t>(decision.kind);
    history_[i] = &histories_[kind * histories_each + static_cast<std::size_t>(history_of(slot))];
    const std::uint32_t p = std::clamp<std::uint32_t>(*history_[i] >> 16, 1, 65535);
    if (slot.seen == 0) {
      input[0] = input[1] = input[2] = 0;
    } else {
      input[0] = tables.stretch[p];
      input[1] = (static_cast<std::int32_t>(p) - 32768) >> 5;
      const std::int32_t direct = tables.stretch[std::max<std::uint16_t>(slot.probability, 1)];
      input[2] = direct * std::min<int>(slot.seen, 32) / 32;
    }
    input += inputs_each;
  }
  for (const std::int32_t one : decision.extra) *input++ = std::clamp(one, -max_log_odds, max_log_odds);
  *input++ = log_odds_unit;
  const std::size_t sets = settings_.selectors.size();
  final_at_ = static_cast<std::size_t>(decision.final_selected) * sets;
  std::int64_t final_sum = 0;
  for (std::size_t s = 0; s < sets; ++s) {
    set_at_[s] = set_begin_[s] + static_cast<std::size_t>(decision.selected[s]) * static_cast<std::size_t>(padded_);
    const std::int32_t* weight = weights_.data() + set_at_[s];
    std::int64_t sum = 0;
    for (int i = 0; i < padded_; ++i) sum += std::int64_t{weight[i]} * input_[static_cast<std::size_t>(i)];
    set_probability_[s] = squash(sum >> 16);
    set_input_[s] = static_cast<std::int32_t>(std::clamp<std::int64_t>(sum >> 16, -max_log_odds, max_log_odds));
    final_sum += std::int64_t{final_weights_[final_at_ + s]} * set_input_[s];
  }
  mixed_ = squash(final_sum >> 16);
  // Refines the probability by its past accuracy in one context (adaptive probability map), interpolated between two
  // classes.
  const auto odds =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(final_sum >> 16, -max_log_odds, max_log_odds)) + max_log_odds;
  const std::int32_t below = std::min(odds / correction_step, correction_classes - 2);
  const std::int32_t above = std::min(odds - below * correction_step, correction_step);
  const auto refining = static_cast<std::size_t>(settings_.refining_context);
  std::uint16_t* const row = corrections_.data() +
                             (spread(decision.contexts[refining]) >> (64 - correction_bits)) * correction_classes +
                             below;
  correction_ = 2 * above > correction_step ? row + 1 : row;
  const std::int32_t corrected = (row[0] * (correction_step - above) + row[1] * above) / correction_step;
  return static_cast<std::uint32_t>(std::clamp((mixed_ + corrected) / 2, 1, 65535));
}

void ContextMixer::update(bool one) {
  ++decisions_;
  const std::int32_t target = one ? 65535 : 0;
  *correction_ = static_cast<std::uint16_t>(*correction_ + (target - *correction_) / correction_rate);
  const std::size_t sets = settings_.selectors.size();
  const std::int64_t rate = 5 + 14 * 4096 / (4096 + decisions_ / 4);
  for (std::size_t s = 0; s < sets; ++s) {
    std::int32_t* weight = weights_.data() + set_at_[s];
    const std::int64_t error = (target - set_probability_[s]) * rate;
    for (int i = 0; i < padded_; ++i)
      weight[i] += static_cast<std::int32_t>((input_[static_cast<std::size_t>(i)] * error + (1 << 19)) >> 20);
    std::int32_t& final_weight = final_weights_[final_at_ + s];
    final_weight += static_cast<std::int32_t>((std::int64_t{set_input_[s]} * (target - mixed_) * 6 + (1 << 19)) >> 20);
  }
  for (std::size_t i = 0; i < found_.size(); ++i) {
    std::uint32_t& history = *history_[i];
    const std::uint32_t n = history & 1023;
    const auto p = static_cast<std::int64_t>(history >> 10);
    const std::int64_t goal = one ? (1 << 22) - 1 : 0;
    const std::int64_t next = p + (((goal - p) * rates[n + (n < 1 ? 1 : 0)]) >> 16);
    history = static_cast<std::uint32_t>(next) << 10 | (n < 1000 ? n + 1 : n);
    ContextSlot& slot = *found_[i];
    const std::int32_t step = rates[std::min<std::size_t>(slot.seen, 200)];
    slot.probability = static_cast<std::uint16_t>(std::clamp<std::int32_t>(
        slot.probability + static_cast<std::int32_t>((std::int64_t{target - slot.probability} * step) >> 16), 1,
        65535));
    if (one) {
      if (slot.ones < 250) ++slot.ones;
      slot.zeros = shrunk(slot.zeros);
    } else {
      if (slot.zeros < 250) ++slot.zeros;
      slot.ones = shrunk(slot.ones);
    }
    slot.last = static_cast<std::uint8_t>((slot.last << 1 | (one ? 1 : 0)) & 3);
    if (slot.seen < 255) ++slot.seen;
  }
}

std::vector<StateField> ContextMixer::state() {
  const auto field = [](const char* name, auto& list) {
    return StateField{name, list.data(), list.size() * sizeof(list[0])};
  };
  return {field("slots", slots_),
          field("histories", histories_),
          field("weights", weights_),
          field("final_weights", final_weights_),
          field("corrections", corrections_),
          {"decisions", &decisions_, sizeof(decisions_)}};
}

bool ContextMixer::state_valid() const {
  constexpr std::int32_t largest_weight = 1 << 30;
  const auto bounded = [](std::int32_t weight) { return weight > -largest_weight && weight < largest_weight; };
  return decisions_ >= 0 && decisions_ < std::int64_t{1} << 50 &&
         std::all_of(weights_.begin(), weights_.end(), bounded) &&
         std::all_of(final_weights_.begin(), final_weights_.end(), bounded);
}

}  // namespace some
