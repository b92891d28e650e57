// Fused kernels for a step (steps.h): post-norm, sinusoidal positions, heads of 64 columns, and a dense or modulated
// feed-forward block.
#include "inference/cuda/step_model.h"

#if SOME_HAVE_CUDA

#include <algorithm>
#include <cmath>

#include "tensor/cuda_state.h"
#include "tensor/cuda_streams.h"
#include "tensor/device.h"

namespace some::decoding {
namespace {

struct LayerPointers {
  const bf16 *qkv, *out, *up, *down;
  const float *qkv_bias, *out_bias, *up_bias, *down_bias;
  const float *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias, *taps;
  // Only for models with experts.
  Routes routes;
  Modulations modulations;
};

bf16* data(const Tensor& tensor) { return static_cast<bf16*>(tensor.raw()); }
const bf16* halves(const Param& param) { return static_cast<const bf16*>(param.compute.raw()); }

RouteReport report_of(const StepRows& rows, std::size_t layer) {
  RouteReport report = rows.report;
  report.layer = static_cast<int>(layer);
  return report;
}

// Steps of at least that many rows are divided into chains of multiples of group_rows, on one stream each: attention
// waits for memory while products of other chains compute.
constexpr std::int64_t divided_rows = 128, group_rows = 64;
constexpr int max_chains = 4;
// Steps of at least that many rows divide them between two groups of clusters.
constexpr int divided_few_rows = 4;
// With at least that many rows most experts are used, so their weights are requested before the routing is known.
constexpr std::int64_t prefetched_rows = 8;

int hidden_units(const ModelConfig& config) { return config.ffn == Ffn::dense ? config.dense_hidden() : config.d_ffn; }

class FusedSteps : public StepModel {
 public:
  FusedSteps(Model& model, const Model::Cache& cache, const DecoderOptions& options)
      : model_(model),
        device_(model.context().device),
        capacity_(cache.capacity),
        router_temperature_(options.router_temperature),
        cache_(cache) {
    const ModelConfig& config = model.config();
    const std::int64_t d = config.d_model;
    std::vector<float> places(static_cast<std::size_t>(capacity_ * d));
    for (std::int64_t p = 0; p < capacity_; ++p) {
      for (std::int64_t c = 0; c < d; ++c) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(c / 2 * 2) / static_cast<double>(d));
        places[static_cast<std::size_t>(p * d + c)] =
            static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    }
    places_ = Tensor::empty({capacity_, d}, DType::f32, device_);
    device_copy(device_, places_.raw(), Device::cpu, places.data(), places.size() * sizeof(float));
    find_layers();
    const ParameterStore& store = model.parameters();
    table_ = store.param("embed.weight").value.data<float>();
    head_weight_ = halves(store.param("head.weight"));
    head_bias_ = store.param("head.bias").value.data<float>();
    for (int i = 1; i < max_chains; ++i) streams_.push_back(some::cuda::stream_like(device_.cuda()));
  }

  void prepare(const StepShape& shape) override {
    if (model_.key_memory() != key_memory_) {
      ++generation_;
      find_layers();
    }
    make_buffers(shape.rows, is_few(shape) ? shape.rows : std::max<std::int64_t>(shape.wanted, 1));
  }
  std::int64_t generation() const override { return generation_; }
  bool uses_arena() const override { return false; }
  std::int64_t prompt_rows() const override { return 4096; }
  bool divides(const StepShape& shape) const override {
    return shape.whole && shape.memory == 0 && shape.rows >= divided_rows && !is_few(shape);
  }
  void run_divided(const StepShape& shape, const StepRows& rows, int steps, const RowSampler& sample) override;
  StepOutput run(const StepShape& shape, const StepRows& rows) override {
    const bool few = is_few(shape);
    if (few)
      launch_few(shape, rows);
    else
      launch_many(shape, rows);
    return {logits_.data<float>(), data(x1_), few};
  }

 private:
  // True if clusters share the rows (few_rows.cuh).
  static bool is_few(const StepShape& shape) { return shape.distinct && shape.rows <= few_rows; }
  LayerPointers pointers_of(int layer) const;
  void find_layers();
  void make_buffers(std::int64_t rows, std::int64_t wanted);
  void grow(Tensor& tensor, std::int64_t elements, DType type);
  void launch_few(const StepShape& shape, const StepRows& rows);
  // Rows of a step that go through the layers on one stream.
  struct RowRange {
    CudaState& state;
    std::int64_t first, count;
    int index;  // of the stream
  };
  void launch_many(const StepShape& shape, const StepRows& rows);
  void launch_layers(const RowRange& range, const StepRows& rows);
  void launch_head(const RowRange& range, const std::int32_t* row_of);
  void launch_modulated(Product up, std::size_t layer, const RowRange& range, const StepRows& rows);
  std::int32_t* counts_of(const RowRange& range, std::size_t layer) const {
    const ModelConfig& config = model_.config();
    return counts_of_experts_.data<std::int32_t>() +
           (range.index * config.layers + static_cast<std::int64_t>(layer)) * config.experts;
  }
  void follow_block(RowInput& in, std::size_t layer, int parts) const;
  bf16* cached(std::size_t layer) const { return data(cache_.layers[layer]); }

  Model& model_;
  Device device_;
  std::int64_t capacity_;
  double router_temperature_;
  std::int64_t key_memory_ = 0;  // Model::key_memory
  std::int64_t generation_ = 0;
  Model::Cache cache_;
  std::vector<LayerPointers> layers_;
  const float *table_ = nullptr, *head_bias_ = nullptr;
  const bf16* head_weight_ = nullptr;
  Tensor places_;
  // Intermediate results, [rows, ...].
  Tensor x1_, x2_, queries_, mixed_, sums_, hidden_, partial1_, partial2_, logits_;
  std::vector<std::unique_ptr<CudaState>> streams_;  // of the chains after the first
  Tensor modulated_, activations_, raw_, gates_, indices_, lists_, counts_of_experts_;
};

LayerPointers FusedSteps::pointers_of(int layer) const {
  const ParameterStore& store = model_.parameters();
  const auto param = [&](const char* name) { return store.param(fmt::format("layers.{}.{}", layer, name)); };
  const auto values = [&](const char* name) { return param(name).value.data<float>(); };
  LayerPointers out{};
  out.qkv = halves(param("attn.qkv.weight"));
  out.qkv_bias = values("attn.qkv.bias");
  out.out = halves(param("attn.out.weight"));
  out.out_bias = values("attn.out.bias");
  const ModelConfig& config = model_.config();
  if (config.ffn == Ffn::dense) {
    out.up = halves(param("ffn.0.weight"));
    out.up_bias = values("ffn.0.bias");
    out.down = halves(param("ffn.1.weight"));
    out.down_bias = values("ffn.1.bias");
  } else {
    const Layer& experts = model_.layers()[static_cast<std::size_t>(layer)];
    out.up = halves(param("hidden.weight"));
    out.up_bias = values("hidden.bias");
    out.down = halves(param("output_proj.weight"));
    out.routes.weight = halves(param("router.0.weight"));
    out.routes.bias = values("router.0.bias");
    out.routes.keys = experts.keys.routing_keys().data<float>();
    if (experts.keys.routing_bias() != nullptr) out.routes.choice_bias = experts.keys.routing_bias()->data<float>();
    if (config.temperature == Temperature::learned) out.routes.log_temperature = values("log_temperature");
    out.routes.inverse_temperature =
        static_cast<float>(1 / (router_temperature_ > 0 ? router_temperature_ : config.eval_temp));
    out.routes.experts = config.experts;
    out.routes.choices = config.top_k;
    out.modulations.gains = values("gains");
    out.modulations.scale = static_cast<float>(config.modulation_scale);
    out.modulations.additive = config.modulation == ModulationPlace::additive;
    out.modulations.shift = config.token_shift;
    if (const HadamardExperts& transforms = experts.experts.hadamard) {
      out.modulations.signs = reinterpret_cast<const std::uint32_t*>(transforms.signs1().cached);
      out.modulations.blocks = transforms.sizes.blocks();
      out.modulations.scale = static_cast<float>(config.modulation_scale * transforms.sizes.scale1());
    } else {
      out.modulations.w1 = data(experts.experts.weights().w1);
    }
  }
  out.norm1_weight = values("norm1.weight");
  out.norm1_bias = values("norm1.bias");
  out.norm2_weight = values("norm2.weight");
  out.norm2_bias = values("norm2.bias");
  if (config.conv > 0) out.taps = values("conv.weight");
  return out;
}

void FusedSteps::find_layers() {
  layers_.clear();
  for (int i = 0; i < model_.config().layers; ++i) layers_.push_back(pointers_of(i));
  key_memory_ = model_.key_memory();
}

void FusedSteps::grow(Tensor& tensor, std::int64_t elements, DType type) {
  if (tensor && tensor.elements() >= elements) return;
  if (tensor) device_synchronize(device_);
  ++generation_;
  tensor = Tensor::zeros({elements}, type, device_);
}

void FusedSteps::make_buffers(std::int64_t rows, std::int64_t wanted) {
  const ModelConfig& config = model_.config();
  const std::int64_t d = config.d_model, hidden = hidden_units(config);
  grow(x1_, rows * d, DType::bf16);
  grow(x2_, rows * d, DType::bf16);
  grow(logits_, wanted * config.vocab, DType::f32);
  if (rows <= few_rows) {
    grow(partial1_, rows * config.heads * d, DType::f32);
    grow(partial2_, rows * ((hidden + hidden_part - 1) / hidden_part) * d, DType::f32);
  }
  // Few-row kernels need these for the rows of one slot, too.
  grow(queries_, rows * d, DType::bf16);
  grow(mixed_, rows * d, DType::bf16);
  grow(sums_, rows * d, DType::bf16);
  grow(hidden_, rows * hidden, DType::bf16);
  if (config.ffn == Ffn::dense) return;
  const std::int64_t choices = rows * config.top_k;
  grow(modulated_, rows * hidden, DType::bf16);
  grow(activations_, choices * hidden, DType::bf16);
  grow(raw_, rows * query_size, DType::f32);
  grow(gates_, choices, DType::f32);
  grow(indices_, choices, DType::i32);
  grow(lists_, rows * config.experts, DType::i32);
  grow(counts_of_experts_, std::int64_t{max_chains} * config.layers * config.experts, DType::i32);
}

void FusedSteps::launch_few(const StepShape& shape, const StepRows& rows) {
  CudaState& state = device_.cuda();
  const ModelConfig& config = model_.config();
  RowInput in{};
  in.tokens = rows.tokens;
  in.slots = rows.slots;
  in.positions = rows.positions;
  in.rows = static_cast<int>(shape.rows);
  in.width = config.d_model;
  in.cluster_rows = in.rows >= divided_few_rows && in.rows <= tile_rows ? in.rows / 2 : tile_rows;
  in.capacity = capacity_;
  const int hidden = hidden_units(config), parts = (hidden + hidden_part - 1) / hidden_part;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerPointers& layer = layers_[i];
    RowInput first = in;
    if (i == 0) {
      first.table = table_;
      first.table_scale = std::sqrt(static_cast<float>(config.d_model));
      first.places = places_.data<float>();
    } else {
      follow_block(first, i - 1, parts);
    }
    first.x = data(x1_);
    const AttentionStep attention{first,     layer.qkv,    layer.qkv_bias,         layer.out,
                                  cached(i), config.heads, partial1_.data<float>()};
    launch(state, attention);
    RowInput second = in;
    second.partial = partial1_.data<float>();
    second.parts = config.heads;
    second.bias = layer.out_bias;
    second.residual = data(x1_);
    second.norm_weight = layer.norm1_weight;
    second.norm_bias = layer.norm1_bias;
    second.x = data(x2_);
    if (!cache_.states.empty()) second.states = data(cache_.states[i]);
    second.taps = config.conv;
    second.taps_weight = layer.taps;
    const FeedForwardStep block{second, layer.up, layer.up_bias, layer.down, hidden, partial2_.data<float>()};
    if (config.ffn == Ffn::dense)
      launch(state, block);
    else
      launch(state,
             ModulatedStep{block, layer.routes, layer.modulations, report_of(rows, i), shape.rows >= prefetched_rows});
  }
  follow_block(in, layers_.size() - 1, parts);
  in.x = data(x1_);
  in.cluster_rows = tile_rows;
  launch(state, HeadStep{in, head_weight_, head_bias_, config.vocab, logits_.data<float>()});
}

// Sets the norm after a layer's feed-forward block.
void FusedSteps::follow_block(RowInput& in, std::size_t layer, int parts) const {
  in.partial = partial2_.data<float>();
  in.parts = parts;
  in.bias = layers_[layer].down_bias;
  in.residual = data(x2_);
  in.norm_weight = layers_[layer].norm2_weight;
  in.norm_bias = layers_[layer].norm2_bias;
}

void FusedSteps::launch_many(const StepShape& shape, const StepRows& rows) {
  const RowRange all{device_.cuda(), 0, shape.rows, 0};
  launch_layers(all, rows);
  if (shape.wanted > 0) launch_head({all.state, 0, shape.wanted, 0}, shape.whole ? nullptr : rows.row_of);
}

void FusedSteps::run_divided(const StepShape& shape, const StepRows& rows, int steps, const RowSampler& sample) {
  CudaState& main = device_.cuda();
  const std::int64_t groups = shape.rows / group_rows, count = std::min<std::int64_t>(groups, max_chains);
  std::vector<RowRange> chains;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = groups * i / count * group_rows, end = groups * (i + 1) / count * group_rows;
    CudaState& state = i == 0 ? main : *streams_[static_cast<std::size_t>(i) - 1];
    if (i > 0) some::cuda::wait_for(main, state);
    chains.push_back({state, begin, end - begin, static_cast<int>(i)});
  }
  for (const RowRange& chain : chains) {
    for (int step = 0; step < steps; ++step) {
      launch_layers(chain, rows);
      launch_head(chain, nullptr);
      sample(chain.state, chain.first, chain.count, logits_.data<float>() + chain.first * model_.config().vocab);
    }
    if (chain.index > 0) some::cuda::wait_for(chain.state, main);
  }
}

// Computes the last norm and the logits of output rows. row_of: their rows; null: equal to their index.
void FusedSteps::launch_head(const RowRange& range, const std::int32_t* row_of) {
  const ModelConfig& config = model_.config();
  const int d = config.d_model, wanted = static_cast<int>(range.count);
  RowNorm last{};
  last.sums = data(sums_) + range.first * d;
  last.row_of = row_of;
  last.weight = layers_.back().norm2_weight;
  last.bias = layers_.back().norm2_bias;
  last.rows = wanted;
  last.width = d;
  last.x = data(x1_) + range.first * d;
  launch(range.state, last);
  Product head{};
  head.rows = wanted;
  head.sum_parts = 1;
  head.k = d;
  head.a = last.x;
  head.weight = head_weight_;
  head.bias = head_bias_;
  head.columns = config.vocab;
  head.result = ProductResult::logits;
  head.logits = logits_.data<float>() + range.first * config.vocab;
  launch(range.state, head);
}

// Computes all layers for some rows, except the last norm.
void FusedSteps::launch_layers(const RowRange& range, const StepRows& rows) {
  CudaState& state = range.state;
  const ModelConfig& config = model_.config();
  const int d = config.d_model, count = static_cast<int>(range.count), hidden = hidden_units(config);
  const std::int32_t *row_slots = rows.slots + range.first, *row_positions = rows.positions + range.first;
  const auto of = [&](const Tensor& all, std::int64_t columns) { return data(all) + range.first * columns; };
  // x1: input of attention; x2: input of the feed-forward block.
  bf16 *const x1 = of(x1_, d), *const x2 = of(x2_, d), *const mixed = of(mixed_, d), *const sums = of(sums_, d),
              *const queries = of(queries_, d), *const activated = of(hidden_, hidden);
  RowEmbedding embedding{rows.tokens + range.first,
                         row_positions,
                         table_,
                         places_.data<float>(),
                         std::sqrt(static_cast<float>(d)),
                         count,
                         d,
                         x1,
                         nullptr,
                         0};
  if (counts_of_experts_) {
    embedding.cleared = counts_of(range, 0);
    embedding.clears = config.layers * config.experts;
  }
  launch(state, embedding);
  Product common{};
  common.rows = count;
  common.sum_parts = 1;
  common.capacity = capacity_;
  common.slots = row_slots;
  common.positions = row_positions;
  common.k = d;
  const auto norm_of = [&](const float* weight, const float* bias, bf16* x) {
    return RowNorm{sums, nullptr, weight, bias, count, d, x, nullptr, capacity_, row_slots, row_positions};
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerPointers& layer = layers_[i];
    Product qkv = common;
    qkv.weight = layer.qkv;
    qkv.bias = layer.qkv_bias;
    qkv.columns = 3 * d;
    qkv.result = ProductResult::qkv;
    qkv.y = queries;
    qkv.cache = cached(i);
    qkv.a = x1;
    launch(state, qkv);
    launch(state, RowAttention{queries, d, cached(i), capacity_, row_slots, row_positions, count, config.heads, mixed});
    Product out = common;
    out.a = mixed;
    out.weight = layer.out;
    out.bias = layer.out_bias;
    out.columns = d;
    out.result = ProductResult::residual;
    out.residual = x1;
    out.y = sums;
    launch(state, out);
    RowNorm norm = norm_of(layer.norm1_weight, layer.norm1_bias, x2);
    if (config.past() > 0) norm.states = data(cache_.states[i]);
    launch(state, norm);
    Product up = common;
    up.a = x2;
    up.weight = layer.up;
    up.bias = layer.up_bias;
    up.columns = hidden;
    up.result = ProductResult::gelu;
    up.y = activated;
    if (config.conv > 0) {
      launch(state, RowConvolution{x2, data(cache_.states[i]), layer.taps, config.conv, count, d, capacity_, row_slots,
                                   row_positions, mixed});
      up.a = mixed;
    }
    if (config.ffn == Ffn::some)
      launch_modulated(up, i, range, rows);
    else
      launch(state, up);
    Product down = common;
    down.a = activated;
    down.weight = layer.down;
    down.bias = layer.down_bias;
    down.columns = d;
    down.k = hidden;
    down.sum_parts = hidden_part / part;
    down.residual = x2;
    down.result = ProductResult::residual;
    down.y = sums;
    launch(state, down);
    if (i + 1 < layers_.size()) launch(state, norm_of(layer.norm2_weight, layer.norm2_bias, x1));
  }
}

// Computes the modulated hidden layer of the rows; up: the product before modulation.
void FusedSteps::launch_modulated(Product up, std::size_t layer, const RowRange& range, const StepRows& rows) {
  CudaState& state = range.state;
  const LayerPointers& own = layers_[layer];
  const ModelConfig& config = model_.config();
  const int count = static_cast<int>(range.count);
  const std::int64_t choices = range.first * config.top_k;
  std::int32_t *const counts = counts_of(range, layer),
                      *const lists = lists_.data<std::int32_t>() + range.first * config.experts,
                      *const indices = indices_.data<std::int32_t>() + choices;
  float *const gates = gates_.data<float>() + choices, *const raw = raw_.data<float>() + range.first * query_size;
  bf16 *const modulated = up.y, *const states = data(x2_) + range.first * config.d_model,
              *const hidden = data(modulated_) + range.first * up.columns,
              *const activations = data(activations_) + choices * up.columns;
  up.result = ProductResult::plain;
  up.y = hidden;
  Product query = up;
  query.a = states;
  query.weight = own.routes.weight;
  query.bias = own.routes.bias;
  query.columns = query_size;
  query.result = ProductResult::logits;
  query.logits = raw;
  launch(state, ProductPair{up, query});
  RouteReport report = report_of(rows, layer);
  report.first_row = static_cast<int>(range.first);
  const bool transforms = own.modulations.signs != nullptr;
  const bf16* const earlier = config.token_shift > 0 ? data(cache_.states[layer]) : nullptr;
  launch(state, RowRoutes{own.routes, raw, count, count, indices, gates, transforms ? nullptr : counts, lists, report});
  const RowModulation modulation{own.modulations, hidden,     activations,  indices,  gates,
                                 count,           up.columns, config.top_k, modulated};
  if (transforms) {
    launch(state, RowTransforms{modulation, states, earlier, config.d_model, capacity_, up.slots, up.positions});
    return;
  }
  Product one = up;
  one.a = states;
  one.weight = own.modulations.w1;
  one.bias = nullptr;
  one.y = activations;
  launch(state, ExpertProduct{one, config.experts, config.top_k, count, config.token_shift, counts, lists, earlier});
  launch(state, modulation);
}

}  // namespace

bool has_fused_steps(Model& model, const DecoderOptions& options) {
  const ModelConfig& config = model.config();
  const Context& ctx = model.context();
  if (!ctx.device.is_cuda() || ctx.compute != DType::bf16 || ctx.expert_group.size() > 1) return false;
  if (ctx.cuda->major != 9 || options.adapt_window > 0 || options.half_weights) return false;
  const std::int64_t capacity = options.capacity > 0 ? options.capacity : config.seq_len;
  const int hidden = hidden_units(config);
  if (config.norm != Norm::post || config.position != Position::sinusoidal || !config.causal ||
      config.d_model != config.heads * head_size || config.d_model % 128 != 0 || config.d_model > largest_width ||
      hidden % 8 != 0 || config.vocab % 4 != 0 || config.vocab > largest_vocab ||
      attention_shared_bytes(capacity) > ctx.cuda->max_shared)
    return false;
  if (config.ffn == Ffn::dense) return true;
  const auto transforms_fit = [](const Layer& layer) {
    const HadamardExperts& experts = layer.experts.hadamard;
    return experts && experts.cached1 && experts.sizes.size() == 512 && experts.sizes.transforms == 1;
  };
  if (config.has_transforms() && !std::all_of(model.layers().begin(), model.layers().end(), transforms_fit))
    return false;
  return config.modulates() && config.use_library && !config.input_proj && config.training != ExpertTraining::lora &&
         config.router == RouterKind::linear && config.routing == RoutingKind::keys && config.searches_all_keys() &&
         config.ground == 0 && config.query_size() == query_size && config.experts <= max_experts &&
         config.top_k <= max_choices && config.token_shift <= max_shift &&
         (config.token_shift == 0 || config.conv == 0);
}

std::unique_ptr<StepModel> make_fused_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options) {
  return std::make_unique<FusedSteps>(model, cache, options);
}

}  // namespace some::decoding

#endif
