// The predictions of a memory mixed into those of a model on a GPU, without waiting for the host, so that a step of
// generation can be recorded. It computes what MemoryPredictions computes, to rounding; a row's bits never depend on
// the other rows. CUDA builds only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/memory.h"

namespace some {

class GpuMixture {
 public:
  // Largest number of slots that are reported per row.
  static constexpr int max_sources = 32;

  // The rows of a step; all on the device.
  struct Rows {
    std::int64_t rows = 0;
    const std::int32_t* slots = nullptr;   // by row of the step: its text; negative: none
    const std::int32_t* row_of = nullptr;  // the row of the step; null: the same
    Tensor states;                         // [rows, d] compute
    float* logits = nullptr;               // [rows, vocabulary]: become log probabilities of the mixture
  };
  // A row whose prediction is mixed, for a memory with contexts.
  struct ContextRow {
    std::int64_t row = 0;  // of Rows
    std::int32_t text = 0;
    std::span<const std::int32_t> before;  // the tokens before the prediction, the latest last
  };
  // What the host receives of a row: the probability of its token, the part of it that comes from slots, and these
  // slots, largest weight first.
  struct Sources {
    float probability, of_slots;
    std::int32_t count;
    std::int32_t slots[max_sources], entries[max_sources];
    float weights[max_sources];
  };
  // The token of row i is targets[i] if numbers[i] is negative, otherwise that drawn last for its text. Results are
  // written to [ring, row] of memory of the host, in the ring before rings[i], to which the row has moved on.
  struct SourceRows {
    const std::int32_t *slots, *row_of, *numbers, *targets, *drawn, *wanted, *rings;  // wanted: at most so many slots
    std::int64_t rows = 0, ring_rows = 0;
    int ring_size = 1;
    bool of_rows = false;  // states and logits are those of all rows, not only of the wanted ones
    const float* logits = nullptr;
    Sources* sources = nullptr;
  };

  static bool supports(const Context& ctx, const Memory& memory);
  // texts: their number; the rows' texts are below it. The memory must not change.
  GpuMixture(Context& ctx, const Memory& memory, std::int64_t texts, int vocabulary);
  ~GpuMixture();
  GpuMixture(const GpuMixture&) = delete;
  GpuMixture& operator=(const GpuMixture&) = delete;

  // The mixture weights of a text, of each inverse temperature; empty: the text does not use the memory.
  void set_weights(std::int32_t text, std::span<const double> weights);

  // A memory with contexts needs the tokens before every prediction on the host, and a mixture per text instead.
  bool has_contexts() const;
  void set_mixture(std::int32_t text, const ContextMixture& mixture);
  // Before mix(): the contexts of its rows. Other rows predict what the model predicts.
  void find_contexts(std::int64_t rows, std::span<const ContextRow> wanted);

  // Uses scratch memory of the arena, which must last until report().
  void mix(const Rows& rows);
  void report(const SourceRows& rows);  // after mix()

 private:
  void add_slots(const Rows& rows);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace some
