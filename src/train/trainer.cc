#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <optional>

#include "base/device.h"
#include "base/files.h"
#include "data/outlook.h"
#include "model/operations.h"
#include "train/checkpoint.h"
#include "train/event_file.h"
#include "train/matrix_rate.h"
#include "train/run_lock.h"
#include "train/schedule.h"
#include "train/step.h"

namespace some::train {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What a run must remember besides parameters and keys to go on exactly where it stopped.
struct State {
  std::int64_t step = 0;  // optimizer steps done
  double epoch_loss = 0;  // sum of the losses of this epoch's steps
  std::int64_t epoch_steps = 0;
  double line_loss = 0;  // since the last metrics line
  std::int64_t line_steps = 0;
  double best = INFINITY;
  std::int64_t best_step = -1;
  std::int64_t since_best = 0;  // evaluations without improvement
  std::int64_t metrics_bytes = 0;
  std::uint64_t data_hash = 0;
  std::int64_t next_epoch_end = 0;  // epochs already closed
  bool finished = false;
};

nlohmann::json to_json(const State& s) {
  nlohmann::json out{{"step", s.step},
                     {"epoch_loss", s.epoch_loss},
                     {"epoch_steps", s.epoch_steps},
                     {"line_loss", s.line_loss},
                     {"line_steps", s.line_steps},
                     {"best_step", s.best_step},
                     {"since_best", s.since_best},
                     {"metrics_bytes", s.metrics_bytes},
                     {"data_hash", hex(s.data_hash)},
                     {"epochs_closed", s.next_epoch_end},
                     {"finished", s.finished}};
  if (std::isfinite(s.best)) out["best"] = s.best;
  return out;
}

State state_from(const nlohmann::json& j) {
  State s;
  s.step = j.at("step");
  s.epoch_loss = j.at("epoch_loss");
  s.epoch_steps = j.at("epoch_steps");
  s.line_loss = j.at("line_loss");
  s.line_steps = j.at("line_steps");
  if (j.contains("best")) s.best = j.at("best");
  s.best_step = j.at("best_step");
  s.since_best = j.at("since_best");
  s.metrics_bytes = j.at("metrics_bytes");
  s.data_hash = std::stoull(j.at("data_hash").get<std::string>(), nullptr, 16);
  s.next_epoch_end = j.at("epochs_closed");
  s.finished = j.at("finished");
  return s;
}

void check_enough_stories(std::int64_t stories, const TrainConfig& train) {
  if (stories / train.batch / train.accumulate > 0) return;
  bad_input(
      "data.train holds {} stories, fewer than one step needs (train.batch {} x train.accumulate {}): lower "
      "train.batch, bring more text, or name the line between its stories with data.separator",
      stories, train.batch, train.accumulate);
}

class Trainer {
 public:
  Trainer(std::shared_ptr<Context> ctx, const Recipe& recipe, const std::string& folder, Corpora corpora,
          const TrainHooks& hooks)
      : recipe_(recipe), paths_{folder}, corpora_(std::move(corpora)), hooks_(hooks), ctx_(std::move(ctx)) {
    recipe_.model.vocab = corpora_.tokenizer.vocab_size();
    const TrainConfig& train = recipe_.train;
    batch_options_.seq_len = recipe_.model.seq_len;
    batch_options_.count_pads = recipe_.data.count_pads;
    batch_options_.pad_id = corpora_.tokenizer.pad_id();
    batch_options_.eos_id = corpora_.tokenizer.eos_id();
    steps_per_epoch_ = corpora_.train.stories() / train.batch / train.accumulate;
    check_enough_stories(corpora_.train.stories(), train);
    total_ = steps_per_epoch_ * train.epochs;
    if (train.max_steps > 0) total_ = std::min(total_, train.max_steps);
    evaluate_options_.rows = train.batch;
    evaluate_options_.count_pads = recipe_.data.count_pads;
    evaluate_options_.pad_id = batch_options_.pad_id;
    evaluate_options_.eos_id = batch_options_.eos_id;
    evaluate_options_.average_batches = train.eval_average == "batches";
    data_hash_ = corpora_.train.hash();
    model_ = std::make_unique<Model>(ctx_, recipe_.model, true);
    step_ = std::make_unique<TrainStep>(*model_, train, recipe_.data.count_pads);
    if (recipe_.model.ffn == Ffn::some) {
      for (Layer& layer : model_->layers()) start_keys_.push_back(layer.keys.keys.to(Device::cpu).clone());
    }
    loss_slots_ = Tensor::zeros({flush_steps(), 2}, ctx_->master, ctx_->device);
    if (ctx_->device.is_cuda()) matrix_rate_ = measure_matrix_rate(*ctx_);  // a tenth of a second
  }

  void begin() {
    state_.data_hash = data_hash_;
    save_key_positions(paths_.folder, 0, *model_);
    events_.emplace(paths_.events(), paths_.metrics());
  }

  void resume(const CheckpointName& checkpoint) {
    state_ = state_from(load_checkpoint(checkpoint, *model_, true));
    if (state_.data_hash != data_hash_) {
      bad_input(
          "{}: the training text or tokenizer is not the one this run was started with (hash {} then, {} now); bring "
          "the same data back",
          paths_.folder, hex(state_.data_hash), hex(data_hash_));
    }
    // Lines written after this checkpoint will be written again, the same.
    if (fs::exists(paths_.metrics())) {
      if (static_cast<std::int64_t>(fs::file_size(paths_.metrics())) < state_.metrics_bytes) {
        bad_input("{} is shorter than it was at the checkpoint of step {}; it was changed by hand", paths_.metrics(),
                  state_.step);
      }
      fs::resize_file(paths_.metrics(), static_cast<std::uintmax_t>(state_.metrics_bytes));
    }
    events_.emplace(paths_.events(), paths_.metrics());
    for (const CheckpointName& positions : list_key_positions(paths_.folder)) {
      if (positions.step > state_.step) fs::remove(positions.folder);
    }
    for (const CheckpointName& later : list_checkpoints(paths_.folder)) {
      if (later.step > state_.step) remove_checkpoint(later);
    }
  }

  TrainResult run();

 private:
  // On a GPU losses are read back once in a while, so that the host never waits inside a step.
  std::int64_t flush_steps() const { return ctx_->device.is_cuda() ? 16 : 1; }
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch_; }
  void one_step(BatchLoader& loader);
  void flush();
  void write_train_line();
  void close_epoch();
  void evaluate_now();
  void save();
  void write(const nlohmann::json& line) {
    const std::string text = line.dump();
    append_line(paths_.metrics(), text);
    events_->add(line);
    state_.metrics_bytes += static_cast<std::int64_t>(text.size()) + 1;
  }

  Recipe recipe_;
  RunPaths paths_;
  std::optional<EventFile> events_;  // once it is known which metrics stand
  Corpora corpora_;
  const TrainHooks& hooks_;
  std::shared_ptr<Context> ctx_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainStep> step_;
  BatchOptions batch_options_;
  EvaluateOptions evaluate_options_;
  std::int64_t steps_per_epoch_ = 0, total_ = 0;
  std::uint64_t data_hash_ = 0;
  State state_;
  std::vector<Tensor> start_keys_;
  Tensor loss_slots_;  // [n, 2]: loss and gradient norm of the steps not yet read back
  struct Pending {
    std::int64_t step;
    double lr;
  };
  std::vector<Pending> pending_;
  double last_loss_ = 0, last_norm_ = 0;
  TrainResult result_;
  std::optional<Evaluation> last_evaluation_;
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  // Rates, over the last steps.
  struct Tick {
    Clock::time_point when;
    std::int64_t step;
    double tokens, slots, operations;
  };
  std::deque<Tick> ticks_;
  double tokens_ = 0, slots_ = 0, operations_ = 0;
  double matrix_rate_ = 0;
};

void Trainer::one_step(BatchLoader& loader) {
  const TrainConfig& train = recipe_.train;
  const std::int64_t step = state_.step;
  std::vector<Batch> batches;
  for (int i = 0; i < train.accumulate; ++i) {
    const Batch& batch = batches.emplace_back(loader.next());
    tokens_ += static_cast<double>(batch.real_tokens);
    slots_ += static_cast<double>(batch.slots);
    operations_ += count_operations(recipe_.model, batch).total();
  }
  StepPlan plan;
  plan.step = step;
  plan.lr = learning_rate(train, step, total_);
  plan.top_k = scheduled_top_k(recipe_.model, step, total_);
  plan.temperature = scheduled_temperature(recipe_.model, epoch_of(step), train.epochs);
  plan.progress = total_ > 1 ? static_cast<double>(step) / static_cast<double>(total_ - 1) : 0.0;
  loss_slots_.view(2 * static_cast<std::int64_t>(pending_.size()), {2}).copy_from(step_->run(batches, plan));
  pending_.push_back({step, plan.lr});
  state_.step = step + 1;
  // Measures of a line are those of its own step, so losses are read back there too.
  if (static_cast<std::int64_t>(pending_.size()) == flush_steps() || state_.step % train.measure_every == 0) flush();
}

// Reads the losses of the last steps back and writes their metrics lines.
void Trainer::flush() {
  if (pending_.empty()) return;
  const std::vector<double> values = read_vector(loss_slots_);
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    last_loss_ = values[2 * i];
    last_norm_ = values[2 * i + 1];
    const std::int64_t step = pending_[i].step + 1;
    if (!std::isfinite(last_loss_) || !std::isfinite(last_norm_)) {
      const auto checkpoints = list_checkpoints(paths_.folder);
      failed(
          "the loss became {} (gradient norm {}) at step {}: the run is stopped. {} To go on, lower train.lr, add "
          "train.warmup_steps, or set model.norm = \"pre\".",
          last_loss_, last_norm_, step,
          checkpoints.empty() ? std::string("No checkpoint was written yet.")
                              : fmt::format("The last good checkpoint is {}.", checkpoints.back().folder));
    }
    state_.epoch_loss += last_loss_;
    state_.epoch_steps += 1;
    state_.line_loss += last_loss_;
    state_.line_steps += 1;
    if (step % recipe_.train.measure_every == 0 || step == total_) {
      nlohmann::json line{{"kind", "train"},
                          {"step", step},
                          {"epoch", static_cast<double>(step) / static_cast<double>(steps_per_epoch_)},
                          {"loss", state_.line_loss / static_cast<double>(state_.line_steps)},
                          {"lr", pending_[i].lr},
                          {"gradient_norm", last_norm_}};
      // Balance loss and entropy band, where there are any; of this step, as the gradient norm is.
      if (recipe_.model.ffn == Ffn::some && (recipe_.model.balance_loss > 0 || recipe_.model.entropy_high >= 0)) {
        line["auxiliary_loss"] = read_vector(model_->auxiliary_loss())[0];
      }
      // The cheap measures: one read of E numbers a layer.
      for (Layer& layer : model_->layers()) {
        if (recipe_.model.ffn == Ffn::some) line["layers"].push_back(usage_measures(read_vector(layer.keys.usage)));
      }
      write(line);
      state_.line_loss = 0;
      state_.line_steps = 0;
    }
  }
  pending_.clear();
}

void Trainer::evaluate_now() {
  flush();
  if (evaluated_at_ == state_.step) return;
  evaluated_at_ = state_.step;
  const Evaluation evaluation = evaluate(*model_, corpora_.valid, evaluate_options_);
  nlohmann::json line{{"kind", "eval"},
                      {"step", state_.step},
                      {"epoch", static_cast<double>(state_.step) / static_cast<double>(steps_per_epoch_)}};
  line.update(train::to_json(evaluation, evaluate_options_));
  line["layers"] = layer_measures(*model_, evaluation.layers, start_keys_);
  line["middle_layer"] = recipe_.model.layers / 2;
  write(line);
  if (recipe_.train.save_keys_every == 0) save_key_positions(paths_.folder, state_.step, *model_);
  const double headline = evaluation.headline(evaluate_options_);
  if (headline < state_.best) {
    state_.best = headline;
    state_.best_step = state_.step;
    state_.since_best = 0;
  } else {
    state_.since_best += 1;
  }
  last_evaluation_ = evaluation;
  if (hooks_.evaluated) hooks_.evaluated(line);
}

void Trainer::save() {
  flush();
  if (saved_at_ == state_.step) return;
  saved_at_ = state_.step;
  save_checkpoint(paths_.folder, state_.step, *model_, to_json(state_));
  if (state_.best_step == state_.step) mark_best(paths_.folder, state_.step);
  auto all = list_checkpoints(paths_.folder);
  const std::int64_t best = best_step(paths_.folder);
  std::int64_t surplus = static_cast<std::int64_t>(all.size()) - recipe_.train.keep_checkpoints;
  for (const CheckpointName& one : all) {
    if (surplus <= 0) break;
    if (one.step == best || one.step == state_.step) continue;
    remove_checkpoint(one);
    --surplus;
  }
}

// The end of an epoch: its mean training loss, then the choices counted afresh.
void Trainer::close_epoch() {
  flush();
  write({{"kind", "epoch"},
         {"step", state_.step},
         {"epoch", epoch_of(state_.step)},
         {"train_loss", state_.epoch_steps > 0 ? state_.epoch_loss / static_cast<double>(state_.epoch_steps) : 0.0}});
  state_.epoch_loss = 0;
  state_.epoch_steps = 0;
  for (Tensor& counts : model_->epoch_counts()) counts.zero();
  state_.next_epoch_end += 1;
}

TrainResult Trainer::run() {
  const TrainConfig& train = recipe_.train;
  const auto started = Clock::now();
  const std::int64_t first = state_.step;
  {
    // An epoch may hold batches that do not fill a step of several micro-batches: those are passed over, so that every
    // epoch begins with its own order.
    const std::int64_t spare = corpora_.train.stories() / train.batch - steps_per_epoch_ * train.accumulate;
    BatchLoader loader(corpora_.train, batch_options_, train.batch, recipe_.seed,
                       state_.step * train.accumulate + epoch_of(state_.step) * spare);
    ticks_.push_back({Clock::now(), state_.step, 0, 0, 0});
    while (state_.step < total_ && !state_.finished) {
      one_step(loader);
      const bool epoch_end = state_.step % steps_per_epoch_ == 0;
      if (epoch_end) {
        for (std::int64_t i = 0; i < spare && state_.step < total_; ++i) loader.next();
      }
      // On a GPU the host runs ahead; the time is that of the device only where losses were just read back.
      const bool read_back = pending_.empty();
      if (read_back) {
        ticks_.push_back({Clock::now(), state_.step, tokens_, slots_, operations_});
        if (ticks_.size() > 50) ticks_.pop_front();
      }
      if (hooks_.step && read_back && ticks_.size() > 1) {
        const double span = std::chrono::duration<double>(ticks_.back().when - ticks_.front().when).count();
        TrainProgress progress;
        progress.step = state_.step;
        progress.total_steps = total_;
        progress.epoch = static_cast<int>(epoch_of(state_.step - 1)) + 1;
        progress.epochs = static_cast<int>((total_ + steps_per_epoch_ - 1) / steps_per_epoch_);
        progress.loss = last_loss_;
        progress.grad_norm = last_norm_;
        progress.lr = learning_rate(train, state_.step - 1, total_);
        progress.tokens_per_second = (ticks_.back().tokens - ticks_.front().tokens) / span;
        progress.slots_per_second = (ticks_.back().slots - ticks_.front().slots) / span;
        progress.operations_per_second = (ticks_.back().operations - ticks_.front().operations) / span;
        progress.matrix_rate = matrix_rate_;
        progress.seconds_left = span / static_cast<double>(ticks_.back().step - ticks_.front().step) *
                                static_cast<double>(total_ - state_.step);
        hooks_.step(progress);
      }
      const bool last = state_.step == total_;
      bool stop_early = false;
      if (train.save_keys_every > 0 && state_.step % train.save_keys_every == 0)
        save_key_positions(paths_.folder, state_.step, *model_);
      if (epoch_end || last || (train.eval_every > 0 && state_.step % train.eval_every == 0)) {
        evaluate_now();
        stop_early = train.patience > 0 && state_.since_best >= train.patience;
      }
      if (epoch_end || last) close_epoch();
      if (last || stop_early) state_.finished = true;
      const bool due = epoch_end || last || stop_early ||
                       (train.checkpoint_every > 0 && state_.step % train.checkpoint_every == 0) ||
                       state_.best_step == state_.step;
      if (due) save();
      if (stop_early && !last) {
        result_.stopped_early = true;
        ctx_->log.info("stopped early: {} evaluations without improvement (best {:.4f} at step {})", state_.since_best,
                       state_.best, state_.best_step);
      }
      const int signal = hooks_.stop_signal ? hooks_.stop_signal() : 0;
      if (signal != 0 && !state_.finished) {
        save();
        result_.stopped_by = signal;
        break;
      }
      // Evaluations and checkpoints are not part of the rate.
      if (due || last) {
        ticks_.clear();
        ticks_.push_back({Clock::now(), state_.step, tokens_, slots_, operations_});
      }
    }
  }
  flush();
  const double seconds = seconds_since(started);
  append_line(paths_.timing(), nlohmann::json{{"from_step", first},
                                              {"to_step", state_.step},
                                              {"finished", state_.finished},
                                              {"seconds", seconds},
                                              {"real_tokens", tokens_},
                                              {"slots", slots_},
                                              {"operations", operations_},
                                              {"device", name_of(ctx_->device)},
                                              {"arena_bytes", ctx_->arena->peak_bytes()}}
                                   .dump());
  result_.steps = state_.step;
  if (last_evaluation_) result_.final_evaluation = *last_evaluation_;
  return result_;
}

}  // namespace

TrainResult start_run(const Recipe& recipe, const std::string& folder, const TrainHooks& hooks) {
  const RunPaths paths{folder};
  const auto refuse_a_second_run = [&] {
    if (fs::exists(paths.config()))
      bad_input("{} already holds a run: go on with 'some train --resume {}', or choose another --out", folder, folder);
  };
  refuse_a_second_run();
  if (fs::exists(folder) && !fs::is_directory(folder)) bad_input("--out {} is a file, not a folder", folder);
  check_config(recipe.model);
  // A device or precision that is not there is told before anything is read or written.
  const std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads, hooks.log));
  const DataOutlook outlook = look_at_data(*ctx, recipe.data, recipe.model.seq_len);
  if (outlook.train_stories > 0) check_enough_stories(outlook.train_stories, recipe.train);
  const RunLock lock(folder);
  refuse_a_second_run();  // one that ended while this one looked at its data
  Corpora corpora =
      load_corpora(*ctx, recipe.data, recipe.seed, paths.cache(), hooks.prepare ? hooks.prepare : DataProgress());
  Trainer trainer(ctx, recipe, folder, corpora, hooks);
  corpora.tokenizer.save(paths.tokenizer());
  // Written last: a folder with a config.toml is a run.
  write_file_atomic(paths.config(), write_recipe(recipe));
  trainer.begin();
  return trainer.run();
}

TrainResult resume_run(const std::string& folder, const std::vector<std::string>& changes, const TrainHooks& hooks) {
  read_run_recipe(folder);
  for (const std::string& change : changes) {
    if (change.rfind("train.device=", 0) != 0 && change.rfind("train.threads=", 0) != 0 &&
        change.rfind("train.precision=", 0) != 0) {
      bad_input("{}: a resumed run keeps its recipe; only train.device, train.precision and train.threads may change",
                change);
    }
  }
  const RunLock lock(folder);
  if (list_checkpoints(folder).empty() && run_is_finished(folder)) {
    bad_input(
        "{} is finished and its checkpoints were removed: there is nothing to go on from; train into another folder "
        "with --out",
        folder);
  }
  const RunPaths paths{folder};
  const Recipe recipe = load_recipe(paths.config(), changes);
  const std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads, hooks.log));
  // The tokenizer of the run, not a new one: the ids must mean the same.
  DataConfig data = recipe.data;
  data.tokenizer = paths.tokenizer();
  Corpora corpora =
      load_corpora(*ctx, data, recipe.seed, paths.cache(), hooks.prepare ? hooks.prepare : DataProgress());
  Trainer trainer(ctx, recipe, folder, std::move(corpora), hooks);
  const auto checkpoints = list_checkpoints(folder);
  if (checkpoints.empty()) {
    if (fs::exists(paths.metrics())) fs::remove(paths.metrics());
    trainer.begin();
  } else {
    trainer.resume(checkpoints.back());
  }
  return trainer.run();
}

}  // namespace some::train
