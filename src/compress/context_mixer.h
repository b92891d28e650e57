// Predicts binary decisions by context mixing, as in the PAQ family: statistics of many contexts are combined in the
// logistic domain by a mixer whose weights learn after every decision. Uses integers only, so every machine computes
// the same predictions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace some {

// Named state that can be saved and restored.
struct StateField {
  std::string name;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Statistics of the decisions seen in one context.
struct ContextSlot {
  std::uint16_t check = 0;
  std::uint16_t probability = 32768;  // probability of a 1; moves by 1/n, then at a fixed rate
  std::uint8_t zeros = 0, ones = 0;   // recent decisions; a count shrinks after the opposite decision
  std::uint8_t last = 0;              // the last two decisions
  std::uint8_t seen = 0;
};

struct MixerSettings {
  int contexts = 0;            // number of hashed contexts
  int table_bits = 0;          // log2 of the table size per context
  int kinds = 1;               // kinds of decisions with separate statistics
  int extra = 0;               // number of log-odds given by the caller
  std::vector<int> selectors;  // size of each set of weights; the caller selects the weights within a set
  int final_selector = 1;
  int refining_context = 0;  // the contexts whose hash selects the final correction
  bool operator==(const MixerSettings&) const = default;
};

class ContextMixer {
 public:
  explicit ContextMixer(const MixerSettings& settings);

  struct Decision {
    std::span<const std::uint64_t> contexts;  // hashes, one per context
    std::span<const std::int32_t> extra;      // log-odds
    std::span<const int> selected;            // selected weights, one per set
    int kind = 0, final_selected = 0;
  };
  // Returns the probability of a 1, 1..65535.
  std::uint32_t predict(const Decision& decision);
  void update(bool one);

  std::vector<StateField> state();
  // True if a restored state has no value that this class cannot have written and could not compute with.
  bool state_valid() const;

 private:
  ContextSlot& find(int context, std::uint64_t hash);
  static constexpr int inputs_each = 3;

  MixerSettings settings_;
  int inputs_ = 0, padded_ = 0;
  std::vector<ContextSlot> slots_;        // [contexts << table_bits]
  std::vector<std::uint32_t> histories_;  // [contexts, kinds, 1024]: probability (22 bits), count (10 bits)
  std::vector<std::int32_t> weights_;     // weights of all sets
  std::vector<std::size_t> set_begin_;
  std::vector<std::int32_t> final_weights_;  // [final_selector, sets]
  std::vector<std::uint16_t> corrections_;   // [corrected contexts, classes of the mixed log-odds]: probability of a 1
  std::int64_t decisions_ = 0;
  // The current decision.
  std::vector<ContextSlot*> found_;
  std::vector<std::uint32_t*> history_;
  std::vector<std::int32_t> input_;
  std::vector<std::size_t> set_at_;
  std::vector<std::int32_t> set_probability_, set_input_;
  std::size_t final_at_ = 0;
  std::int32_t mixed_ = 0;
  std::uint16_t* correction_ = nullptr;
};

}  // namespace some
