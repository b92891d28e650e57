// Training of a run folder (spec 5), from its beginning or from its last checkpoint.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "runs/checkpoint.h"
#include "runs/load_file.h"
#include "runs/metrics.h"
#include "runs/run.h"
#include "runs/run_lock.h"
#include "runs/train_state.h"
#include "train/initialize_from.h"
#include "train/rate.h"
#include "train/remember.h"
#include "train/stage.h"
#include "train/step.h"

namespace some {

struct TrainProgress {
  std::int64_t step = 0, total_steps = 0;
  int epoch = 0, epochs = 0;  // of the stage, where there are some
  std::int64_t stage = 0, stages = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_second = 0, slots_per_second = 0, operations_per_second = 0;
  double matrix_rate = 0;  // of this GPU, measured; 0 on a CPU
  double seconds_left = 0;
};

struct TrainHooks {
  Log log;
  Group group;  // the ranks that share the work of each step
  // Ranks that train other runs at the same time: cores and GPUs of a machine are for all of them.
  Group neighbours;
  std::function<void(const TrainProgress&)> step;  // after each step whose loss was read back
  std::function<void(const EvaluationReport&)> evaluated;
  std::function<void(const StageReport&)> stage_ended;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> prepare;
  // While the memory that a recipe asks for is built, after training.
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> remember;
  std::function<int()> stop_signal;         // 0: go on; otherwise the number of a signal: finish the step, save, return
  std::function<void(bool begins)> saving;  // a checkpoint is being written, or was
};

struct TrainResult {
  std::int64_t steps = 0;
  int stopped_by = 0;  // signal number; 0: the run is finished
  bool stopped_early = false;
  bool was_finished = false;                   // already before this call
  std::optional<Evaluation> final_evaluation;  // the last one of this call
  RunData data;                                // what was taken of the texts
  // Of a run with stages: their names, and what those that are over left behind.
  std::vector<std::string> stage_titles;
  std::vector<StageEnd> stage_ends;
  std::optional<TrainingRemembered> memory;  // where the recipe asks for one, on rank 0
};

struct ResumeOptions {
  // What may differ: the machine's settings, for this sitting; and those that make the run longer or say what is
  // looked at and written (SettingRole), for good.
  std::vector<std::string> changes;
  std::optional<std::int64_t> from_step;  // the checkpoint to go on from; nothing: the last one
};

// A run in training. It holds the run folder for itself as long as it lives.
//
// On several ranks each has a trainer, and all are called alike. They share the micro-batches of every step
// (train/step_sums.h) and are otherwise the same to the bit; but only rank 0 reads and writes the run folder, and it
// gives the others what it found there. A rank on which something else than CommonFailure is thrown must end them all
// (Group::abort_all): the others wait for it.
//
// run() does everything that the recipe says. A caller with a mind of its own takes its parts: step() as often as
// wanted, evaluate() and save() when wanted, or run_scheduled() after a step for what the recipe wants then. However
// they are called, a run that is stopped and resumed computes what one without a stop computes, to the bit.
class Trainer {
 public:
  // A new run. Makes the folder (bad_input when it already holds a run); nothing is written when the recipe or the data
  // are wrong. `from`: it begins with the weights and keys of another run, and its first checkpoint is written at once.
  static std::unique_ptr<Trainer> start(const Recipe& recipe, const std::string& folder, TrainHooks hooks = {},
                                        const std::optional<FromOptions>& from = std::nullopt);
  // Goes on from the last checkpoint, or from the beginning where none was ever written. Nothing of the run is lost
  // because something could not be read: a checkpoint that is gone or damaged is an error that names what there is.
  static std::unique_ptr<Trainer> resume(const std::string& folder, const ResumeOptions& options,
                                         TrainHooks hooks = {});
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  bool finished() const { return state_.finished; }
  std::int64_t steps() const { return state_.step; }  // made so far
  std::int64_t total_steps() const;
  const Recipe& recipe() const { return training_stage().recipe; }  // of the stage, where there are some
  const Tokenizer& tokenizer() const { return training_stage().tokenizer; }
  Model& model() { return *model_; }
  // Of the last step. On a GPU it is waited for.
  double loss();
  double gradient_norm();

  void step();
  // On the validation text, and into the metrics; once at a step.
  const EvaluationReport& evaluate();
  // A checkpoint; surplus ones are removed.
  void save();
  // What the recipe wants after the step just made: key positions, an evaluation, the end of an epoch, a checkpoint.
  void run_scheduled();
  // To the end, or until a signal comes. The memory that a recipe asks for is built by remember_result(), best when the
  // trainer is gone and its device memory free again; start_run() and resume_run() do that.
  TrainResult run();
  const std::string& folder() const { return paths_.folder; }

 private:
  Trainer(std::shared_ptr<Context> ctx, const std::string& folder, std::unique_ptr<RunLock> lock,
          std::vector<TrainingStage> training_stages, TrainHooks hooks);
  // The run walks its courses, one a stage, one after the other.
  const TrainingStage& training_stage() const { return courses_.at(static_cast<std::size_t>(state_.stage)); }
  std::optional<StageTag> stage_tag() const;
  void enter_stage();  // model and step as the stage's settings have them
  void enter_next_stage();
  void end_stage();
  void begin();
  const Group& group() const { return ctx_->group; }
  void share_beginning();  // from rank 0 to all: the state, and all that learns
  std::uint64_t text_hash() const;
  void change_recipe(const Recipe& lasting, const TrainConfig& before);
  void remember_keys();
  void evaluate_the_beginning();
  void load(const CheckpointName& checkpoint, const std::map<std::string, std::string>& written);
  void compare_with_checkpoint(const TrainState& now, const std::map<std::string, std::string>& written) const;
  void write_checkpoint();  // on rank 0, by itself
  [[noreturn]] void stop_not_finite(const std::string& what);
  std::optional<CheckpointName> last_good_checkpoint();

  // On a GPU losses are read back once in a while, so that the host never waits inside a step.
  std::int64_t flush_steps() const;
  void flush();
  double epochs_at(std::int64_t step) const;  // of the whole run
  TrainLine train_line(std::int64_t step, double lr);
  void close_epoch();
  void remove_surplus();
  void show_progress();
  void write_rates();
  void write_timing(std::int64_t first_step, double seconds);

  std::unique_ptr<RunLock> lock_;
  RunPaths paths_;
  std::vector<TrainingStage> courses_;
  TrainHooks hooks_;
  std::shared_ptr<Context> ctx_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainStep> step_;
  std::optional<BatchLoader> loader_;   // from the first step on
  std::optional<MetricsFile> metrics_;  // once it is known which lines stand; on rank 0
  std::optional<LoadFile> load_;        // likewise
  TrainState state_;
  std::vector<Tensor> start_keys_;
  Tensor losses_;  // [n, 2]: loss and gradient norm of the steps not yet read back
  struct Pending {
    std::int64_t step;
    double lr;
  };
  std::vector<Pending> pending_;
  double last_loss_ = 0, last_norm_ = 0, last_lr_ = 0;
  std::optional<EvaluationReport> evaluation_;  // the last one
  std::optional<std::int64_t> saved_at_;
  RateMeter rate_;
  std::chrono::steady_clock::time_point session_start_;  // with its first step
  double matrix_rate_ = 0;
};

TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks,
                      const std::optional<FromOptions>& from = std::nullopt);
// What a kill right after the last checkpoint left undone in a run that is finished: marks, surplus, half-written
// files.
void settle_finished_run(const std::string& folder);
TrainResult resume_run(const std::string& folder, const ResumeOptions& options, const TrainHooks& hooks);

}  // namespace some
