// Predicts binary decisions by context mixing: many contexts each keep what followed them, and a mixer whose weights
// learn after every decision combines their predictions in the logistic domain (as in the PAQ family). Integers only,
// so every machine gives the same predictions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace some {

// A named piece of state that is saved and restored.
struct StateField {
  std::string name;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Statistics of the decisions seen in one context.
struct ContextSlot {
  std::uint16_t check = 0;
  std::uint16_t probability = 32768;  // of a 1; moves by 1/n, then by a fixed rate
  std::uint8_t zeros = 0, ones = 0;   // recent decisions; a count shrinks when the other decision is seen
  std::uint8_t last = 0;              // the last two decisions
  std::uint8_t seen = 0;
};

struct MixerSettings {
  int contexts = 0;            // hashed contexts
  int table_bits = 0;          // log2 of the slots of each context's table
  int kinds = 1;               // kinds of decisions, whose histories mean different things
  int extra = 0;               // log-odds given by the caller
  std::vector<int> selectors;  // sizes of the sets of weights; each set's weights are selected by the caller
  int final_selector = 1;
  int refining_context = 0;  // the context whose hash selects how the mixed probability is corrected
  bool operator==(const MixerSettings&) const = default;
};

class ContextMixer {
 public:
  explicit ContextMixer(const MixerSettings& settings);

  struct Decision {
    std::span<const std::uint64_t> contexts;  // hashes, one per context
    std::span<const std::int32_t> extra;      // log-odds
    std::span<const int> selected;            // one per set of weights
    int kind = 0, final_selected = 0;
  };
  // Returns the probability of a 1, 1..65535.
  std::uint32_t predict(const Decision& decision);
  void update(bool one);

  std::vector<StateField> state();

 private:
  ContextSlot& find(int context, std::uint64_t hash);
  static constexpr int inputs_each = 3;

  MixerSettings settings_;
  int inputs_ = 0, padded_ = 0;
  std::vector<ContextSlot> slots_;        // [contexts << table_bits]
  std::vector<std::uint32_t> histories_;  // [contexts, kinds, 1024]: probability (22 bits), count (10 bits)
  std::vector<std::int32_t> weights_;     // of all sets
  std::vector<std::size_t> set_begin_;
  std::vector<std::int32_t> final_weights_;  // [final_selector, sets]
  std::vector<std::uint16_t> corrections_;   // [corrected contexts, classes of the mixed log-odds]: probability of a 1
  std::int64_t decisions_ = 0;
  // The decision being made.
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
