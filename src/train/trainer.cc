#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "core/heartbeat.h"
#include "model/operations.h"
#include "ops/optimizer.h"
#include "recipe/schedule.h"
#include "runs/checkpoint.h"
#include "tensor/device.h"
#include "train/matrix_rate.h"
#include "train/samples.h"

namespace some {
namespace {

bool all_finite(Model& model) {
  Context& ctx = model.context();
  Tensor norm = Tensor::zeros({1}, ctx.master, ctx.device);
  gradient_norm(ctx, model.parameters().value, norm);
  if (!std::isfinite(read_vector(norm)[0])) return false;
  for (const Layer& layer : model.layers()) {
    if (!layer.keys.keys) continue;
    for (const double number : read_vector(layer.keys.keys)) {
      if (!std::isfinite(number)) return false;
    }
  }
  return true;
}

class Saving {
 public:
  explicit Saving(const TrainHooks& hooks) : hooks_(hooks) {
    if (hooks_.saving) hooks_.saving(true);
  }
  ~Saving() {
    if (hooks_.saving) hooks_.saving(false);
  }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

 private:
  const TrainHooks& hooks_;
};

}  // namespace

Trainer::Trainer(std::shared_ptr<Context> ctx, const std::string& folder, std::unique_ptr<RunLock> lock,
                 std::vector<TrainingStage> training_stages, TrainHooks hooks)
    : lock_(std::move(lock)),
      paths_{folder},
      stages_(std::move(training_stages)),
      hooks_(std::move(hooks)),
      ctx_(std::move(ctx)) {
  if (stages_.size() > 1 || !training_stage().title.empty()) state_.stages = static_cast<std::int64_t>(stages_.size());
  model_ = std::make_unique<Model>(ctx_, recipe().model, true);
  enter_stage();
  save_start_keys();
  losses_ = Tensor::zeros({flush_steps(), 2}, ctx_->master, ctx_->device);
  state_.computed_by = computed_by(*ctx_);
  if (ctx_->device.is_cuda()) matrix_rate_ = measure_gemm_rate(*ctx_);  // takes about 0.1 s
}

// Saves the initial keys of the run, from which movement is measured.
void Trainer::save_start_keys() {
  start_keys_.clear();
  if (recipe().model.ffn != Ffn::some) return;
  for (Layer& layer : model_->layers()) start_keys_.push_back(layer.keys.keys.to(Device::cpu).clone());
}

std::int64_t Trainer::total_steps() const {
  std::int64_t steps = state_.stage_begin + training_stage().steps;
  for (std::size_t i = static_cast<std::size_t>(state_.stage) + 1; i < stages_.size(); ++i) steps += stages_[i].steps;
  return steps;
}

double Trainer::epochs_at(std::int64_t step) const {
  return static_cast<double>(state_.epochs_before) + training_stage().epochs_at(step - state_.stage_begin);
}

std::optional<StageTag> Trainer::stage_tag() const {
  if (state_.stages == 0) return std::nullopt;
  return StageTag{state_.stage + 1, training_stage().title};
}

void Trainer::enter_stage() {
  model_->change_settings(recipe().model);
  step_ = std::make_unique<TrainStep>(*model_, recipe().train, recipe().data.count_pads);
  loader_.reset();
}

// Weights, keys and moments continue; the schedule and the search for the best checkpoint restart. The initial loss on
// the new text is known from the end of the previous stage.
void Trainer::enter_next_stage() {
  const std::int64_t per_epoch = training_stage().steps_per_epoch;
  state_.epochs_before += (state_.step_in_stage() + per_epoch - 1) / per_epoch;
  state_.stage += 1;
  state_.stage_begin = state_.step;
  state_.best = state_.ends.back().losses.at(static_cast<std::size_t>(state_.stage));
  state_.best_step = state_.step;
  state_.since_best = 0;
  state_.line_loss = 0;
  state_.line_steps = 0;
  enter_stage();
}

// Ends a stage, and the run if it was the last one. Evaluates the validation text of every stage.
void Trainer::end_stage() {
  state_.finished = state_.stage + 1 == static_cast<std::int64_t>(stages_.size());
  if (state_.stages == 0) return;
  StageReport report{state_.step, epochs_at(state_.step), *stage_tag(), {}};
  StageEnd end{state_.step, {}};
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const TrainingStage& one = stages_[i];
    StageReport::OnText text{{static_cast<std::int64_t>(i) + 1, one.title}, {}, 0};
    try {
      text.evaluation = static_cast<std::int64_t>(i) == state_.stage
                            ? evaluate().evaluation
                            : some::evaluate(*model_, one.valid, one.evaluation);
    } catch (const LossNotFinite& error) {
      stop_not_finite(
          fmt::format("the validation loss of {} became {} at step {}", one.title, error.loss(), state_.step));
    }
    text.loss = text.evaluation.headline(one.evaluation);
    end.losses.push_back(text.loss);
    report.texts.push_back(std::move(text));
  }
  state_.ends.push_back(std::move(end));
  if (metrics_) metrics_->write(report);
  if (hooks_.stage_ended) hooks_.stage_ended(report);
}

std::int64_t Trainer::flush_steps() const { return ctx_->device.is_cuda() ? 16 : 1; }

double Trainer::loss() {
  flush();
  return last_loss_;
}

double Trainer::gradient_norm() {
  flush();
  return last_norm_;
}

void Trainer::step() {
  if (state_.finished) failed(Code::run_finished, "{} is finished: no steps are left", paths_.folder);
  if (state_.stage_is_over()) enter_next_stage();
  const TrainConfig& train = recipe().train;
  const std::int64_t step = state_.step, own = state_.step_in_stage();
  const bool epoch_begins = own % training_stage().steps_per_epoch == 0;
  if (epoch_begins && own > 0 && state_.epoch_closed_at != step) close_epoch();
  if (!loader_) {
    const Block mine = step_->own_micro_batches(train.accumulate);
    loader_.emplace(training_stage().train, training_stage().batches, train.batch, recipe().seed,
                    training_stage().first_batch(own), BatchShare{train.accumulate, mine.begin, mine.end});
    rate_.restart(step);
    session_start_ = std::chrono::steady_clock::now();
    if (group().root() && !machine_use_) machine_use_.emplace(ctx_->device);
  } else if (epoch_begins) {
    // Every epoch has its own order.
    for (std::int64_t i = 0; i < training_stage().spare; ++i) loader_->next();
  }
  std::vector<Batch> batches;
  for (int i = 0; i < train.accumulate; ++i) {
    const Batch& batch = batches.emplace_back(loader_->next());
    rate_.add(static_cast<double>(batch.real_tokens), static_cast<double>(batch.slots),
              count_operations(recipe().model, batch).total());
  }
  StepPlan plan = plan_step(train, recipe().model, own, training_stage().steps, training_stage().steps_per_epoch);
  plan.step = step;
  plan.moments_before = state_.moments_before;
  losses_.view(2 * static_cast<std::int64_t>(pending_.size()), {2}).copy_from(step_->run(batches, plan));
  pending_.push_back({step, plan.lr});
  last_lr_ = plan.lr;
  state_.step = step + 1;
  // Measures of a line are those of its own step, so losses are read back then too.
  if (static_cast<std::int64_t>(pending_.size()) == flush_steps() || state_.step % train.measure_every == 0) flush();
  if (pending_.empty()) {
    rate_.mark(state_.step);
    show_progress();
    if (state_.step % train.measure_every == 0 || state_.step_in_stage() == training_stage().steps) write_rates();
    if (first_steps_) rate_.restart(state_.step);
    first_steps_ = false;
  }
}

TrainLine Trainer::train_line(std::int64_t step, double lr) {
  TrainLine line;
  line.step = step;
  line.epoch = epochs_at(step);
  line.stage = stage_tag();
  line.loss = state_.line_loss / static_cast<double>(state_.line_steps);
  line.lr = lr;
  line.gradient_norm = last_norm_;
  const ModelConfig& model = recipe().model;
  if (model.ffn != Ffn::some) return line;
  // Balance loss and entropy band, if used; of this step only, like the gradient norm.
  if (model.balance_loss > 0 || model.entropy_high >= 0) line.auxiliary_loss = read_vector(model_->auxiliary_loss())[0];
  // The cheap measures: one read of E numbers per layer.
  std::vector<std::vector<double>> usage;
  for (Layer& layer : model_->layers()) {
    usage.push_back(read_vector(layer.keys.usage));
    line.layers.push_back(usage_measures(usage.back()));
  }
  if (step % load_every(total_steps(), recipe().train.measure_every) == 0) load_->write(step, usage);
  return line;
}

// Reads back the losses of the last steps and writes their metrics lines.
void Trainer::flush() {
  if (pending_.empty()) return;
  const std::vector<double> values = read_vector(losses_);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    last_loss_ = values[2 * i];
    last_norm_ = values[2 * i + 1];
    const std::int64_t step = pending_[i].step + 1;
    if (!std::isfinite(last_loss_) || !std::isfinite(last_norm_))
      stop_not_finite(fmt::format("the loss became {} (gradient norm {}) at step {}", last_loss_, last_norm_, step));
    state_.epoch_loss += last_loss_;
    state_.epoch_steps += 1;
    state_.line_loss += last_loss_;
    state_.line_steps += 1;
    if (step % recipe().train.measure_every == 0 || step - state_.stage_begin == training_stage().steps) {
      if (metrics_) metrics_->write(train_line(step, pending_[i].lr));
      state_.line_loss = 0;
      state_.line_steps = 0;
    }
  }
  pending_.clear();
}

const EvaluationReport& Trainer::evaluate() {
  flush();
  if (evaluation_ && evaluation_->step == state_.step) return *evaluation_;
  EvaluationReport report;
  report.step = state_.step;
  report.epoch = epochs_at(state_.step);
  report.stage = stage_tag();
  report.options = training_stage().evaluation;
  try {
    report.evaluation = some::evaluate(*model_, training_stage().valid, report.options);
  } catch (const LossNotFinite& error) {
    stop_not_finite(fmt::format("the validation loss became {} at step {}", error.loss(), state_.step));
  }
  report.layers = layer_measures(*model_, report.evaluation.layers, start_keys_);
  report.middle_layer = recipe().model.layers / 2;
  if (metrics_) metrics_->write(report);
  if (recipe().train.save_keys_every == 0 && group().root())
    save_key_positions(paths_.folder, run_id_, state_.step, *model_);
  const double headline = report.evaluation.headline(report.options);
  if (headline < state_.best) {
    state_.best = headline;
    state_.best_step = state_.step;
    state_.since_best = 0;
  } else {
    state_.since_best += 1;
  }
  evaluation_ = std::move(report);
  if (hooks_.evaluated) hooks_.evaluated(*evaluation_);
  if (recipe().train.samples > 0) write_samples();
  return *evaluation_;
}

void Trainer::write_samples() {
  const SampleReport report{state_.step, epochs_at(state_.step), stage_tag(), draw_samples(*model_, training_stage())};
  if (samples_ && metrics_) metrics_->show_samples(samples_->write(report));
  if (hooks_.sampled) hooks_.sampled(report);
}

void Trainer::save() {
  flush();
  if (saved_at_ == state_.step) return;
  if (!all_finite(*model_)) stop_not_finite(fmt::format("the parameters are not finite after step {}", state_.step));
  group().all_or_none([&] {
    if (group().root()) write_checkpoint();
  });
  saved_at_ = state_.step;
}

void Trainer::write_checkpoint() {
  const Saving saving(hooks_);
  const WatchdogPause waits;  // disks may be slow
  // Everything a checkpoint refers to must be on disk first: lines and texts, and the key positions, which are flushed
  // when written.
  load_->flush();
  samples_->flush();
  state_.samples_bytes = samples_->bytes();
  state_.samples_checksum = samples_->checksum();
  const std::string metrics = metrics_->flushed();
  state_.metrics_bytes = metrics_->bytes();
  state_.metrics_checksum = hex(checksum_of(metrics.data(), metrics.size()));
  save_checkpoint(paths_.folder, identity(), state_.step, *model_, to_json(state_), metrics);
  mark_latest(paths_.folder, state_.step);
  if (state_.best_step == state_.step) mark_best(paths_.folder, state_.step);
  remove_surplus();
}

// Keeps the best checkpoint according to the state, since the marker may be older than a kill, and the last checkpoint
// of each stage.
void Trainer::remove_surplus() { remove_surplus_checkpoints(paths_.folder, recipe().train.keep_checkpoints, state_); }

void remove_surplus_checkpoints(const std::string& folder, std::int64_t keep, const TrainState& state) {
  const auto all = list_checkpoints(folder);
  std::int64_t surplus = static_cast<std::int64_t>(all.size()) - keep;
  for (const CheckpointName& one : all) {
    if (surplus <= 0) break;
    const bool ends_a_stage =
        std::any_of(state.ends.begin(), state.ends.end(), [&](const StageEnd& end) { return end.step == one.step; });
    if (one.step == state.best_step || one.step == state.step || ends_a_stage) continue;
    remove_checkpoint(one);
    --surplus;
  }
}

std::optional<CheckpointName> Trainer::last_good_checkpoint() {
  auto all = list_checkpoints(paths_.folder);
  EvaluateOptions first_documents = training_stage().evaluation;
  first_documents.max_documents = first_documents.rows;
  first_documents.alone = true;
  for (; !all.empty(); all.pop_back()) {
    try {
      load_checkpoint(all.back(), identity(), *model_, false);
      // If other ranks hold some of the experts, a single rank can only check the parameters for finite values.
      if (ctx_->expert_group.alone())
        some::evaluate(*model_, training_stage().valid, first_documents);
      else if (!all_finite(*model_))
        continue;
      return all.back();
    } catch (const Error&) {
    }
  }
  return std::nullopt;
}

// Stops the run. A checkpoint is called good only after a check: one written before the loss was read back may already
// contain the cause. All ranks have seen the loss; rank 0 searches for the checkpoint.
void Trainer::stop_not_finite(const std::string& what) {
  std::string message;
  if (group().root()) {
    const WatchdogPause waits;
    const auto good = last_good_checkpoint();
    message = fmt::format(
        "{}: the run is stopped. {} To continue, lower train.lr, add train.warmup_steps, or set model.norm = \"pre\".",
        what,
        good ? fmt::format("The last good checkpoint is {}.", good->folder)
             : std::string("No usable checkpoint exists yet."));
  }
  group().broadcast(message);
  throw CollectiveError(Fault::failure, Code::loss_not_finite, message, {fmt::to_string(state_.step)});
}

// Ends an epoch: writes its mean training loss, then resets the choice counts.
void Trainer::close_epoch() {
  flush();
  EpochLine line{state_.step, state_.epochs_before + training_stage().epoch_of(state_.step_in_stage()), stage_tag(), 0};
  if (state_.epoch_steps > 0) line.train_loss = state_.epoch_loss / static_cast<double>(state_.epoch_steps);
  if (metrics_) metrics_->write(line);
  state_.epoch_loss = 0;
  state_.epoch_steps = 0;
  state_.epoch_closed_at = state_.step;
  for (Tensor& counts : model_->epoch_counts()) counts.zero();
}

void Trainer::show_progress() {
  if (!hooks_.step || !rate_.known()) return;
  const RateMeter::Rates rates = rate_.rates();
  TrainProgress progress;
  progress.step = state_.step;
  progress.total_steps = total_steps();
  progress.stage = state_.stage + 1;
  progress.stages = state_.stages;
  const std::int64_t per_epoch = training_stage().steps_per_epoch;
  progress.epoch = static_cast<int>(training_stage().epoch_of(state_.step_in_stage() - 1)) + 1;
  progress.epochs = static_cast<int>((training_stage().steps + per_epoch - 1) / per_epoch);
  progress.loss = last_loss_;
  progress.grad_norm = last_norm_;
  progress.lr = last_lr_;
  progress.tokens_per_second = rates.tokens;
  progress.slots_per_second = rates.slots;
  progress.operations_per_second = rates.operations;
  progress.matrix_rate = matrix_rate_;
  if (!first_steps_)
    progress.seconds_left =
        rates.step_seconds * static_cast<double>(total_steps() - state_.step) + evaluation_seconds_left();
  hooks_.step(progress);
}

// Evaluations of this stage and of later ones; at the end of a stage every text is evaluated.
double Trainer::evaluation_seconds_left() const {
  const auto tokens = [](const TrainingStage& stage) { return static_cast<double>(stage.use.valid.used); };
  double left = 0, all_texts = 0;
  for (const TrainingStage& stage : stages_) all_texts += tokens(stage);
  for (std::size_t i = static_cast<std::size_t>(state_.stage); i < stages_.size(); ++i) {
    const TrainingStage& stage = stages_[i];
    const std::int64_t done = static_cast<std::int64_t>(i) == state_.stage ? state_.step_in_stage() : 0;
    left += tokens(stage) * static_cast<double>(evaluations_left(done, stage.steps, stage.steps_per_epoch,
                                                                 stage.recipe.train.eval_every));
    if (state_.stages > 0 && done < stage.steps) left += all_texts - tokens(stage);
  }
  return pauses_.seconds(left, rate_.rates());
}

void Trainer::run_scheduled() {
  const TrainConfig& train = recipe().train;
  const auto every = [&](std::int64_t steps) { return steps > 0 && state_.step % steps == 0; };
  const bool last = state_.step_in_stage() == training_stage().steps;
  const bool epoch_ends = last || state_.step_in_stage() % training_stage().steps_per_epoch == 0;
  // Every N-th step is counted over the whole run, equal distances in each stage.
  const bool evaluates = epoch_ends || evaluation_is_due(train.eval_every > 0 ? state_.step : state_.step_in_stage(),
                                                         training_stage().steps, train.eval_every);
  bool stop_early = false;
  const auto begin = std::chrono::steady_clock::now();
  if (every(train.save_keys_every) && group().root()) save_key_positions(paths_.folder, run_id_, state_.step, *model_);
  if (evaluates) {
    evaluate();
    stop_early = train.patience > 0 && state_.since_best >= train.patience;
  }
  if (epoch_ends) close_epoch();
  if (last || stop_early) end_stage();
  if (epoch_ends || stop_early || every(train.checkpoint_every) || state_.best_step == state_.step) {
    save();
    rate_.restart(state_.step);
  }
  if (evaluates) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    pauses_.add(seconds.count(), static_cast<double>(training_stage().use.valid.used));
    rate_.restart(state_.step);  // an evaluation is not a part of a step
  }
  if (stop_early && !last) {
    ctx_->log.info("{}stopped early: {} evaluations without improvement (best {:.4f} at step {})",
                   state_.stages > 0 ? training_stage().title + ": " : "", state_.since_best, state_.best,
                   *state_.best_step);
  }
}

// Evaluates a run initialized from another one before its first step: this may be its best loss.
void Trainer::evaluate_initial() {
  if (!recipe().from || state_.step > 0 || state_.best_step) return;
  evaluate();
  saved_at_.reset();
  save();
}

TrainResult Trainer::run() {
  const auto started = std::chrono::steady_clock::now();
  const std::int64_t first = state_.step;
  TrainResult result;
  result.was_finished = state_.finished;
  evaluate_initial();
  while (!state_.finished) {
    step();
    run_scheduled();
    // A signal to any rank stops all, after the same step.
    const int signal = static_cast<int>(group().all_reduce_max(hooks_.stop_signal ? hooks_.stop_signal() : 0));
    if (signal != 0 && !state_.finished) {
      save();
      result.stopped_by = signal;
      break;
    }
  }
  flush();
  write_timing(first, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  result.steps = state_.step;
  result.data = use_of_texts(stages_);
  result.stopped_early = !result.was_finished && state_.finished && state_.step < total_steps();
  result.stage_ends = state_.ends;
  if (state_.stages > 0) {
    for (const TrainingStage& one : stages_) result.stage_titles.push_back(one.title);
  }
  if (evaluation_) result.final_evaluation = evaluation_->evaluation;
  return result;
}

// Writes throughput and elapsed time, for monitoring.
void Trainer::write_rates() {
  if (!group().root()) return;
  if (!rate_.known()) return;
  const RateMeter::Rates rates = rate_.rates();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - session_start_).count();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  nlohmann::json line{{"step", state_.step},
                      {"seconds", seconds},
                      {"unix_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
                      {"tokens_per_second", rates.tokens},
                      {"operations_per_second", rates.operations}};
  if (matrix_rate_ > 0) line["matrix_rate"] = matrix_rate_;
  if (const auto use = machine_use_->sample()) {
    line["cpu_cores"] = use->cpu_cores;
    line["memory_bytes"] = use->memory_bytes;
    if (use->gpu_utilization) line["gpu_utilization"] = *use->gpu_utilization;
    if (use->gpu_memory_bytes) line["gpu_memory_bytes"] = *use->gpu_memory_bytes;
    if (use->gpu_watts) line["gpu_watts"] = *use->gpu_watts;
  }
  append_line(paths_.rates(), line.dump());
}

void Trainer::write_timing(std::int64_t first_step, double seconds) {
  if (!group().root()) return;
  const nlohmann::json line{{"from_step", first_step},
                            {"to_step", state_.step},
                            {"finished", state_.finished},
                            {"seconds", seconds},
                            {"real_tokens", rate_.tokens()},
                            {"slots", rate_.slots()},
                            {"operations", rate_.operations()},
                            {"device", name_of(ctx_->device)},
                            {"computed_by", state_.computed_by},
                            {"arena_bytes", ctx_->arena->peak_bytes()},
                            {"ranks", group().size()}};
  append_line(paths_.timing(), line.dump());
  flush_file(paths_.timing());
}

}  // namespace some
