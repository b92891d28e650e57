#include "train/step.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <tuple>
#include <utility>

#include "model/ffn/expert_bank.h"
#include "ops/elementwise.h"

namespace some {
namespace {

// Each recording occupies memory. Padded steps alternate between a few kinds (with and without a key update); unpadded
// ones have one kind per length class, some 25 of them with 32 documents.
constexpr std::size_t max_recordings = 48;

std::int64_t rounded_up(std::int64_t count, std::int64_t grain) { return (count + grain - 1) / grain * grain; }

// Extends an unpadded batch to the next length class by one more sequence, which repeats the first tokens and predicts
// nothing: its rows change no sum, no gradient and no key, and experts receive them as they do others. There is always
// such a sequence, so that batches of a class have the same number of sequences.
Batch extended_to_class(const Batch& batch, std::int64_t seq_len) {
  const std::int64_t tokens = batch.size();
  const std::int64_t grain = batch.slots > 8192 ? 128 : 64;  // classes below 2% apart, and whole tiles of GEMMs
  const std::int64_t added = grain - tokens % grain;
  Batch out = batch;
  for (std::int64_t i = 0; i < added; ++i) {
    out.tokens.push_back(batch.tokens[static_cast<std::size_t>(i % tokens)]);
    out.targets.push_back(-1);
    out.positions.push_back(static_cast<std::int32_t>(i));
  }
  out.offsets.push_back(static_cast<std::int32_t>(out.tokens.size()));
  // Only grids and the choice of kernels depend on it.
  out.longest = std::max(added, std::min(rounded_up(batch.longest, 256), std::max(batch.longest, seq_len)));
  return out;
}

}  // namespace

TrainStep::TrainStep(Model& model, const TrainConfig& train, bool count_pads)
    : TrainStep(model, train, count_pads, {.graphs = true, .early_bytes = min_early_bytes(model.context().group)}) {}

TrainStep::TrainStep(Model& model, const TrainConfig& train, bool count_pads, const Options& options)
    : model_(model),
      schedule_(model.context()),
      train_(train),
      count_pads_(count_pads),
      graphs_(options.graphs && model.context().device.is_cuda()) {
  const Context& ctx = model_.context();
  numbers_ = Tensor::zeros({4}, ctx.master, ctx.device);
  outcome_ = Tensor::zeros({2}, ctx.master, ctx.device);
  adam_ = {NAN, train.beta1, train.beta2, train.eps, train.weight_decay, train.clip, 0, numbers_.view(0, {3})};
  plan_early(options);
}

std::size_t TrainStep::min_early_bytes(const Group& group) {
  constexpr std::size_t least = std::size_t{256} << 10;
  if (!group.has_gpu_link()) return least;
  // NCCL takes some 20 us per message, in which a link of 100 GB/s carries 2 MB (docs/scale.md).
  const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(group.size() - 1)));
  return std::max(least, 2 * rounds * (std::size_t{2} << 20));
}

// Plans which gradients are sent early. Goes from the head down to the first layer, the order in which gradients are
// computed: the matrices of a layer are sent separately or together with those of layers above it, as soon as there are
// enough bytes. Everything else is complete only at the end: the embedding, and sums over rows, which a GPU computes
// for all layers at once (kernels/reduce/deferred_sums.h).
void TrainStep::plan_early(const Options& options) {
  const ParameterStore& parameters = model_.parameters();
  const int layers = model_.config().layers;
  if (!options.early_bytes) return;
  const auto block_of_entry = [](const ParameterStore::Entry& entry) {
    return Block{entry.offset, entry.offset + entry.shape.elements()};
  };
  std::vector<std::vector<Block>> ready(static_cast<std::size_t>(layers) + 1);
  for (const ParameterStore::Entry& entry : parameters.entries()) {
    if (!entry.row_sums && entry.layer >= 0)
      ready[static_cast<std::size_t>(entry.layer)].push_back(block_of_entry(entry));
    else
      late_.push_back(block_of_entry(entry));
  }
  early_.resize(ready.size());
  std::vector<Block> waiting;
  std::size_t bytes = 0;
  for (std::size_t layer = ready.size(); layer-- > 0;) {
    for (const Block& part : ready[layer]) {
      waiting.push_back(part);
      bytes += static_cast<std::size_t>(part.count()) * size_of(model_.context().master);
    }
    if (waiting.empty() || bytes < *options.early_bytes) continue;
    early_[layer] = std::exchange(waiting, {});
    bytes = 0;
  }
  late_.insert(late_.end(), waiting.begin(), waiting.end());
  if (std::all_of(early_.begin(), early_.end(), [](const auto& parts) { return parts.empty(); })) early_.clear();
}

const Tensor& TrainStep::run(std::span<const Batch> batches, const StepPlan& plan) {
  Context& ctx = model_.context();
  std::int64_t predicted = 0;
  for (const Batch& batch : batches) predicted += batch.predicted;
  StepSettings pass = plan;
  pass.loss_scale = predicted > 0 ? 1.0 / static_cast<double>(predicted) : 0.0;
  pass.count_pads = count_pads_;
  if (model_.keys_due(plan.step)) pass.keys = model_.plan_keys(plan.step, plan.progress);
  AdamSettings now = adam_;
  now.lr = plan.lr;
  now.step = plan.moments_before + plan.step + 1;
  const std::array<double, 3> rates = adam_rates(now);
  schedule_.join();  // waits only if the previous step was aborted
  fill_each(ctx, std::array{rates[0], rates[1], rates[2], pass.loss_scale}, numbers_);
  model_.set_dropout_step(plan.step);
  if (batches.size() == 1 && group().alone()) {
    ctx.arena->reset();
    const std::int64_t seq_len = model_.config().seq_len;
    const bool full = batches[0].size() == batches[0].rows() * seq_len,
               extended = ctx.device.is_cuda() && !full && !count_pads_ && batches[0].size() > 0;
    const Batch longer = extended ? extended_to_class(batches[0], seq_len) : Batch();
    const Batch& one = extended ? longer : batches[0];
    DeviceBatch batch = upload(ctx, one);
    model_.check_ids(batch);
    if (ctx.device.is_cuda()) {
      batch.loss_scale = numbers_.view(3, {1});
      pass.loss_scale = 1;  // not read: a recorded step is replayed with another one
    }
    if (graphs_ && (full || extended))
      run_or_replay(batch, {pass, one.size(), one.rows(), one.longest, batch.tokens.raw(), ctx.arena->generation(),
                            model_.key_memory()});
    else
      compute(batch, pass);
    return outcome_;
  }
  const Block own = own_micro_batches(static_cast<std::int64_t>(batches.size()));
  // As long as any rank has tokens, it may need this rank's experts; trained experts then receive gradients, too.
  const std::int64_t passes = passes_of_group(static_cast<std::int64_t>(batches.size()));
  const std::int64_t counted = experts_learn(model_.config()) ? passes : own.count();
  StepSums added = sums(pass);
  tree_.restart(added);
  if (own.count() == 0) begin(ctx, pass);
  for (std::int64_t i = 0; i < own.end; ++i) {
    const Batch& batch = batches[static_cast<std::size_t>(i)];
    if (i >= own.begin) {
      begin(ctx, pass);
      ctx.arena->reset();
      const bool last = i + 1 - own.begin == counted;
      if (last && overlaps_all_reduce()) {
        add_last_batch(upload(ctx, batch), pass, added);
      } else {
        add_batch(upload(ctx, batch), pass);
        tree_.add(ctx, added, !last);
      }
    }
    pass.first_position += batch.size();
  }
  for (std::int64_t i = own.count(); i < passes; ++i) {
    if (i < counted) begin(ctx, pass);
    ctx.arena->reset();
    model_.serve_pass(true);
    if (i < counted) tree_.add(ctx, added, i + 1 < counted);
  }
  add_late(added);
  finish(pass);
  return outcome_;
}

// In the last micro-batch, each layer's gradients are added to those of earlier micro-batches as soon as they are
// computed, and sent to the other ranks while the layers below are still being computed. The sums are bit-identical to
// those of a single exchange at the end.
void TrainStep::add_last_batch(const DeviceBatch& batch, const StepSettings& pass, StepSums& added) {
  Context& ctx = model_.context();
  if (!async_all_reduce_) async_all_reduce_ = std::make_unique<AsyncAllReduce>(ctx);
  add_batch(batch, pass, [&](int layer) {
    const std::vector<Block>& parts = early_[static_cast<std::size_t>(layer)];
    if (parts.empty()) return;
    tree_.add_last_gradients(ctx, added, parts);
    async_all_reduce_->sum_over_ranks(parts_of(added.gradients, parts));
  });
  tree_.add_last_rest(ctx, added, late_);
  async_all_reduce_->wait();
}

void TrainStep::add_late(StepSums& added) {
  Context& ctx = model_.context();
  const bool on_stream = ctx.device.is_cuda() && group().has_gpu_link();
  const auto begin = std::chrono::steady_clock::now();
  if (on_stream) {
    constexpr std::size_t steps_ahead = 8;  // reading times this late does not make the host wait for the GPU
    settle_late_marks(steps_ahead);
    late_marks_.emplace_back(std::piecewise_construct, std::tie(ctx.device), std::tie(ctx.device));
    late_marks_.back().first.record();
  }
  sum_over_ranks(ctx, added, overlaps_all_reduce() ? std::span<const Block>(late_) : std::span<const Block>());
  if (on_stream)
    late_marks_.back().second.record();
  else
    late_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void TrainStep::settle_late_marks(std::size_t most) {
  for (; late_marks_.size() > most; late_marks_.pop_front())
    late_seconds_ += late_marks_.front().second.milliseconds_since(late_marks_.front().first) / 1e3;
}

TrainStep::Communication TrainStep::communication() {
  settle_late_marks(0);
  const double busy = async_all_reduce_ ? async_all_reduce_->busy_seconds() : 0,
               waited = async_all_reduce_ ? async_all_reduce_->exposed_seconds() : 0;
  return {std::max(0.0, busy - waited), waited + late_seconds_};
}

std::int64_t TrainStep::passes_of_group(std::int64_t of) const {
  return model_.context().mesh().max_micro_batches_of_group(group().rank(), of);
}

StepSums TrainStep::sums(const StepSettings& pass) {
  StepSums out{model_.parameters().grad, outcome_.view(0, {1}), model_.auxiliary_loss(), {}};
  if (!pass.keys.empty()) out.keys = model_.key_sums();
  return out;
}

void TrainStep::compute(const DeviceBatch& batch, const StepSettings& pass) {
  begin(schedule_.fork(), pass);  // train_pass waits for it before the first gradient
  const Tensor nll = model_.train_pass(schedule_, batch, pass);
  add_loss(schedule_.fork(), nll);
  finish(pass);
}

void TrainStep::begin(Context& ctx, const StepSettings& pass) {
  model_.clear_gradients(ctx);
  if (!pass.keys.empty()) model_.clear_key_sums(ctx);
  fill(ctx, 0, outcome_);
}

void TrainStep::add_batch(const DeviceBatch& batch, const StepSettings& pass, const Model::MatricesReady& ready) {
  add_loss(schedule_.main(), model_.train_pass(schedule_, batch, pass, ready));
}

void TrainStep::add_loss(Context& ctx, const Tensor& nll) {
  Tensor sum = ctx.scratch({1}, ctx.master), loss = outcome_.view(0, {1});
  sum_all(ctx, nll, sum);
  multiply_add(ctx, sum, numbers_.view(3, {1}), loss);
}

void TrainStep::finish(const StepSettings& pass) {
  Context& ctx = model_.context();
  ParameterStore& p = model_.parameters();
  Tensor norm = outcome_.view(1, {1});
  if (!pass.keys.empty()) model_.update_key_stores(schedule_.fork(), pass.keys);
  gradient_norm(ctx, p.grad, norm);
  adamw_step(ctx, p.value, p.compute, p.grad, p.first, p.second, norm, adam_);
  schedule_.join();
}

void TrainStep::run_or_replay(const DeviceBatch& batch, Kind kind) {
  const auto found =
      std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& one) { return one.kind == kind; });
  if (found == recordings_.end()) {
    compute(batch, kind.pass);
    kind.arena = model_.context().arena->generation();
    std::erase_if(recordings_,
                  [&](const Recording& one) { return one.kind.arena != kind.arena || one.kind.keys != kind.keys; });
    if (recordings_.size() == max_recordings) recordings_.erase(recordings_.begin());
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

}  // namespace some
