// One pass through the model: its settings, by value, and the tensors that all layers read.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "keys/rules/rules.h"
#include "ops/attention.h"
#include "runtime/context.h"

namespace some {

// A batch on the context's device, allocated from the arena: valid until the arena is reset.
struct DeviceBatch {
  Tensor tokens, targets, positions;  // i32 [T]
  Sequences sequences;
  std::int64_t predicted = 0;
  // Master [1]: the factor on the loss, in memory, so that a recorded step can change it. Set only if the batch is a
  // whole step; if empty, StepSettings::loss_scale is used.
  Tensor loss_scale;
  std::int32_t smallest_id = 0, largest_id = -1;  // over the tokens; largest_id includes the targets
};
DeviceBatch upload(Context& ctx, const Batch& batch);

// Settings of a training step, an evaluation or a generation step. All computation depends on schedules and time only
// through this struct. A recorded step (train/step.h) is replayed only if they are equal.
struct StepSettings {
  int top_k = 0;           // active experts; 0: as configured; may be lower (topk_warmup)
  double temperature = 0;  // 0: train_temp in training, otherwise eval_temp
  // For training only.
  double loss_scale = 1;            // factor on the sum of nll: 1 / predicted positions of the whole step
  bool count_pads = false;          // true if padding takes part in the key update
  std::vector<KeyPlan> keys;        // Model::plan_keys; empty: key sums are not collected
  std::int64_t first_position = 0;  // number of positions in the step's earlier micro-batches
  bool operator==(const StepSettings&) const = default;
};

// Inputs of the blocks of every layer.
struct Pass {
  StepSettings settings;  // with top_k filled in
  bool training = false;
  Tensor positions;  // i32 [T]
  Sequences sequences;
  Tensor temperature;               // [1] master: temperature of the gates, unless it is learned
  Tensor tokens;                    // for hash routing
  const Tensor* counted = nullptr;  // targets if padding is not counted; null: every position
  Tensor past;                      // rows of the previous states (ops/conv.h); empty if no block reads them
  Tensor auxiliary_loss;            // [1] master, training only
  Tensor dropout_key;               // [4] master, training with model.dropout only (ops/dropout.h)
  double auxiliary_share = 1;       // fraction of the step's positions in this micro-batch: scales loss coefficients
  // Generation: the states kept by each layer, whose rows `past` refers to, and the rows of the new ones, i32 [T].
  std::vector<Tensor> kept_states;
  Tensor places;
  // Generation: KV cache per layer, and the slots of the new tokens, i32 [T].
  std::vector<Tensor> cache;
  Tensor slots;

  bool generates() const { return !cache.empty(); }
  // Returns the states that a block may read: x, or in generation the kept states after storing x among them.
  Tensor states(Context& ctx, int layer, const Tensor& x) const;
};

}  // namespace some
