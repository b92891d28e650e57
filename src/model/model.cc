#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "experts/library_file.h"
#include "kernels/reduce/deferred_sums.h"
#include "ops/conv.h"
#include "ops/deferred_gradients.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "runtime/side_stream.h"
#include "runtime/staging.h"

namespace some {
namespace {

Tensor to_device(Context& ctx, const std::vector<std::int32_t>& values) {
  return ctx.staging->upload(ctx, {&values})[0];
}

}  // namespace

DeviceBatch upload(Context& ctx, const Batch& batch) {
  DeviceBatch out;
  const std::vector<Tensor> parts =
      ctx.staging->upload(ctx, {&batch.tokens, &batch.targets, &batch.positions, &batch.offsets});
  out.tokens = parts[0];
  out.targets = parts[1];
  out.positions = parts[2];
  out.sequences.offsets = parts[3];
  out.sequences.count = batch.rows();
  out.sequences.longest = batch.longest;
  out.sequences.tokens = batch.size();
  out.predicted = batch.predicted;
  if (!batch.tokens.empty()) {
    const auto [smallest, largest] = std::minmax_element(batch.tokens.begin(), batch.tokens.end());
    out.smallest_id = *smallest;
    out.largest_id = std::max(*largest, *std::max_element(batch.targets.begin(), batch.targets.end()));
  }
  return out;
}

// spec 2. Both placements of the norm are one walk: a block adds to `residual` and reads `input`; after a norm,
// post-norm goes on with the normed tensor in both roles, pre-norm keeps the sum as the residual.
struct Model::Stream {
  Tensor residual, input;
};

// What one layer computes.
struct Model::Block {
  Tensor input;  // what the attention reads
  AttentionTape attention;
  NormTape norm1;  // after the attention
  SomeTape some;
  DenseTape dense;
  NormTape norm2;  // after the feed-forward block; without one in pre-norm there is none
};

// Everything the backward pass needs from the forward pass of all layers.
struct Model::Tape {
  TokenOrder order;
  Tensor embedded;
  NormTape first_norm;  // pre-norm only
  std::vector<Block> blocks;
};

Model::Model(std::shared_ptr<Context> ctx, const ModelConfig& config, bool training, bool make_library)
    : ctx_(std::move(ctx)), config_(config) {
  check_config(config_);
  const std::vector<Parameter> declared = declare_parameters(config_, parts_);
  for (const Parameter& one : declared) {
    if (one.trained()) parameters_.declare(one.name, one.shape, one.initial);
  }
  parameters_.allocate(*ctx_, training);
  parameters_.draw_initial_values(*ctx_, config_.seed);
  for (const Parameter& one : declared) {
    if (one.trained()) *one.bound = parameters_.param(one.name);
  }
  auxiliary_loss_ = Tensor::zeros({1}, ctx_->master, ctx_->device);
  if (config_.ffn != Ffn::some) return;
  LibrarySpec spec{config_.library_seed, config_.init,  config_.experts,
                   config_.d_model,      config_.d_ffn, config_.experts_have_output()};
  const Group& holders = ctx_->expert_group;
  const bool spread = expert_parallel(*ctx_, config_);
  const some::Block own_experts = ctx_->mesh().experts(ctx_->group.rank(), config_.experts);
  // What learns is held whole by every rank, so that it is written and summed as always; a frozen library is not.
  if (spread && config_.training != ExpertTraining::full) spec.part = own_experts;
  // Sums are kept without training too: evaluation counts choices with them and adaptation learns from them.
  key_needs_ = needs_of(config_.keys);
  make_all_key_sums();
  const auto give = [&](const Tensor& drawn, Param& matrix) {
    if (matrix.value)
      matrix.value.copy_from(drawn.to(ctx_->master));  // an expert that learns starts from the library
    else
      matrix.compute = drawn;
  };
  for (Layer& layer : parts_.layers) {
    layer.keys = make_key_state(*ctx_, config_.experts, config_.query_size(), config_.seed, layer.index, config_.keys);
    epoch_counts_.push_back(Tensor::zeros({config_.experts}, DType::i64, ctx_->device));
    if (spread) layer.held = own_experts;
    if (!make_library || !config_.use_library) continue;
    LayerLibrary library = is_library_file(spec.method) ? load_layer_library(*ctx_, spec, layer.index)
                                                        : make_layer_library(*ctx_, spec, layer.index);
    layer.library_hash = library.hash;
    if (spec.part) {
      const std::vector<std::int64_t> mine(static_cast<std::size_t>(holders.size()),
                                           static_cast<std::int64_t>(library.hash));
      layer.library_hash = 0;
      for (const std::int64_t part : holders.all_to_all(mine)) layer.library_hash += static_cast<std::uint64_t>(part);
    }
    give(library.weights.w1, layer.w1);
    give(library.weights.w2, layer.w2);
  }
  parameters_.refresh_compute(*ctx_);
}

std::pair<Param, Param> Model::norm_after(int layer) const {
  const Layer& own = parts_.layers[static_cast<std::size_t>(layer)];
  if (config_.norm == Norm::post) return {own.norm2_weight, own.norm2_bias};
  if (layer + 1 == config_.layers) return {parts_.final_weight, parts_.final_bias};
  const Layer& next = parts_.layers[static_cast<std::size_t>(layer) + 1];
  return {next.norm1_weight, next.norm1_bias};
}

Tensor Model::temperature_tensor(double value) {
  Tensor out = ctx_->scratch({1}, ctx_->master);
  fill(*ctx_, value, out);
  return out;
}

bool Model::layer_learns(int layer) const {
  return config_.ffn == Ffn::some && plan_update(config_.keys, {config_.seed, layer}).learns;
}

std::uint64_t Model::library_hash() const {
  std::uint64_t hash = 0;
  for (const Layer& layer : parts_.layers) hash = hash * 0x9E3779B97F4A7C15ull + layer.library_hash;
  return hash;
}

NormTape Model::embed(const Tensor& tokens, const Tensor& positions, Stream& stream) {
  Context& ctx = *ctx_;
  stream.residual = ctx.scratch({tokens.dim(0), config_.d_model});
  embed_forward(ctx, tokens, positions, parts_.embed, config_.position == Position::sinusoidal, stream.residual);
  stream.input = stream.residual;
  if (config_.norm == Norm::post) return {};
  const NormTape norm =
      norm_layer_forward(ctx, stream.residual, nullptr, parts_.layers[0].norm1_weight, parts_.layers[0].norm1_bias);
  stream.input = norm.y;
  return norm;
}

void Model::after_attention(const Layer& layer, const Pass& pass, const Tensor* previous_query, Block& block,
                            Stream& stream) {
  Context& ctx = *ctx_;
  const bool post = config_.norm == Norm::post;
  const auto behind = [&](const NormTape& norm) { stream = {post ? norm.y : norm.sum, norm.y}; };
  const Tensor& attended = block.attention.output;
  const auto [after_weight, after_bias] = norm_after(layer.index);
  if (!post && config_.ffn == Ffn::none) {
    block.norm1 = norm_layer_forward(ctx, stream.residual, &attended, after_weight, after_bias);
    return behind(block.norm1);
  }
  block.norm1 = norm_layer_forward(ctx, stream.residual, &attended, post ? layer.norm1_weight : layer.norm2_weight,
                                   post ? layer.norm1_bias : layer.norm2_bias);
  behind(block.norm1);
  const Tensor* addend = nullptr;
  if (config_.ffn == Ffn::some) {
    block.some = some_forward(ctx, config_, layer, pass, stream.input, previous_query);
    addend = &block.some.output;
  } else if (config_.ffn == Ffn::dense) {
    block.dense = dense_forward(ctx, config_, layer, pass, stream.input);
    addend = &block.dense.output;
  }
  block.norm2 = norm_layer_forward(ctx, stream.residual, addend, after_weight, after_bias);
  behind(block.norm2);
}

Tensor Model::forward(const DeviceBatch& batch, const Pass& pass, Tape& tape) {
  Stream stream;
  tape.first_norm = embed(batch.tokens, batch.positions, stream);
  tape.embedded = stream.residual;
  const Tensor* previous_query = nullptr;
  for (const Layer& layer : parts_.layers) {
    Block& block = tape.blocks.emplace_back();
    block.input = stream.input;
    block.attention = attention_layer_forward(*ctx_, config_, layer, stream.input, batch.positions, batch.sequences);
    after_attention(layer, pass, previous_query, block, stream);
    if (config_.ffn == Ffn::some) previous_query = &block.some.query;
  }
  return stream.input;
}

// dy: gradient of what forward() returned; it is overwritten. Four buffers serve all layers.
void Model::backward(const DeviceBatch& batch, const Pass& pass, Tape& tape, Tensor dy, const MatricesReady& ready) {
  Context& ctx = *ctx_;
  const bool post = config_.norm == Norm::post;
  const Shape shape = dy.shape();
  DeferSums sums(ctx);
  Tensor dsum2 = ctx.scratch(shape);             // of what the norm after the feed-forward block reads
  Tensor dafter_attention = ctx.scratch(shape);  // of what the feed-forward block reads
  Tensor dsum1 = ctx.scratch(shape);             // of what the norm after the attention reads
  Tensor dresidual;  // pre-norm: the gradient that reaches the residual stream past the norms; it lies in dsum1
  Tensor dquery;     // grounding: what a layer sends to the one below
  for (int i = config_.layers - 1; i >= 0; --i) {
    Layer& layer = parts_.layers[static_cast<std::size_t>(i)];
    Block& block = tape.blocks[static_cast<std::size_t>(i)];
    const auto [after_weight, after_bias] = norm_after(i);
    const Tensor* extra = dresidual ? &dresidual : nullptr;
    Tensor dquery_below;
    if (config_.ground > 0 && i > 0 && config_.ffn == Ffn::some) {
      dquery_below = ctx.scratch(block.some.query.shape(), ctx.master);
      fill(ctx, 0, dquery_below);
    }
    const ArenaScope scope(*ctx.arena);
    DeferGradients gradients(ctx);
    if (!post && config_.ffn == Ffn::none) {
      norm_backward(ctx, dy, block.norm1.sum, block.norm1.mean, block.norm1.rstd, after_weight, after_bias, extra,
                    dsum1);
    } else {
      // Post-norm: norm1.y is the residual too. Pre-norm: the residual's part joins after norm1.
      norm_backward(ctx, dy, block.norm2.sum, block.norm2.mean, block.norm2.rstd, after_weight, after_bias, extra,
                    dsum2, post ? &dafter_attention : nullptr);
      if (!post) fill(ctx, 0, dafter_attention);
      if (config_.ffn == Ffn::some) {
        some_backward(ctx, config_, layer, pass, block.some, block.norm1.y, dsum2, dquery ? &dquery : nullptr,
                      dquery_below ? &dquery_below : nullptr, dafter_attention);
        dquery = dquery_below;
      } else if (config_.ffn == Ffn::dense) {
        dense_backward(ctx, layer, pass, block.dense, block.norm1.y, dsum2, dafter_attention);
      }
      const Param& weight = post ? layer.norm1_weight : layer.norm2_weight;
      const Param& bias = post ? layer.norm1_bias : layer.norm2_bias;
      norm_backward(ctx, dafter_attention, block.norm1.sum, block.norm1.mean, block.norm1.rstd, weight, bias,
                    post ? nullptr : &dsum2, dsum1, post ? &dy : nullptr);
    }
    if (!post) dresidual = dsum1;
    attention_layer_backward(ctx, config_, layer, block.attention, block.input, batch.positions, batch.sequences, dsum1,
                             dy, post);
    gradients.finish();
    if (ready) ready(i);
  }
  if (!post) {
    norm_backward(ctx, dy, tape.embedded, tape.first_norm.mean, tape.first_norm.rstd, parts_.layers[0].norm1_weight,
                  parts_.layers[0].norm1_bias, &dresidual, dsum2);
    dy = dsum2;
  }
  {
    const SideStream beside(ctx);
    sums.finish();
  }
  embed_backward(ctx, batch.tokens, tape.order, dy, parts_.embed);
}

void Model::check_ids(const DeviceBatch& batch) const {
  if (batch.smallest_id < 0 || batch.largest_id >= config_.vocab) {
    failed("a batch holds token ids from {} to {}; the model's vocabulary has 0 to {}", batch.smallest_id,
           batch.largest_id, config_.vocab - 1);
  }
}

Tensor Model::train_pass(const DeviceBatch& batch, const TrainPass& options, const MatricesReady& ready) {
  check_ids(batch);
  Context& ctx = *ctx_;
  Pass pass;
  pass.training = true;
  pass.top_k = options.top_k > 0 ? options.top_k : config_.top_k;
  pass.fixed_temperature = temperature_tensor(options.temperature > 0 ? options.temperature : config_.train_temp);
  pass.tokens = &batch.tokens;
  pass.taking_part = options.count_pads ? nullptr : &batch.targets;
  pass.auxiliary_loss = auxiliary_loss_;
  pass.auxiliary_share = options.loss_scale * static_cast<double>(batch.predicted);
  pass.past = conv_table(batch);
  Tape tape;
  tape.blocks.reserve(parts_.layers.size());
  {
    const SideStream beside(ctx);
    tape.order = order_tokens(ctx, batch.tokens, parts_.embed);
  }
  const Tensor h = forward(batch, pass, tape);
  join_side_stream(ctx);
  {  // few numbers, in several small steps: beside the head and the way back
    const SideStream beside(ctx);
    // Layers that do not learn are only counted: those that are alike in this are added up together.
    for (const bool learns : {true, false}) {
      std::vector<LayerChoices> choices;
      for (std::size_t i = 0; i < options.keys.size(); ++i) {
        if (options.keys[i].learns == learns)
          choices.push_back({tape.blocks[i].some.query, tape.blocks[i].some.routing, options.keys[i],
                             options.first_position, &key_sums_[i]});
      }
      if (!choices.empty()) add_key_sums(ctx, choices, pass.taking_part);
    }
  }
  Tensor nll = ctx.scratch({batch.sequences.tokens}, ctx.master);
  Tensor dh = ctx.scratch(h.shape());
  head_loss(ctx, h, parts_.head_weight, parts_.head_bias, batch.targets, options.loss_scale, nll, &dh);
  if (ready) ready(config_.layers);
  backward(batch, pass, tape, dh, ready);
  join_side_stream(ctx);
  return nll;
}

void Model::serve_pass(bool training) {
  if (!expert_parallel(*ctx_, config_)) return;
  Pass pass;
  pass.training = training;
  std::vector<SomeTape> tapes;
  for (const Layer& layer : parts_.layers) {
    if (training) {
      tapes.push_back(some_serve_forward(*ctx_, config_, layer, pass));
    } else {
      const ArenaScope scope(*ctx_->arena);
      some_serve_forward(*ctx_, config_, layer, pass);
    }
  }
  for (std::size_t i = tapes.size(); i-- > 0;) some_serve_backward(*ctx_, config_, parts_.layers[i], tapes[i]);
}

Tensor Model::conv_table(const DeviceBatch& batch) {
  if (config_.past() == 0) return {};
  Tensor rows = ctx_->scratch({batch.sequences.tokens, config_.past() + 1}, DType::i32);
  conv_rows(*ctx_, batch.positions, rows);
  return rows;
}

Pass Model::eval_settings(const EvalPass& options, const Tensor& tokens) {
  Pass pass;
  pass.top_k = config_.top_k;
  pass.fixed_temperature = temperature_tensor(options.temperature > 0 ? options.temperature : config_.eval_temp);
  pass.tokens = &tokens;
  return pass;
}

// Evaluation keeps only one layer's intermediate results at a time.
Tensor Model::head_input(const DeviceBatch& batch, const EvalPass& options) {
  check_ids(batch);
  Context& ctx = *ctx_;
  const Shape shape{batch.sequences.tokens, config_.d_model};
  Pass pass = eval_settings(options, batch.tokens);
  pass.past = conv_table(batch);
  Stream kept{ctx.scratch(shape), ctx.scratch(shape)};
  Tensor previous_query;
  if (config_.ground > 0) previous_query = ctx.scratch({batch.sequences.tokens, config_.query_size()}, ctx.master);
  const auto keep = [&](const Stream& stream) {
    convert(ctx, stream.residual, kept.residual);
    convert(ctx, stream.input, kept.input);
  };
  {
    const ArenaScope scope(*ctx.arena);
    Stream stream;
    embed(batch.tokens, batch.positions, stream);
    keep(stream);
  }
  for (const Layer& layer : parts_.layers) {
    const ArenaScope scope(*ctx.arena);
    Stream stream = kept;
    Block block;
    block.attention = attention_layer_forward(ctx, config_, layer, stream.input, batch.positions, batch.sequences);
    after_attention(layer, pass, previous_query && layer.index > 0 ? &previous_query : nullptr, block, stream);
    keep(stream);
    if (config_.ffn != Ffn::some) continue;
    if (previous_query) convert(ctx, block.some.query, previous_query);
    if (options.observe) options.observe(layer.index, block.some);
  }
  return kept.input;
}

Tensor Model::evaluate(const DeviceBatch& batch, const EvalPass& pass, Tensor* states) {
  const Tensor h = head_input(batch, pass);
  if (states != nullptr) *states = h;
  Tensor nll = ctx_->scratch({batch.sequences.tokens}, ctx_->master);
  head_loss(*ctx_, h, parts_.head_weight, parts_.head_bias, batch.targets, 1.0, nll, nullptr);
  return nll;
}

Tensor Model::logits(const DeviceBatch& batch, const EvalPass& pass) {
  const Tensor h = head_input(batch, pass);
  Tensor out = ctx_->scratch({batch.sequences.tokens, config_.vocab}, ctx_->master);
  linear_forward(*ctx_, h, parts_.head_weight, parts_.head_bias, out);
  return out;
}

Model::Cache Model::make_cache(std::int64_t slots, std::int64_t capacity) {
  if (!config_.causal)
    bad_input(
        "this model was trained without a causal mask (model.causal = false): it cannot generate text token by token");
  Cache cache;
  cache.capacity = capacity;
  for (int i = 0; i < config_.layers; ++i)
    cache.layers.push_back(Tensor::zeros({slots, capacity, 2 * config_.d_model}, ctx_->compute, ctx_->device));
  for (int i = 0; i < config_.layers && config_.past() > 0; ++i)
    cache.states.push_back(Tensor::zeros({slots * capacity, config_.d_model}, ctx_->compute, ctx_->device));
  return cache;
}

Tensor Model::decode(Cache& cache, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& slots,
                     const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& wanted,
                     const EvalPass& options, Tensor* states) {
  Context& ctx = *ctx_;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocab)
      failed("token {} is outside of the vocabulary of {}", tokens[i], config_.vocab);
    if (positions[i] < 0 || positions[i] >= cache.capacity)
      failed("position {} is outside of a cache of {}", positions[i], cache.capacity);
  }
  const Tensor token_ids = to_device(ctx, tokens), slot_ids = to_device(ctx, slots), places = to_device(ctx, positions);
  Pass pass = eval_settings(options, token_ids);
  if (config_.past() > 0) {
    std::vector<std::int32_t> own, before;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      own.push_back(slots[i] * static_cast<std::int32_t>(cache.capacity) + positions[i]);
      for (std::int32_t j = 0; j <= config_.past(); ++j) before.push_back(positions[i] >= j ? own.back() - j : -1);
    }
    pass.kept_states = cache.states;
    pass.places = to_device(ctx, own);
    pass.past = to_device(ctx, before).reshape({static_cast<std::int64_t>(tokens.size()), config_.past() + 1});
  }
  Stream stream;
  Tensor previous_query;
  embed(token_ids, places, stream);
  for (const Layer& layer : parts_.layers) {
    Block block;
    block.attention.output = attention_layer_cached(ctx, config_, layer, stream.input, slot_ids, places,
                                                    cache.layers[static_cast<std::size_t>(layer.index)]);
    after_attention(layer, pass, previous_query ? &previous_query : nullptr, block, stream);
    if (config_.ffn != Ffn::some) continue;
    previous_query = block.some.query;
    if (options.observe) options.observe(layer.index, block.some);
  }
  Tensor rows = ctx.scratch({static_cast<std::int64_t>(wanted.size()), config_.d_model});
  gather_rows(ctx, stream.input, to_device(ctx, wanted), rows);
  if (states != nullptr) *states = rows;
  Tensor out = ctx.scratch({static_cast<std::int64_t>(wanted.size()), config_.vocab}, ctx.master);
  linear_forward(ctx, rows, parts_.head_weight, parts_.head_bias, out);
  return out;
}

void Model::clear_gradients() {
  if (parameters_.grad) fill(*ctx_, 0, parameters_.grad);
  fill(*ctx_, 0, auxiliary_loss_);
}

void Model::clear_key_sums() { some::clear_key_sums(*ctx_, key_sums_); }

std::vector<KeyPlan> Model::plan_keys(std::int64_t step, double progress) const {
  std::vector<KeyPlan> plans;
  if (config_.ffn != Ffn::some) return plans;
  for (const Layer& layer : parts_.layers)
    plans.push_back(plan_update(config_.keys, {config_.seed, layer.index, step, layer.keys.steps + 1, progress}));
  return plans;
}

bool Model::keys_due(std::int64_t step) const { return config_.ffn == Ffn::some && update_due(config_.keys, step); }

void Model::update_key_stores(std::span<const KeyPlan> plans) {
  std::vector<LayerUpdate> updates;
  std::vector<Tensor> counts;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    counts.push_back(key_sums_[i].slot_counts);
    if (plans[i].learns) updates.push_back({&parts_.layers[i].keys, &key_sums_[i], plans[i]});
  }
  add_counts(*ctx_, counts, epoch_counts_);
  update_keys(*ctx_, updates);
}

void Model::count_key_update(std::span<const KeyPlan> plans) {
  for (std::size_t i = 0; i < plans.size(); ++i) parts_.layers[i].keys.steps += plans[i].learns;
}

void Model::make_all_key_sums() {
  key_sums_.clear();
  for (int i = 0; i < config_.layers; ++i)
    key_sums_.push_back(make_key_sums(*ctx_, config_.experts, config_.top_k, config_.query_size(), key_needs_));
  ++key_memory_;
}

void Model::set_key_settings(const KeySettings& settings) {
  check_key_settings(settings, config_.layers);
  config_.keys = settings;
  if (config_.ffn != Ffn::some) return;
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
  const bool other_sums = config.ffn == Ffn::some && config.top_k != config_.top_k;
  const int vocab = config_.vocab;  // the tokenizer's, not the recipe's
  config_ = config;
  config_.vocab = vocab;
  if (other_sums) make_all_key_sums();
  set_key_settings(config.keys);
}

}  // namespace some
