// The part of a decoding step on a GPU that depends on the form of the model: rows go through the layers to logits, and
// the experts of each row are reported. The rest (slots, sampling, graphs, results) is the same for every form
// (inference/cuda_decoder.cc).
//
// There are two: fused kernels for some forms (fused_steps.cc), and the operations of Model::decode for all others
// (model_steps.cc). Both compute each row independently of the other rows.
#pragma once

#include <cstdint>
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
  // Of memories that are mixed into the predictions: 0 = none, a number of the only one, or several_memories.
  std::int64_t memory = 0;
  bool sources = false;   // the slots behind the tokens are reported
  bool contexts = false;  // the host finds the contexts of the rows
  auto operator<=>(const StepShape&) const = default;
};

// The numbers of a step, on the device.
struct StepRows {
  std::int32_t *tokens, *slots, *positions;  // [rows]; slots < 0: not a row
  std::int32_t* row_of;                      // [wanted]: its row
  RouteReport report;                        // if the shape has routes
};

// Where a step's results are.
struct StepOutput {
  float* logits = nullptr;       // [wanted, vocab], or of all rows
  const bf16* states = nullptr;  // [wanted, width], or of all rows: what enters the head
  bool of_rows = false;
};

class StepModel {
 public:
  virtual ~StepModel() = default;
  // Allocates what a step needs, except in the arena.
  virtual void prepare(const StepShape& shape) = 0;
  // Grows whenever memory that earlier steps used, outside of the arena, has moved, so that recorded ones are invalid.
  virtual std::int64_t generation() const = 0;
  virtual bool uses_arena() const = 0;
  virtual std::int64_t prompt_rows() const = 0;  // a good number of rows of prompts per step
  virtual StepOutput run(const StepShape& shape, const StepRows& rows) = 0;
};

// Both use the cache for the keys, values and states of the slots. Null if the device or the model is not supported.
std::unique_ptr<StepModel> make_fused_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options);
// The cache has one slot more than the decoder: it takes the rows that only fill up a step.
std::unique_ptr<StepModel> make_model_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options);

bool has_fused_steps(Model& model, const DecoderOptions& options);
bool has_model_steps(Model& model, const DecoderOptions& options);

}  // namespace some::decoding
