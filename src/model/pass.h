// One pass through the model: its settings, by value, and the tensors that all layers read.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "keys/rules/rules.h"
#include "ops/attention.h"
#include "runtime/context.h"

namespace some {

// A batch on the context's device. Memory comes from the arena: it lives until the arena is reset.
struct DeviceBatch {
  Tensor tokens, targets, positions;  // i32 [T]
  Sequences sequences;
  std::int64_t predicted = 0;
  // Master [1]: the factor on the loss, in memory, so that a recorded step can change it. Set only if the batch is a
  // whole step; if empty, StepSettings::loss_scale is used.
  Tensor loss_scale;
  std::int32_t smallest_id = 0, largest_id = -1;  // of the tokens; largest_id of the targets too
};
DeviceBatch upload(Context& ctx, const Batch& batch);

// The settings of a training step, an evaluation or a step of generation. The functions that compute see nothing else
// of the schedules and the time. A recorded step (train/step.h) is replayed only where they are equal.
struct StepSettings {
  int top_k = 0;           // 0: as configured; may be below that (topk_warmup)
  double temperature = 0;  // 0: train_temp in training, otherwise eval_temp
  // Training only.
  double loss_scale = 1;            // the loss is loss_scale * sum of nll: 1 / predicted positions of the whole step
  bool count_pads = false;          // every position takes part in the key update
  std::vector<KeyPlan> keys;        // Model::plan_keys; empty: no key sums are collected
  std::int64_t first_position = 0;  // positions of the step's micro-batches before this one
  bool operator==(const StepSettings&) const = default;
};

// Inputs of the blocks of every layer.
struct Pass {
  StepSettings settings;  // top_k is set
  bool training = false;
  Tensor positions;  // i32 [T]
  Sequences sequences;
  Tensor temperature;               // [1] master, of gates whose temperature is not learned
  Tensor tokens;                    // for hash routing
  const Tensor* counted = nullptr;  // targets if padding is not counted; null: every position
  Tensor past;                      // rows of the states before (ops/conv.h); empty if no block reads them
  Tensor auxiliary_loss;            // [1] master, training only
  Tensor dropout_key;               // [4] master, training with model.dropout only (ops/dropout.h)
  double auxiliary_share = 1;  // this micro-batch's share of the step, so that a coefficient does not depend on how the
                               // step is cut
  // Generation: the states that each layer keeps, at whose rows `past` points, and the rows of the new ones, i32 [T].
  std::vector<Tensor> kept_states;
  Tensor places;
  // Generation: keys and values of attention, per layer, and the slots of the new tokens, i32 [T].
  std::vector<Tensor> cache;
  Tensor slots;

  bool generates() const { return !cache.empty(); }
  // The states that a block sees, of this pass and before: x, or in generation those kept, with x put among them.
  Tensor states(Context& ctx, int layer, const Tensor& x) const;
};

}  // namespace some
