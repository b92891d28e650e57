// One step of training (spec 5): the gradients of one or more micro-batches, on one or more ranks, then AdamW and the
// key update (spec 4).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/model.h"
#include "ops/optimizer.h"
#include "recipe/recipe.h"
#include "recipe/schedule.h"
#include "tensor/graph.h"
#include "train/async_all_reduce.h"
#include "train/step_sums.h"

namespace some {

// Settings that the schedules prescribe for a step. TrainStep fills in the rest of StepSettings; the additional numbers
// are read only by the optimizer and the plans of the key update.
struct StepPlan : StepSettings {
  std::int64_t step = 0;  // counted from 0
  double lr = 0;
  std::int64_t moments_before = 0;  // steps already in AdamW's moments when the run began
  double progress = 0;              // in [0, 1], for the annealing of beta
};

// Returns everything the schedules prescribe for a step out of `total`.
inline StepPlan plan_step(const TrainConfig& train, const ModelConfig& model, std::int64_t step, std::int64_t total,
                          std::int64_t steps_per_epoch) {
  StepPlan plan;
  plan.step = step;
  plan.lr = learning_rate(train, step, total);
  plan.top_k = scheduled_top_k(model, step, total);
  plan.temperature = scheduled_temperature(model, step / steps_per_epoch, train.epochs);
  plan.progress = scheduled_progress(step, total);
  return plan;
}

// On a GPU, a step of one micro-batch is recorded as a CUDA graph and then launched as a whole. Its shape recurs: rows
// are padded to their full length, or unpadded ones are extended to one of a few length classes by rows that predict
// nothing. Data that changes from step to step is in memory: the batch, always at the same address, the optimizer's
// rates, the factor on the loss and the key of the dropout masks. Everything else is passed by value in a StepSettings;
// the functions that compute see neither the plan nor the settings. A graph is replayed only for an equal pass. A new
// pass is computed launch by launch, which also allocates the memory it needs, and is recorded if it occurs again. No
// changing number can therefore be forgotten: a step with random positions, or with annealed or otherwise changing
// rules, never equals an earlier one. Results are bit-identical, since the same kernels read the same numbers.
class TrainStep {
 public:
  // Returns the bytes from which an early all-reduce is worthwhile: their transfer takes about as long as the latency
  // of its messages.
  static std::size_t min_early_bytes(const Group& group);
  struct Options {
    bool graphs = true;
    // The gradients of a layer's matrices are sent to the other ranks as soon as they are complete, at least this many
    // bytes at a time. Without a value, all are sent together at the end.
    std::optional<std::size_t> early_bytes = std::size_t{256} << 10;
  };
  TrainStep(Model& model, const TrainConfig& train, bool count_pads);
  TrainStep(Model& model, const TrainConfig& train, bool count_pads, const Options& options);

  // Runs the step on all its micro-batches, in order; of those that other ranks compute (see own_micro_batches) only
  // the sizes are used. Every rank ends with the same parameters, moments and keys. Returns loss and gradient norm, as
  // a master tensor [2] on the device that is valid until the next step.
  const Tensor& run(std::span<const Batch> batches, const StepPlan& plan);
  // Time spent on all-reduce so far: hidden behind computation, and exposed.
  struct Communication {
    double hidden_seconds = 0, open_seconds = 0;
  };
  Communication communication();
  std::int64_t replayed() const { return replayed_; }  // steps launched as a CUDA graph
  // Returns the micro-batches of a step that this rank computes. There may be none, if other ranks use its experts.
  Block own_micro_batches(std::int64_t of) const { return model_.context().mesh().micro_batches(group().rank(), of); }

 private:
  struct Kind {
    StepSettings pass;
    std::int64_t tokens = 0, rows = 0, longest = 0;
    const void* batch = nullptr;  // its address
    std::int64_t arena = 0;       // generation of the arena: while it is equal, allocations get the same addresses
    std::int64_t keys = 0;        // generation of the key stores, used in the same way
    bool operator==(const Kind&) const = default;
  };
  struct Recording {
    Kind kind;
    some::cuda::Graph graph;
  };

  const Group& group() const { return model_.context().group; }
  std::int64_t passes_of_group(std::int64_t of) const;  // maximum over the ranks that share experts with this one
  StepSums sums(const StepSettings& pass);              // the tensors that the model adds to
  void begin(Context& ctx, const StepSettings& pass);
  void add_batch(const DeviceBatch& batch, const StepSettings& pass, const Model::MatricesReady& ready = {});
  void add_loss(Context& ctx, const Tensor& nll);
  void plan_early(const Options& options);
  // Not if ranks share the experts: their all-to-all during the passes would mix with the all-reduce.
  bool overlaps_all_reduce() const {
    return !early_.empty() && !group().alone() && model_.context().expert_group.alone();
  }
  void add_last_batch(const DeviceBatch& batch, const StepSettings& pass, StepSums& added);
  void add_late(StepSums& added);
  void settle_late_marks(std::size_t most);
  void finish(const StepSettings& pass);
  void run_or_replay(const DeviceBatch& batch, Kind kind);
  void compute(const DeviceBatch& batch, const StepSettings& pass);

  Model& model_;
  Schedule schedule_;
  const TrainConfig train_;
  const bool count_pads_, graphs_;
  Tensor numbers_;  // of a step: the optimizer's three rates, and the factor on the loss
  Tensor outcome_;
  AdamSettings adam_;                  // the part that is equal in every step; the rest is in numbers_
  std::vector<Recording> recordings_;  // the most recently used comes last
  std::int64_t replayed_ = 0;
  SumTree tree_;
  // Parts of the gradients that are sent when a layer is done (indexed by layer, with the head last), and parts that
  // are sent at the end.
  std::vector<std::vector<Block>> early_;
  std::vector<Block> late_;
  std::unique_ptr<AsyncAllReduce> async_all_reduce_;
  // If the GPU's own stream communicates: begin and end events, until their times can be read.
  std::deque<std::pair<some::cuda::Event, some::cuda::Event>> late_marks_;
  double late_seconds_ = 0;
};

}  // namespace some
