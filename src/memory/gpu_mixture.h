// Mixes the predictions of a memory into those of a model on a GPU without waiting for the host, so that a step of
// generation can be recorded. Equal to MemoryPredictions up to rounding; the bits of a row never depend on the other
// rows. CUDA builds only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/memory.h"

namespace some {

class GpuMixture {
 public:
  // Maximum number of slots reported per row.
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
  // Report of one row for the host: the probability of its token, the part of it that comes from slots, and these
  // slots, largest weight first.
  struct Sources {
    float probability, of_slots;
    std::int32_t count;
    std::int32_t slots[max_sources], entries[max_sources];
    float weights[max_sources];
  };
  // Rows to report. The token of row i is targets[i] if numbers[i] is negative, otherwise the one sampled last for its
  // text. Results are written to [ring, row] of pinned memory, at the place before rings[i]: sampling has already
  // advanced it.
  struct SourceRows {
    const std::int32_t *slots, *row_of, *numbers, *targets, *drawn, *wanted, *rings;  // wanted: maximum slots
    std::int64_t rows = 0, ring_rows = 0;
    int ring_size = 1;
    bool of_rows = false;  // states and logits are of all rows, not only of the output rows
    const float* logits = nullptr;
    Sources* sources = nullptr;
  };

  static bool supports(const Context& ctx, const Memory& memory);
  // texts: number of texts that rows may name. The memory must not change.
  GpuMixture(Context& ctx, const Memory& memory, std::int64_t texts, int vocabulary);
  ~GpuMixture();
  GpuMixture(const GpuMixture&) = delete;
  GpuMixture& operator=(const GpuMixture&) = delete;

  // Sets the mixture weights of a text, one per inverse temperature; empty: the text does not use the memory.
  void set_weights(std::int32_t text, std::span<const double> weights);

  // A memory with contexts requires the tokens before every prediction on the host, and a mixture per text instead.
  bool has_contexts() const;
  void set_mixture(std::int32_t text, const ContextMixture& mixture);
  // Uploads the contexts of the rows, before mix(). Rows that are not listed keep the model's prediction.
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
