// One step of training (spec 5): gradients of one or several micro-batches, on one or several ranks, AdamW, key update
// (spec 4).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/graph.h"
#include "base/rooms.h"
#include "model/model.h"
#include "ops/optimizer.h"
#include "train/courier.h"
#include "train/recipe.h"
#include "train/step_sums.h"

namespace some::train {

// What the schedules say of a step.
struct StepPlan {
  std::int64_t step = 0;  // counted from 0
  double lr = 0;
  int top_k = 0;                    // 0: the configured one
  double temperature = 0;           // 0: train_temp
  std::int64_t moments_before = 0;  // steps that AdamW's moments had seen when the run began
  double progress = 0;              // in [0, 1], for the annealing of beta
};

// On a GPU, a step of a shape that comes again (rows laid out to their full length, one micro-batch) is recorded and
// from then on launched as one piece. What changes with every step lies in memory: the batch, put to the same place,
// and the optimizer's rates. Everything else that a step is given, it is given by value in a TrainPass: the functions
// that compute see nothing of the plan or the settings. A recording is played again only for an equal pass; another
// one is computed launch by launch, which also takes the memory it needs, and recorded when it comes again. So a number
// that changes cannot be forgotten: a step of random positions, of annealed or of otherwise changing rules is simply
// never equal to one before it. The results are the same to the bit: the same kernels read the same numbers.
class TrainStep {
 public:
  // Bytes that are worth a sum of their own while the rest is still computed: they travel about as long as its messages
  // take without them.
  static std::size_t worth_sending(const Group& group);
  struct Options {
    bool graphs = true;
    // Gradients of a layer's matrices leave for the other ranks as soon as they are complete, so many bytes at least at
    // a time; nothing: all of them together, when the last is.
    std::optional<std::size_t> early_bytes = std::size_t{256} << 10;
  };
  TrainStep(Model& model, const TrainConfig& train, bool count_pads);
  TrainStep(Model& model, const TrainConfig& train, bool count_pads, const Options& options);

  // All micro-batches of the step, in order; those that other ranks compute are only counted (own_batches). Every rank
  // ends with the same parameters, moments and keys. Returns loss and gradient norm: master [2], on the device, until
  // the next step.
  const Tensor& run(std::span<const Batch> batches, const StepPlan& plan);
  // Time spent on adding up over the ranks so far: while something else was computed, and while nothing was.
  struct Communication {
    double hidden_seconds = 0, open_seconds = 0;
  };
  Communication communication();
  std::int64_t replayed() const { return replayed_; }  // steps that were launched as one piece
  // Of a step's micro-batches, those that this rank computes. It may be none where others use its experts.
  Block own_batches(std::int64_t of) const { return block_of(of, group().rank(), group().size()); }

 private:
  struct Kind {
    TrainPass pass;
    std::int64_t tokens = 0, rows = 0, longest = 0;
    const void* batch = nullptr;  // where it lies
    std::int64_t arena = 0;       // what is allocated from it lies where it lay
    std::int64_t keys = 0;        // likewise the key stores
    bool operator==(const Kind&) const = default;
  };
  struct Recording {
    Kind kind;
    some::cuda::Graph graph;
  };

  const Group& group() const { return model_.context().group; }
  std::int64_t passes_of_group(std::int64_t of) const;  // of the ranks that hold the experts together, the most
  StepSums sums(const TrainPass& pass);                 // where the model adds up
  void begin(const TrainPass& pass);
  void add_batch(const DeviceBatch& batch, const TrainPass& pass, const Model::MatricesReady& ready = {});
  void plan_early(const Options& options);
  // Where ranks hold the experts together, they talk to each other inside of the passes.
  bool sends_early() const { return !early_.empty() && !group().alone() && model_.context().expert_group.alone(); }
  void add_last_batch(const DeviceBatch& batch, const TrainPass& pass, StepSums& added);
  void add_late(StepSums& added);
  void settle_late_marks(std::size_t most);
  void finish(const TrainPass& pass);
  void run_or_replay(const DeviceBatch& batch, Kind kind);
  void compute(const DeviceBatch& batch, const TrainPass& pass);

  Model& model_;
  const TrainConfig train_;
  const bool count_pads_, graphs_;
  Tensor rates_, outcome_;
  AdamSettings adam_;                  // what is the same in every step; the rest is in rates_
  std::vector<Recording> recordings_;  // the latest played last
  std::int64_t replayed_ = 0;
  SumTree tree_;
  // Which parts of the gradients leave when a layer is done (by its number; the head's comes last in the list), and
  // what is left at the end.
  std::vector<std::vector<Block>> early_;
  std::vector<Block> late_;
  std::unique_ptr<Courier> courier_;
  // On a GPU whose stream does the sending, when it began and ended, until that is known.
  std::deque<std::pair<some::cuda::Event, some::cuda::Event>> late_marks_;
  double late_seconds_ = 0;
};

}  // namespace some::train
