#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "model/expert_part.h"
#include "ops/elementwise.h"

namespace some::train {
namespace {

// Kinds of steps that take turns (with and without a key update) are few; each recording holds memory.
constexpr std::size_t most_recordings = 4;

}  // namespace

TrainStep::TrainStep(Model& model, const TrainConfig& train, bool count_pads, bool graphs)
    : model_(model), train_(train), count_pads_(count_pads), graphs_(graphs && model.context().device.is_cuda()) {
  const Context& ctx = model_.context();
  rates_ = Tensor::zeros({3}, ctx.master, ctx.device);
  outcome_ = Tensor::zeros({2}, ctx.master, ctx.device);
  adam_ = {NAN, train.beta1, train.beta2, train.eps, train.weight_decay, train.clip, 0, rates_};
}

const Tensor& TrainStep::run(std::span<const Batch> batches, const StepPlan& plan) {
  Context& ctx = model_.context();
  std::int64_t predicted = 0;
  for (const Batch& batch : batches) predicted += batch.predicted;
  TrainPass pass;
  pass.top_k = plan.top_k;
  pass.temperature = plan.temperature;
  pass.loss_scale = predicted > 0 ? 1.0 / static_cast<double>(predicted) : 0.0;
  pass.count_pads = count_pads_;
  if (model_.keys_due(plan.step)) pass.keys = model_.plan_keys(plan.step, plan.progress);
  AdamSettings now = adam_;
  now.lr = plan.lr;
  now.step = plan.moments_before + plan.step + 1;
  const std::array<double, 3> rates = adam_rates(now);
  for (int i = 0; i < 3; ++i) {
    Tensor rate = rates_.view(i, {1});
    fill(ctx, rates[static_cast<std::size_t>(i)], rate);
  }
  if (batches.size() == 1 && group().alone()) {
    ctx.arena->reset();
    const Batch& one = batches[0];
    const DeviceBatch batch = upload(ctx, one);
    model_.check_ids(batch);
    // Packed rows have another shape in every step: nothing would come again.
    if (graphs_ && one.size() == one.rows() * model_.config().seq_len)
      run_or_replay(batch, {pass, one.size(), one.rows(), one.longest, batch.tokens.raw(), ctx.arena->generation(),
                            model_.key_memory()});
    else
      compute(batch, pass);
    return outcome_;
  }
  const Block own = own_batches(static_cast<std::int64_t>(batches.size()));
  // Experts of this rank are wanted as long as any rank has tokens. Those that learn do so then, too.
  const std::int64_t passes = passes_of_group(static_cast<std::int64_t>(batches.size()));
  const std::int64_t counted = experts_learn(model_.config()) ? passes : own.count();
  StepSums added = sums(pass);
  tree_.restart(added);
  if (own.count() == 0) begin(pass);
  for (std::int64_t i = 0; i < own.end; ++i) {
    const Batch& batch = batches[static_cast<std::size_t>(i)];
    if (i >= own.begin) {
      begin(pass);
      ctx.arena->reset();
      add_batch(upload(ctx, batch), pass);
      tree_.add(ctx, added, i + 1 - own.begin < counted);
    }
    pass.first_position += batch.size();
  }
  for (std::int64_t i = own.count(); i < passes; ++i) {
    if (i < counted) begin(pass);
    ctx.arena->reset();
    model_.serve_pass(true);
    if (i < counted) tree_.add(ctx, added, i + 1 < counted);
  }
  add_over_ranks(ctx, added);
  finish(pass);
  return outcome_;
}

std::int64_t TrainStep::passes_of_group(std::int64_t of) const {
  const int together = model_.context().expert_group.size();
  // The first of the ranks that hold the experts together has the most micro-batches.
  return block_of(of, group().rank() / together * together, group().size()).count();
}

StepSums TrainStep::sums(const TrainPass& pass) {
  StepSums out{model_.parameters().grad, outcome_.view(0, {1}), model_.auxiliary_loss(), {}};
  if (!pass.keys.empty()) out.keys = model_.key_sums();
  return out;
}

void TrainStep::compute(const DeviceBatch& batch, const TrainPass& pass) {
  begin(pass);
  add_batch(batch, pass);
  finish(pass);
}

void TrainStep::begin(const TrainPass& pass) {
  model_.clear_gradients();
  if (!pass.keys.empty()) model_.clear_key_sums();
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

void TrainStep::finish(const TrainPass& pass) {
  Context& ctx = model_.context();
  ParameterStore& p = model_.parameters();
  Tensor norm = outcome_.view(1, {1});
  gradient_norm(ctx, p.grad, norm);
  adamw_step(ctx, p.value, p.compute, p.grad, p.first, p.second, norm, adam_);
  if (!pass.keys.empty()) model_.update_key_stores(pass.keys);
}

void TrainStep::run_or_replay(const DeviceBatch& batch, Kind kind) {
  const auto found =
      std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& one) { return one.kind == kind; });
  if (found == recordings_.end()) {
    compute(batch, kind.pass);
    kind.arena = model_.context().arena->generation();
    std::erase_if(recordings_,
                  [&](const Recording& one) { return one.kind.arena != kind.arena || one.kind.keys != kind.keys; });
    if (recordings_.size() == most_recordings) recordings_.erase(recordings_.begin());
    recordings_.push_back({std::move(kind), some::cuda::Graph()});
    return;
  }
  std::rotate(found, found + 1, recordings_.end());
  Recording& recording = recordings_.back();
  if (recording.graph.recorded()) {
    model_.count_key_update(recording.kind.pass.keys);
  } else {
    recording.graph.record(model_.context().device, [&] { compute(batch, recording.kind.pass); });
  }
  recording.graph.launch();
  ++replayed_;
}

}  // namespace some::train
