// The memories of the sequences in a decoder's slots (memory/gpu_mixture.h), and the tokens of those whose memory has
// contexts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "inference/cuda/step_model.h"
#include "inference/cuda/step_results.h"
#include "memory/gpu_mixture.h"

namespace some::decoding {

class SlotMemories {
 public:
  SlotMemories(Model& model, std::int64_t slots) : model_(model), slots_(static_cast<std::size_t>(slots)) {}

  void open(std::int32_t slot, const SlotSequence& sequence);
  void close(std::int32_t slot);
  // Returns true if recorded steps become invalid.
  bool forget(const Memory& memory);

  bool mixes(std::int32_t slot) const { return of(slot).own != nullptr; }
  // True if only Model::decode and the host can mix the memory of this slot.
  bool needs_host(std::int32_t slot) const { return of(slot).needs_host; }

  // Stores the tokens of a step. The token of a row may be the one that a step in flight samples for its slot;
  // last(slot) returns the last known one.
  template <typename Last>
  void note(const DecodeBatch& batch, Last&& last) {
    for (std::size_t row = 0; row < batch.rows(); ++row) {
      Slot& slot = slots_[static_cast<std::size_t>(batch.slots[row])];
      if (!slot.has_tokens) continue;
      const auto position = static_cast<std::size_t>(batch.positions[row]);
      if (position > 0 && position <= slot.tokens.size() && slot.tokens[position - 1] == some::last_drawn)
        slot.tokens[position - 1] = last(batch.slots[row]);
      slot.tokens.resize(position + 1);
      slot.tokens.back() = batch.tokens[row];
    }
  }
  void set_last(std::int32_t slot, TokenId token);
  std::span<const TokenId> tokens(std::int32_t slot) const { return of(slot).tokens; }

  // Selects the memories of the output rows of a step, for mix() and report().
  void choose(const DecodeBatch& batch, const Piece& piece, StepShape& shape);
  // Uploads what the contexts predict, before mix(). The tokens of all rows must be known.
  void find_contexts(const DecodeBatch& batch, const Piece& piece, const StepShape& shape, const StepOutput& output,
                     Flight& flight);
  void mix(const GpuMixture::Rows& rows);
  void report(const GpuMixture::SourceRows& rows);
  // Returns the contributions of contexts to a token.
  std::vector<ContextContribution> contexts_of(std::int32_t slot, std::span<const TokenId> before, TokenId token) const;

 private:
  struct Mixed {
    Mixed(std::int64_t n, Context& ctx, const Memory& of, std::int64_t slots, int vocabulary)
        : number(n), memory(of), mixture(ctx, of, slots, vocabulary) {}
    std::int64_t number;  // StepShape::memory
    const Memory& memory;
    GpuMixture mixture;
  };
  struct Slot {
    Mixed* own = nullptr;
    // The memory that the device uses until the next sequence takes the slot: steps in flight may still read it.
    Mixed* joined = nullptr;
    bool needs_host = false, has_tokens = false;
    std::vector<TokenId> tokens;  // by position
    ContextMixture contexts;
  };
  const Slot& of(std::int32_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }

  Model& model_;
  std::vector<Slot> slots_;
  std::map<const Memory*, Mixed> mixtures_;
  std::int64_t made_ = 0;
  std::vector<Mixed*> chosen_;
};

}  // namespace some::decoding
