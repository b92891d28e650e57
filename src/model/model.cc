#include "model/model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/reduce/deferred_sums.h"
#include "model/ffn/expert_parallel.h"
#include "ops/conv.h"
#include "ops/deferred_gradients.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "runtime/staging.h"

namespace some {
namespace {

Tensor to_device(Context& ctx, const std::vector<std::int32_t>& values) {
  return ctx.staging->upload(ctx, {&values})[0];
}

// Places of dropout, in the order of the forward pass.
constexpr int embedding_place = 0;
int attention_place(const Layer& layer) { return 1 + 2 * layer.index; }
int feed_forward_place(const Layer& layer) { return 2 + 2 * layer.index; }

const ModelConfig& checked(const ModelConfig& config) {
  check_config(config);
  return config;
}

}  // namespace

// Both placements of the norm (spec 2) share one loop: a block adds to `residual` and reads `input`. After a norm,
// post-norm continues with the normalized tensor in both roles; pre-norm keeps the sum as the residual.
struct Model::Stream {
  Tensor residual, input;
};

// Tapes of one layer.
struct Model::LayerTape {
  Attention::Tape attention;
  LayerNorm::Tape norm1;  // after the attention
  std::unique_ptr<FeedForward::Tape> ffn;
  LayerNorm::Tape norm2;  // after the feed-forward block; unused in pre-norm without such a block
  const Tensor* query() const { return ffn && ffn->routed() != nullptr ? &ffn->routed()->query : nullptr; }
};

// Activations of all layers that the backward pass needs.
struct Model::Tape {
  TokenOrder order;
  LayerNorm::Tape first_norm;  // pre-norm only
  std::vector<LayerTape> layers;
};

Model::Model(std::shared_ptr<Context> ctx, const ModelConfig& config, bool training, bool make_library)
    : ctx_(std::move(ctx)), parts_(checked(config)) {
  const std::vector<Parameter> declared = declare_parameters(parts_);
  for (const Parameter& one : declared) {
    if (one.trained()) parameters_.declare(one);
  }
  parameters_.allocate(*ctx_, training);
  parameters_.draw_initial_values(*ctx_, config.seed);
  for (const Parameter& one : declared) {
    if (one.trained()) *one.bound = parameters_.param(one.name);
  }
  auxiliary_loss_ = Tensor::zeros({1}, ctx_->master, ctx_->device);
  if (config.ffn != Ffn::some) return;
  // Key sums exist outside of training too: evaluation counts assignments with them, and adaptation learns from them.
  key_needs_ = needs_of(config.keys);
  make_all_key_sums();
  for (Layer& layer : parts_.layers) {
    layer.keys = make_key_state(*ctx_, config.experts, config.query_size(), config.seed, layer.index, config.keys,
                                config.key_partitions);
    epoch_counts_.push_back(Tensor::zeros({config.experts}, DType::i64, ctx_->device));
    if (uses_expert_parallelism(*ctx_, config))
      layer.experts.local = ctx_->mesh().experts(ctx_->group.rank(), config.experts);
    if (make_library && config.use_library) layer.experts.make_library(*ctx_, layer.index);
  }
  parameters_.refresh_compute(*ctx_);
}

const LayerNorm& Model::norm_after(int layer) const {
  const auto at = static_cast<std::size_t>(layer);
  if (config().norm == Norm::post) return parts_.layers[at].norm2;
  return layer + 1 == config().layers ? parts_.final_norm : parts_.layers[at + 1].norm1;
}

bool Model::layer_learns(int layer) const {
  return config().ffn == Ffn::some && plan_update(config().keys, {config().seed, layer}).learns;
}

std::uint64_t Model::library_hash() const {
  std::uint64_t hash = 0;
  for (const Layer& layer : parts_.layers) hash = hash * 0x9E3779B97F4A7C15ull + layer.experts.library_hash;
  return hash;
}

LayerNorm::Tape Model::embed(Context& ctx, const Pass& pass, Stream& stream) const {
  stream.residual = ctx.scratch({pass.tokens.dim(0), config().d_model});
  embed_forward(ctx, pass.tokens, pass.positions, parts_.embed, config().position == Position::sinusoidal,
                stream.residual);
  drop(ctx, pass, embedding_place, stream.residual, stream.residual);
  stream.input = stream.residual;
  if (config().norm == Norm::post) return {};
  LayerNorm::Tape norm = parts_.layers[0].norm1.forward(ctx, stream.residual, nullptr);
  stream.input = norm.y;
  return norm;
}

void Model::layer_forward(Context& ctx, const Layer& layer, const Pass& pass, const Tensor* previous_query,
                          LayerTape& tape, Stream& stream) const {
  const bool post = config().norm == Norm::post;
  const auto after = [&](const LayerNorm::Tape& norm) { stream = {post ? norm.y : norm.sum, norm.y}; };
  tape.attention = layer.attention.forward(ctx, pass, stream.input);
  drop(ctx, pass, attention_place(layer), tape.attention.output, tape.attention.output);
  const Tensor& attended = tape.attention.output;
  if (!post && !layer.ffn) {
    tape.norm1 = norm_after(layer.index).forward(ctx, stream.residual, &attended);
    return after(tape.norm1);
  }
  tape.norm1 = (post ? layer.norm1 : layer.norm2).forward(ctx, stream.residual, &attended);
  after(tape.norm1);
  if (layer.ffn) {
    tape.ffn = layer.ffn->forward(ctx, pass, stream.input, previous_query);
    drop(ctx, pass, feed_forward_place(layer), tape.ffn->output, tape.ffn->output);
  }
  tape.norm2 = norm_after(layer.index).forward(ctx, stream.residual, tape.ffn ? &tape.ffn->output : nullptr);
  after(tape.norm2);
}

Tensor Model::forward(Context& ctx, const Pass& pass, Tape& tape) const {
  Stream stream;
  tape.first_norm = embed(ctx, pass, stream);
  const Tensor* previous_query = nullptr;
  tape.layers.reserve(parts_.layers.size());
  for (const Layer& layer : parts_.layers) {
    LayerTape& one = tape.layers.emplace_back();
    layer_forward(ctx, layer, pass, previous_query, one, stream);
    previous_query = one.query();
  }
  return stream.input;
}

// Most numbers of the gradients of a batch's hidden states for which those of matrices are computed concurrently with
// the layers below, because no kernel of such a model fills a GPU. Each layer then keeps its memory.
constexpr std::int64_t small_gradients = std::int64_t{1} << 23;

// dy: gradient of the result of forward(), which is overwritten. Four buffers serve all layers, unless gradients of
// matrices are computed concurrently.
void Model::backward(Schedule& schedule, const DeviceBatch& batch, const Pass& pass, Tape& tape, Tensor dy,
                     const MatricesReady& ready) const {
  Context& ctx = schedule.deferring();
  const bool post = config().norm == Norm::post;
  const Shape shape = dy.shape();
  const bool concurrent =
      ctx.device.is_cuda() && !ready && dy.elements() * std::ssize(parts_.layers) <= small_gradients;
  DeferSums sums(schedule);
  Tensor dsum2 = ctx.scratch(shape);             // gradient of the input of the norm after the feed-forward block
  Tensor dafter_attention = ctx.scratch(shape);  // gradient of the input of the feed-forward block
  Tensor dsum1 = ctx.scratch(shape);             // gradient of the input of the norm after the attention
  Tensor dresidual;  // pre-norm: gradient of the residual stream that bypasses the norms; shares memory with dsum1
  Tensor dquery;     // grounding: gradient that a layer sends to the layer below
  for (std::size_t i = parts_.layers.size(); i-- > 0;) {
    const Layer& layer = parts_.layers[i];
    LayerTape& own = tape.layers[i];
    const LayerNorm& norm2 = norm_after(layer.index);
    const Tensor* extra = dresidual ? &dresidual : nullptr;
    Tensor dquery_below;
    if (config().ground > 0 && i > 0 && own.query() != nullptr) {
      dquery_below = ctx.scratch(own.query()->shape(), ctx.master);
      fill(ctx, 0, dquery_below);
    }
    std::optional<ArenaScope> scope;
    if (concurrent) {
      dsum1 = ctx.scratch(shape);
      dsum2 = ctx.scratch(shape);
    } else {
      scope.emplace(*ctx.arena);
    }
    DeferGradients gradients(schedule);
    const bool apart = layer.ffn && layer.ffn->begin_backward(schedule, *own.ffn);
    if (!post && !layer.ffn) {
      norm2.backward(ctx, own.norm1, dy, extra, dsum1);
    } else {
      // Post-norm: norm1.y is also the residual. Pre-norm: the gradient of the residual joins after norm1.
      norm2.backward(ctx, own.norm2, dy, extra, dsum2, post ? &dafter_attention : nullptr);
      if (!post) fill(ctx, 0, dafter_attention);
      if (layer.ffn) {
        const Tensor doutput = dropped_gradient(ctx, pass, feed_forward_place(layer), dsum2);
        layer.ffn->backward(schedule, pass, *own.ffn,
                            {own.norm1.y, doutput, dafter_attention, dquery ? &dquery : nullptr,
                             dquery_below ? &dquery_below : nullptr});
        dquery = dquery_below;
      }
      (post ? layer.norm1 : layer.norm2)
          .backward(ctx, own.norm1, dafter_attention, post ? nullptr : &dsum2, dsum1, post ? &dy : nullptr);
    }
    if (!post) dresidual = dsum1;
    const Tensor dattended = dropped_gradient(ctx, pass, attention_place(layer), dsum1);
    layer.attention.backward(ctx, pass, own.attention, dattended, dy, post ? Into::add : Into::overwrite);
    if (concurrent)
      gradients.finish(schedule.fork());
    else
      gradients.finish();
    if (apart) schedule.join();
    if (ready) ready(layer.index);
  }
  if (!post) {
    parts_.layers[0].norm1.backward(ctx, tape.first_norm, dy, &dresidual, dsum2);
    dy = dsum2;
  }
  sums.finish(schedule.fork());
  drop(ctx, pass, embedding_place, dy, dy);
  embed_backward(ctx, batch.tokens, tape.order, dy, parts_.embed);
}

void Model::set_dropout_step(std::int64_t step) {
  if (config().dropout <= 0) return;
  if (!dropout_key_) dropout_key_ = Tensor::zeros({4}, ctx_->master, ctx_->device);
  fill_each(*ctx_, dropout_key_pieces(config().seed, step), dropout_key_);
}

void Model::drop(Context& ctx, const Pass& pass, int place, const Tensor& x, Tensor& y) const {
  if (!pass.dropout_key) return;
  apply_dropout(
      ctx, {config().dropout, static_cast<std::uint64_t>(place), pass.settings.first_position, pass.dropout_key}, x, y);
}

// Returns the gradient of what dropout read, from that of what it wrote, which the residual stream still needs.
Tensor Model::dropped_gradient(Context& ctx, const Pass& pass, int place, const Tensor& dy) const {
  if (!pass.dropout_key) return dy;
  Tensor dx = ctx.scratch(dy.shape());
  drop(ctx, pass, place, dy, dx);
  return dx;
}

void Model::check_ids(const DeviceBatch& batch) const {
  if (batch.smallest_id < 0 || batch.largest_id >= config().vocab) {
    failed(Code::token_out_of_range, "a batch contains token ids from {} to {}, but the vocabulary has 0 to {}",
           batch.smallest_id, batch.largest_id, config().vocab - 1);
  }
}

Pass Model::new_pass(Context& ctx, const StepSettings& settings, bool training, const Tensor& tokens,
                     const Tensor& positions) const {
  Pass pass;
  pass.settings = settings;
  if (settings.top_k <= 0) pass.settings.top_k = config().top_k;
  if (settings.temperature <= 0) pass.settings.temperature = training ? config().train_temp : config().eval_temp;
  pass.training = training;
  pass.temperature = ctx.scratch({1}, ctx.master);
  fill(ctx, pass.settings.temperature, pass.temperature);
  pass.tokens = tokens;
  pass.positions = positions;
  return pass;
}

Pass Model::new_pass(Context& ctx, const StepSettings& settings, bool training, const DeviceBatch& batch) const {
  Pass pass = new_pass(ctx, settings, training, batch.tokens, batch.positions);
  pass.sequences = batch.sequences;
  if (config().past() > 0) {
    pass.past = ctx.scratch({batch.sequences.tokens, config().past() + 1}, DType::i32);
    conv_rows(ctx, batch.positions, pass.past);
  }
  return pass;
}

Tensor Model::train_pass(Schedule& schedule, const DeviceBatch& batch, const StepSettings& settings,
                         const MatricesReady& ready) {
  check_ids(batch);
  Context& ctx = schedule.main();
  Pass pass = new_pass(ctx, settings, true, batch);
  pass.counted = settings.count_pads ? nullptr : &batch.targets;
  pass.auxiliary_loss = auxiliary_loss_;
  if (config().dropout > 0) pass.dropout_key = dropout_key_;
  pass.auxiliary_share = batch.loss_scale ? 1.0 : settings.loss_scale * static_cast<double>(batch.predicted);
  Tape tape;
  tape.order = order_tokens(schedule.fork(), batch.tokens, parts_.embed);
  const Tensor h = forward(ctx, pass, tape);
  schedule.join();
  // Few numbers in several small kernels: concurrent with the head and the backward pass.
  Context& side = schedule.fork();
  // Layers whose keys do not learn are only counted; those with equal plans are added up together.
  for (const bool learns : {true, false}) {
    std::vector<LayerChoices> choices;
    for (std::size_t i = 0; i < settings.keys.size(); ++i) {
      if (settings.keys[i].learns != learns) continue;
      const RouterTape& routed = *tape.layers[i].ffn->routed();
      choices.push_back({routed.query, routed.routing, settings.keys[i], settings.first_position, &key_sums_[i]});
    }
    if (!choices.empty()) add_key_sums(side, choices, pass.counted);
  }
  Tensor nll = ctx.scratch({batch.sequences.tokens}, ctx.master);
  Tensor dh = ctx.scratch(h.shape());
  head_loss(ctx, h, parts_.head_weight, parts_.head_bias, batch.targets,
            batch.loss_scale ? LossScale(batch.loss_scale) : LossScale(settings.loss_scale), nll, &dh,
            ready ? nullptr : &schedule);
  if (ready) ready(config().layers);
  backward(schedule, batch, pass, tape, dh, ready);
  schedule.join();
  return nll;
}

void Model::serve_pass(bool training) {
  if (!uses_expert_parallelism(*ctx_, config())) return;
  Pass pass;
  pass.training = training;
  std::vector<std::unique_ptr<FeedForward::Tape>> tapes;
  for (const Layer& layer : parts_.layers) {
    if (training) {
      tapes.push_back(layer.ffn->serve_forward(*ctx_, pass));
    } else {
      const ArenaScope scope(*ctx_->arena);
      layer.ffn->serve_forward(*ctx_, pass);
    }
  }
  for (std::size_t i = tapes.size(); i-- > 0;) parts_.layers[i].ffn->serve_backward(*ctx_, *tapes[i]);
}

// Evaluation keeps the intermediate results of only one layer at a time.
Tensor Model::head_input(Context& ctx, const DeviceBatch& batch, const StepSettings& settings,
                         const ForwardObserver& observer) const {
  check_ids(batch);
  const Shape shape{batch.sequences.tokens, config().d_model};
  const Pass pass = new_pass(ctx, settings, false, batch);
  Stream kept{ctx.scratch(shape), ctx.scratch(shape)};
  Tensor previous_query;
  if (config().ground > 0) previous_query = ctx.scratch({batch.sequences.tokens, config().query_size()}, ctx.master);
  const auto keep = [&](const Stream& stream) {
    convert(ctx, stream.residual, kept.residual);
    convert(ctx, stream.input, kept.input);
  };
  {
    const ArenaScope scope(*ctx.arena);
    Stream stream;
    embed(ctx, pass, stream);
    keep(stream);
  }
  for (const Layer& layer : parts_.layers) {
    const ArenaScope scope(*ctx.arena);
    Stream stream = kept;
    LayerTape tape;
    layer_forward(ctx, layer, pass, previous_query && layer.index > 0 ? &previous_query : nullptr, tape, stream);
    keep(stream);
    if (tape.query() == nullptr) continue;
    if (previous_query) convert(ctx, *tape.query(), previous_query);
    if (observer.layer) observer.layer(layer.index, *tape.ffn->routed());
  }
  if (observer.states != nullptr) *observer.states = kept.input;
  return kept.input;
}

Tensor Model::evaluate(Context& ctx, const DeviceBatch& batch, const StepSettings& settings,
                       const ForwardObserver& observer) const {
  const Tensor h = head_input(ctx, batch, settings, observer);
  Tensor nll = ctx.scratch({batch.sequences.tokens}, ctx.master);
  head_loss(ctx, h, parts_.head_weight, parts_.head_bias, batch.targets, 1.0, nll, nullptr);
  return nll;
}

Tensor Model::logits(const DeviceBatch& batch, const StepSettings& settings, const ForwardObserver& observer) {
  const Tensor h = head_input(*ctx_, batch, settings, observer);
  Tensor out = ctx_->scratch({batch.sequences.tokens, config().vocab}, ctx_->master);
  linear_forward(*ctx_, h, parts_.head_weight, parts_.head_bias, out);
  return out;
}

Model::Cache Model::make_cache(std::int64_t slots, std::int64_t capacity) {
  if (!config().causal)
    bad_input(Code::model_unsuitable,
              "this model was trained without a causal mask (model.causal = false) and cannot generate text");
  // A position is written before it is read. On the CPU, untouched memory costs nothing. On a GPU, kernels may load
  // positions that they then mask, so these must hold finite numbers.
  const auto make = [&](Shape shape) {
    return ctx_->device.is_cpu() ? Tensor::empty(std::move(shape), ctx_->compute, ctx_->device)
                                 : Tensor::zeros(std::move(shape), ctx_->compute, ctx_->device);
  };
  Cache cache;
  cache.capacity = capacity;
  for (int i = 0; i < config().layers; ++i) cache.layers.push_back(make({slots, capacity, 2 * config().d_model}));
  for (int i = 0; i < config().layers && config().past() > 0; ++i)
    cache.states.push_back(make({slots * capacity, config().d_model}));
  return cache;
}

Tensor Model::decode(Cache& cache, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& slots,
                     const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& wanted,
                     const StepSettings& settings, const ForwardObserver& observer) {
  Context& ctx = *ctx_;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config().vocab)
      failed(Code::token_out_of_range, "token {} is outside the vocabulary of {}", tokens[i], config().vocab);
    if (positions[i] < 0 || positions[i] >= cache.capacity)
      failed(Code::index_out_of_range, "position {} is outside a cache of {}", positions[i], cache.capacity);
  }
  DecodeRows rows{
      to_device(ctx, tokens), to_device(ctx, slots), to_device(ctx, positions), to_device(ctx, wanted), {}, {}};
  if (config().past() > 0) {
    std::vector<std::int32_t> own, before;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      own.push_back(slots[i] * static_cast<std::int32_t>(cache.capacity) + positions[i]);
      for (std::int32_t j = 0; j <= config().past(); ++j) before.push_back(positions[i] >= j ? own.back() - j : -1);
    }
    rows.places = to_device(ctx, own);
    rows.past = to_device(ctx, before).reshape({static_cast<std::int64_t>(tokens.size()), config().past() + 1});
  }
  return decode(cache, rows, settings, observer);
}

Tensor Model::decode(Cache& cache, const DecodeRows& rows, const StepSettings& settings,
                     const ForwardObserver& observer) {
  Context& ctx = *ctx_;
  Pass pass = new_pass(ctx, settings, false, rows.tokens, rows.positions);
  pass.cache = cache.layers;
  pass.slots = rows.slots;
  pass.kept_states = cache.states;
  pass.places = rows.places;
  pass.past = rows.past;
  Stream stream;
  Tensor previous_query;
  embed(ctx, pass, stream);
  for (const Layer& layer : parts_.layers) {
    LayerTape tape;
    layer_forward(ctx, layer, pass, previous_query ? &previous_query : nullptr, tape, stream);
    if (tape.query() == nullptr) continue;
    previous_query = *tape.query();
    if (observer.layer) observer.layer(layer.index, *tape.ffn->routed());
  }
  Tensor states = ctx.scratch({rows.wanted.dim(0), config().d_model});
  gather_rows(ctx, stream.input, rows.wanted, states);
  if (observer.states != nullptr) *observer.states = states;
  Tensor out = ctx.scratch({rows.wanted.dim(0), config().vocab}, ctx.master);
  linear_forward(ctx, states, parts_.head_weight, parts_.head_bias, out);
  return out;
}

void Model::clear_gradients(Context& ctx) {
  if (parameters_.grad) fill(ctx, 0, parameters_.grad);
  fill(ctx, 0, auxiliary_loss_);
}

void Model::clear_key_sums(Context& ctx) { some::clear_key_sums(ctx, key_sums_); }

std::vector<KeyPlan> Model::plan_keys(std::int64_t step, double progress) const {
  std::vector<KeyPlan> plans;
  if (config().ffn != Ffn::some) return plans;
  for (const Layer& layer : parts_.layers)
    plans.push_back(plan_update(config().keys, {config().seed, layer.index, step, layer.keys.steps + 1, progress}));
  return plans;
}

bool Model::keys_due(std::int64_t step) const { return config().ffn == Ffn::some && update_due(config().keys, step); }

void Model::update_key_stores(Context& ctx, std::span<const KeyPlan> plans) {
  std::vector<LayerUpdate> updates;
  std::vector<Tensor> counts;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    counts.push_back(key_sums_[i].slot_counts);
    if (plans[i].learns) updates.push_back({&parts_.layers[i].keys, &key_sums_[i], plans[i]});
  }
  add_counts(ctx, counts, epoch_counts_);
  update_keys(ctx, updates);
}

void Model::count_key_update(std::span<const KeyPlan> plans) {
  for (std::size_t i = 0; i < plans.size(); ++i) parts_.layers[i].keys.steps += plans[i].learns;
}

void Model::make_all_key_sums() {
  key_sums_.clear();
  for (int i = 0; i < config().layers; ++i)
    key_sums_.push_back(make_key_sums(*ctx_, config().experts, config().top_k, config().query_size(), key_needs_));
  ++key_memory_;
}

void Model::set_key_settings(const KeySettings& settings) {
  check_key_settings(settings, config().layers);
  parts_.config->keys = settings;
  if (config().ffn != Ffn::some) return;
  const Needs needs = key_needs_ | needs_of(settings);
  if (!(needs == key_needs_)) {
    key_needs_ = needs;
    make_all_key_sums();
  }
  for (Layer& layer : parts_.layers) fit_key_state(settings, layer.keys);
  ++key_memory_;
}

void Model::change_settings(const ModelConfig& config) {
  check_config(config);
  const bool other_sums = config.ffn == Ffn::some && config.top_k != parts_.config->top_k;
  const int vocab = parts_.config->vocab;  // vocabulary size of the tokenizer, not of the recipe
  *parts_.config = config;
  parts_.config->vocab = vocab;
  if (other_sums) make_all_key_sums();
  set_key_settings(config.keys);
}

}  // namespace some
