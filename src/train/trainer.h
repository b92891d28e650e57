// Trains a run folder (spec 5), from its beginning or from its last checkpoint.
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
#include "runs/samples_file.h"
#include "runs/train_state.h"
#include "runtime/machine_use.h"
#include "train/initialize_from.h"
#include "train/rate.h"
#include "train/remember.h"
#include "train/stage.h"
#include "train/step.h"

namespace some {

struct TrainProgress {
  std::int64_t step = 0, total_steps = 0;
  int epoch = 0, epochs = 0;  // of the stage if the run has stages
  std::int64_t stage = 0, stages = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_second = 0, slots_per_second = 0, operations_per_second = 0;
  double matrix_rate = 0;  // of this GPU, measured; 0 on a CPU
  // Training and evaluations; not after the first steps of a session, which take longer.
  std::optional<double> seconds_left;
};

struct TrainHooks {
  Log log;
  Group group;  // ranks that share the work of each step
  // Ranks that train other runs at the same time and share the cores and GPUs of the machine.
  Group neighbours;
  std::function<void(const TrainProgress&)> step;  // after each step whose loss was read back
  std::function<void(const EvaluationReport&)> evaluated;
  std::function<void(const SampleReport&)> sampled;  // after an evaluation, if the recipe requests samples
  std::function<void(const StageReport&)> stage_ended;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> prepare;
  // During the build of the memory that a recipe requests, after training.
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> remember;
  std::function<int()> stop_signal;         // 0: continue; otherwise a signal number: finish the step, save, return
  std::function<void(bool begins)> saving;  // called before and after a checkpoint is written
};

struct TrainResult {
  std::int64_t steps = 0;
  int stopped_by = 0;  // signal number; 0: the run is finished
  bool stopped_early = false;
  bool was_finished = false;                   // already before this call
  std::optional<Evaluation> final_evaluation;  // the last one of this call
  RunData data;                                // amount of text used
  // For a run with stages: their titles, and the results of finished ones.
  std::vector<std::string> stage_titles;
  std::vector<StageEnd> stage_ends;
  std::optional<TrainingMemoryReport> memory;  // if the recipe requests one, on rank 0
};

struct ResumeOptions {
  // Overrides: the machine's settings, for this session; and settings that make the run longer or change what is
  // measured and written (SettingRole), permanently.
  std::vector<std::string> changes;
  std::optional<std::int64_t> from_step;  // checkpoint to resume from; empty: the last one
};

// A run in training. It holds the lock of the run folder during its lifetime.
//
// With several ranks, each has a trainer, and all must make the same calls. They share the micro-batches of every step
// (train/step_sums.h) and otherwise compute bit-identical results. Only rank 0 reads and writes the run folder, and it
// sends the others what it read. If a rank throws anything other than CollectiveError it must abort all ranks
// (Group::abort_all), since the others wait for it.
//
// run() executes the whole recipe. Alternatively, call step() as often as needed, and evaluate() and save(), or
// run_scheduled() after a step for everything the recipe schedules then. In either case, a run that was stopped and
// resumed is bit-identical to one without a stop.
class Trainer {
 public:
  // Starts a new run. Creates the folder (bad_input if it already holds a run); writes nothing if recipe or data are
  // invalid. `from`: initializes weights and keys from another run, and writes the first checkpoint at once.
  static std::unique_ptr<Trainer> start(const Recipe& recipe, const std::string& folder, TrainHooks hooks = {},
                                        const std::optional<FromOptions>& from = std::nullopt);
  // Resumes from the last checkpoint, or from the beginning if there never was one. Missing or damaged checkpoints are
  // errors that name the remaining ones, so that unreadable files never lose a run's progress.
  static std::unique_ptr<Trainer> resume(const std::string& folder, const ResumeOptions& options,
                                         TrainHooks hooks = {});
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  bool finished() const { return state_.finished; }
  std::int64_t steps() const { return state_.step; }  // completed so far
  std::int64_t total_steps() const;
  const Recipe& recipe() const { return training_stage().recipe; }  // of the stage if the run has stages
  const Tokenizer& tokenizer() const { return training_stage().tokenizer; }
  Model& model() { return *model_; }
  // Loss and gradient norm of the last step. Waits for the GPU.
  double loss();
  double gradient_norm();

  void step();
  // Evaluates on the validation text and writes the metrics; at most once per step.
  const EvaluationReport& evaluate();
  // Writes a checkpoint and removes surplus ones.
  void save();
  // Does what the recipe schedules after the last step: key positions, an evaluation, the end of an epoch, a
  // checkpoint.
  void run_scheduled();
  // Trains to the end, or until a signal. A memory requested by the recipe is built by build_requested_memory(),
  // preferably after the trainer is destroyed and its device memory is free; start_run() and resume_run() do that.
  TrainResult run();
  const std::string& folder() const { return paths_.folder; }

 private:
  Trainer(std::shared_ptr<Context> ctx, const std::string& folder, std::unique_ptr<RunLock> lock,
          std::vector<TrainingStage> training_stages, TrainHooks hooks);
  // Stages are trained in order; a run without stages has a single one.
  const TrainingStage& training_stage() const { return stages_.at(static_cast<std::size_t>(state_.stage)); }
  std::optional<StageTag> stage_tag() const;
  void enter_stage();  // applies the stage's settings to model and step
  void enter_next_stage();
  void end_stage();
  void begin();
  const Group& group() const { return ctx_->group; }
  void broadcast_state();  // broadcasts the state and all learned tensors from rank 0
  std::uint64_t text_hash() const;
  RunIdentity identity() const { return {run_id_, hex(tokenizer().hash())}; }
  void change_recipe(const Recipe& lasting, const TrainConfig& before);
  void save_start_keys();
  void evaluate_initial();
  void load(const CheckpointName& checkpoint, const std::map<std::string, std::string>& written);
  void compare_with_checkpoint(const TrainState& now, const std::map<std::string, std::string>& written) const;
  void write_checkpoint();  // on rank 0 only
  [[noreturn]] void stop_not_finite(const std::string& what);
  std::optional<CheckpointName> last_good_checkpoint();

  // On a GPU losses are read back once per several steps, so that the host never waits inside a step.
  std::int64_t flush_steps() const;
  void flush();
  double epochs_at(std::int64_t step) const;  // of the whole run
  TrainLine train_line(std::int64_t step, double lr);
  void write_samples();
  void close_epoch();
  void remove_surplus();
  void show_progress();
  double evaluation_seconds_left() const;
  void write_rates();
  void write_timing(std::int64_t first_step, double seconds);

  std::unique_ptr<RunLock> lock_;
  RunPaths paths_;
  std::vector<TrainingStage> stages_;
  TrainHooks hooks_;
  std::shared_ptr<Context> ctx_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainStep> step_;
  std::optional<BatchLoader> loader_;   // from the first step on
  std::optional<MetricsFile> metrics_;  // set when the lines to keep are known; on rank 0
  std::optional<LoadFile> load_;        // set at the same time
  std::optional<SamplesFile> samples_;  // set at the same time
  TrainState state_;
  std::string run_id_;  // on rank 0
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
  bool first_steps_ = true;                              // of this session: they allocate memory
  PauseMeter pauses_;                                    // evaluations, with the checkpoints after them
  std::chrono::steady_clock::time_point session_start_;  // with its first step
  double matrix_rate_ = 0;
  std::optional<MachineUse> machine_use_;  // on rank 0, for rates.jsonl
};

TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks,
                      const std::optional<FromOptions>& from = std::nullopt);
// Completes what a kill right after the last checkpoint of a finished run left undone: markers, surplus checkpoints,
// half-written files.
void complete_finished_run(const std::string& folder);
TrainResult resume_run(const std::string& folder, const ResumeOptions& options, const TrainHooks& hooks);

}  // namespace some
