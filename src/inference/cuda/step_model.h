// The part of a decoding step on a GPU that depends on the form of the model: computes logits from rows, and reports
// the experts of each row. The rest (slots, sampling, graphs, results) is the same for every form
// (inference/cuda_decoder.cc).
//
// Two implementations exist: fused kernels for some forms (fused_steps.cc), and the operations of Model::decode for all
// others (model_steps.cc). Both compute each row independently of the other rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "inference/cuda/steps.h"
#include "inference/decoder.h"
#include "model/model.h"

namespace some::decoding {

constexpr std::int64_t several_memories = -1;

struct StepShape {
  std::int64_t rows = 0, wanted = 0;
  bool distinct = false;  // one row per slot
  bool whole = false;     // every row is wanted
  bool routes = false;    // the experts of every row are reported
  // The memory that is mixed into the predictions: 0 = none, the number of the only one, or several_memories.
  std::int64_t memory = 0;
  bool sources = false;   // the slots behind the tokens are reported
  bool contexts = false;  // the host finds the contexts of the rows
  auto operator<=>(const StepShape&) const = default;
};

// The inputs of a step, on the device.
struct StepRows {
  std::int32_t *tokens, *slots, *positions;  // [rows]; slots < 0: not a row
  std::int32_t* row_of;                      // [wanted]: its row
  RouteReport report;                        // if the shape has routes
};

// Locations of the results of a step.
struct StepOutput {
  float* logits = nullptr;       // [wanted, vocab], or of all rows
  const bf16* states = nullptr;  // [wanted, width], or of all rows: what enters the head
  bool of_rows = false;
};

// Launches sampling for rows first .. first + count - 1 of a step, with these logits.
using RowSampler = std::function<void(CudaState& state, std::int64_t first, std::int64_t count, float* logits)>;

class StepModel {
 public:
  virtual ~StepModel() = default;
  // Allocates what a step needs, except in the arena.
  virtual void prepare(const StepShape& shape) = 0;
  // Increases whenever memory outside the arena has moved, which invalidates recorded steps.
  virtual std::int64_t generation() const = 0;
  virtual bool uses_arena() const = 0;
  virtual std::int64_t prompt_rows() const = 0;  // recommended rows of prompts per step
  virtual StepOutput run(const StepShape& shape, const StepRows& rows) = 0;
  // True if steps of this shape are computed faster by run_divided(): groups of rows go through several consecutive
  // steps concurrently, each with its own sampling.
  virtual bool divides(const StepShape&) const { return false; }
  virtual void run_divided(const StepShape&, const StepRows&, int /*steps*/, const RowSampler&) {}
};

// Both store keys, values and states of the slots in `cache`. They return null if the device or the model is not
// supported.
std::unique_ptr<StepModel> make_fused_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options);
// The cache has one slot more than the decoder, for the rows that only pad a step.
std::unique_ptr<StepModel> make_model_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options);

bool has_fused_steps(Model& model, const DecoderOptions& options);
bool has_model_steps(Model& model, const DecoderOptions& options);

}  // namespace some::decoding
