// One step of training (spec 5): gradients of one or several micro-batches, AdamW, key update (spec 4).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/graph.h"
#include "base/rooms.h"
#include "model/model.h"
#include "ops/optimizer.h"
#include "train/recipe.h"

namespace some::train {

// What the schedules say of a step.
struct StepPlan {
  std::int64_t step = 0;  // counted from 0
  double lr = 0;
  int top_k = 0;           // 0: the configured one
  double temperature = 0;  // 0: train_temp
  double progress = 0;     // in [0, 1], for the annealing of beta
};

// On a GPU, a step of a shape that comes again (rows laid out to their full length, one micro-batch) is recorded and
// from then on launched as one piece. What changes from step to step lies in memory: the batch, put to the same place,
// and the optimizer's rates. Everything else that a step is given by value is its Kind: a new kind is computed launch
// by launch first, which also takes the memory it needs, and recorded when it comes again. The results are the same to
// the bit: the same kernels read the same numbers.
class TrainStep {
 public:
  TrainStep(Model& model, const TrainConfig& train, bool count_pads, bool graphs = true);

  // Returns loss and gradient norm: master [2], on the device, until the next step.
  const Tensor& run(std::span<const Batch> batches, const StepPlan& plan);
  std::int64_t replayed() const { return replayed_; }  // steps that were launched as one piece

 private:
  struct Kind {
    std::int64_t tokens = 0, rows = 0, longest = 0;
    const void* batch = nullptr;  // where it lies
    std::int64_t generation = 0;  // of the arena
    int top_k = 0;
    double temperature = 0, loss_scale = 0;
    bool keys_due = false;
    int decays = 0;
    bool operator==(const Kind&) const = default;
  };
  struct Recording {
    Kind kind;
    some::cuda::Graph graph;
  };

  void begin(bool keys_due);
  void add_batch(const DeviceBatch& batch, const TrainPass& pass);
  void finish(const AdamSettings& adam, const StepPlan& plan, bool keys_due);
  void run_or_replay(Kind kind, const std::function<void()>& work);

  Model& model_;
  const TrainConfig train_;
  const bool count_pads_, graphs_;
  Tensor rates_, outcome_;
  std::vector<Recording> recordings_;
  std::int64_t replayed_ = 0;
};

}  // namespace some::train
