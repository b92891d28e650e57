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

// What the schedules prescribe for a step: its settings, of which TrainStep fills in the rest, and the numbers that
// only the optimizer and the plans of the key update read.
struct StepPlan : StepSettings {
  std::int64_t step = 0;  // counted from 0
  double lr = 0;
  std::int64_t moments_before = 0;  // steps already in AdamW's moments when the run began
  double progress = 0;              // in [0, 1], for the annealing of beta
};

// All that the schedules say of a step out of `total`.
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

// On a GPU, a step whose shape recurs (rows padded to their full length, one micro-batch) is recorded and from then on
// launched as a whole. What changes from step to step is kept in memory: the batch, always at the same address, and the
// optimizer's rates. Everything else is passed by value in a StepSettings; the functions that compute see neither the
// plan nor the settings. A recording is replayed only for an equal pass. A pass that is new is computed launch by
// launch, which also allocates the memory it needs, and is recorded if it occurs again. This way no changing number can
// be forgotten: a step with random positions, or with annealed or otherwise changing rules, simply never equals an
// earlier one. Results are the same to the bit, since the same kernels read the same numbers.
class TrainStep {
 public:
  // Bytes that are worth a sum of their own while the rest is still computed: they travel about as long as its messages
  // take without them.
  static std::size_t worth_sending(const Group& group);
  struct Options {
    bool graphs = true;
    // The gradients of a layer's matrices are sent to the other ranks as soon as they are complete, at least this many
    // bytes at a time. Without a value, all are sent together at the end.
    std::optional<std::size_t> early_bytes = std::size_t{256} << 10;
  };
  TrainStep(Model& model, const TrainConfig& train, bool count_pads);
  TrainStep(Model& model, const TrainConfig& train, bool count_pads, const Options& options);

  // Takes all micro-batches of the step, in order; of those that other ranks compute (see own_batches) only the sizes
  // are used. Every rank ends with the same parameters, moments and keys. Returns loss and gradient norm, as a master
  // tensor [2] on the device that is valid until the next step.
  const Tensor& run(std::span<const Batch> batches, const StepPlan& plan);
  // The time spent so far on sums over the ranks: while something else was being computed, and while nothing was.
  struct Communication {
    double hidden_seconds = 0, open_seconds = 0;
  };
  Communication communication();
  std::int64_t replayed() const { return replayed_; }  // how many steps were launched as a whole
  // Which of a step's micro-batches this rank computes. There may be none, if other ranks use its experts.
  Block own_batches(std::int64_t of) const { return model_.context().mesh().micro_batches(group().rank(), of); }

 private:
  struct Kind {
    StepSettings pass;
    std::int64_t tokens = 0, rows = 0, longest = 0;
    const void* batch = nullptr;  // its address
    std::int64_t arena = 0;       // its generation: while this is equal, allocations get the same addresses
    std::int64_t keys = 0;        // likewise for the key stores
    bool operator==(const Kind&) const = default;
  };
  struct Recording {
    Kind kind;
    some::cuda::Graph graph;
  };

  const Group& group() const { return model_.context().group; }
  std::int64_t passes_of_group(std::int64_t of) const;  // the most of any rank that shares its experts with this one
  StepSums sums(const StepSettings& pass);              // the tensors into which the model adds
  void begin(const StepSettings& pass);
  void add_batch(const DeviceBatch& batch, const StepSettings& pass, const Model::MatricesReady& ready = {});
  void add_loss(const Tensor& nll, const StepSettings& pass);
  void plan_early(const Options& options);
  // Not if ranks share the experts: they communicate during the passes, and the two exchanges would get mixed up.
  bool sends_early() const { return !early_.empty() && !group().alone() && model_.context().expert_group.alone(); }
  void add_last_batch(const DeviceBatch& batch, const StepSettings& pass, StepSums& added);
  void add_late(StepSums& added);
  void settle_late_marks(std::size_t most);
  void finish(const StepSettings& pass);
  void run_or_replay(const DeviceBatch& batch, Kind kind);
  void compute(const DeviceBatch& batch, const StepSettings& pass);

  Model& model_;
  const TrainConfig train_;
  const bool count_pads_, graphs_;
  Tensor rates_, outcome_;
  AdamSettings adam_;                  // what is the same in every step; the rest is in rates_
  std::vector<Recording> recordings_;  // the most recently used comes last
  std::int64_t replayed_ = 0;
  SumTree tree_;
  // Which parts of the gradients are sent when a layer is done (indexed by layer, with the head last), and which remain
  // until the end.
  std::vector<std::vector<Block>> early_;
  std::vector<Block> late_;
  std::unique_ptr<AsyncAllReduce> courier_;
  // If the GPU's own stream does the sending: when it began and ended, until the times can be read.
  std::deque<std::pair<some::cuda::Event, some::cuda::Event>> late_marks_;
  double late_seconds_ = 0;
};

}  // namespace some
