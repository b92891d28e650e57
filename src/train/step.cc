#include "train/step.h"

#include <algorithm>

#include "ops/elementwise.h"

namespace some::train {
namespace {

// Kinds of steps that take turns (with and without a key update) are few; each recording holds memory.
constexpr std::size_t most_recordings = 4;

}  // namespace

TrainStep::TrainStep(Model& model, const TrainConfig& train, bool count_pads, bool graphs)
    : model_(model),
      train_(train),
      count_pads_(count_pads),
      graphs_(graphs && model.context().device.is_cuda() && model.steps_repeat()) {
  const Context& ctx = model_.context();
  rates_ = Tensor::zeros({3}, ctx.master, ctx.device);
  outcome_ = Tensor::zeros({2}, ctx.master, ctx.device);
}

const Tensor& TrainStep::run(std::span<const Batch> batches, const StepPlan& plan) {
  Context& ctx = model_.context();
  const ModelConfig& config = model_.config();
  const bool keys_due = config.ffn == Ffn::some && plan.step % config.keys.update_every == 0;
  std::int64_t predicted = 0;
  for (const Batch& batch : batches) predicted += batch.predicted;
  TrainPass pass;
  pass.top_k = plan.top_k;
  pass.temperature = plan.temperature;
  pass.loss_scale = predicted > 0 ? 1.0 / static_cast<double>(predicted) : 0.0;
  pass.count_pads = count_pads_;
  pass.collect_keys = keys_due;
  pass.step = plan.step;
  const AdamSettings adam{plan.lr,     train_.beta1,  train_.beta2, train_.eps, train_.weight_decay,
                          train_.clip, plan.step + 1, rates_};
  const std::array<double, 3> rates = adam_rates(adam);
  for (int i = 0; i < 3; ++i) {
    Tensor rate = rates_.view(i, {1});
    fill(ctx, rates[static_cast<std::size_t>(i)], rate);
  }
  if (batches.size() == 1) {
    ctx.arena->reset();
    const DeviceBatch batch = upload(ctx, batches[0]);
    model_.check_ids(batch);
    const auto work = [&] {
      begin(keys_due);
      add_batch(batch, pass);
      finish(adam, plan, keys_due);
    };
    // Packed rows have another shape in every step: nothing would come again.
    if (!graphs_ || batches[0].size() != batches[0].rows() * config.seq_len) {
      work();
    } else {
      run_or_replay(
          {batches[0].size(), batches[0].rows(), batches[0].longest, batch.tokens.raw(), ctx.arena->generation(),
           pass.top_k, pass.temperature, pass.loss_scale, keys_due, keys_due ? model_.decays_due() : 0},
          work);
    }
    return outcome_;
  }
  begin(keys_due);
  for (const Batch& batch : batches) {
    ctx.arena->reset();
    add_batch(upload(ctx, batch), pass);
    pass.first_position += batch.size();
  }
  finish(adam, plan, keys_due);
  return outcome_;
}

void TrainStep::begin(bool keys_due) {
  model_.clear_gradients();
  if (keys_due) model_.clear_key_sums();
  fill(model_.context(), 0, outcome_);
}

void TrainStep::add_batch(const DeviceBatch& batch, const TrainPass& pass) {
  Context& ctx = model_.context();
  const Tensor nll = model_.train_pass(batch, pass);
  Tensor sum = ctx.scratch({1}, ctx.master), scale = ctx.scratch({1}, ctx.master), loss = outcome_.view(0, {1});
  sum_all(ctx, nll, sum);
  fill(ctx, pass.loss_scale, scale);
  multiply_add(ctx, sum, scale, loss);
}

void TrainStep::finish(const AdamSettings& adam, const StepPlan& plan, bool keys_due) {
  Context& ctx = model_.context();
  ParameterStore& p = model_.parameters();
  Tensor norm = outcome_.view(1, {1});
  gradient_norm(ctx, p.grad, norm);
  adamw_step(ctx, p.value, p.compute, p.grad, p.first, p.second, norm, adam);
  if (keys_due) model_.update_key_stores(plan.step, plan.progress);
}

void TrainStep::run_or_replay(Kind kind, const std::function<void()>& work) {
  const auto found =
      std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& one) { return one.kind == kind; });
  if (found == recordings_.end()) {
    work();
    kind.generation = model_.context().arena->generation();
    std::erase_if(recordings_, [&](const Recording& one) { return one.kind.generation != kind.generation; });
    if (recordings_.size() == most_recordings) recordings_.erase(recordings_.begin());
    recordings_.push_back({kind, some::cuda::Graph()});
    return;
  }
  if (found->graph.recorded()) {
    if (kind.keys_due) model_.count_key_update();
  } else {
    found->graph.record(model_.context().device, work);
  }
  found->graph.launch();
  ++replayed_;
}

}  // namespace some::train
