// Fused kernels for a step (steps.h): post-norm, sinusoidal positions, heads of 64 columns, and a dense or modulated
// feed-forward block.
#include "inference/cuda/step_model.h"

#if SOME_HAVE_CUDA

#include <cmath>

#include "tensor/cuda_state.h"

namespace some::decoding {
namespace {

struct LayerPointers {
  const bf16 *qkv, *out, *up, *down;
  const float *qkv_bias, *out_bias, *up_bias, *down_bias;
  const float *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias, *taps;
  // With experts.
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
  StepOutput run(const StepShape& shape, const StepRows& rows) override {
    const bool few = is_few(shape);
    if (few)
      launch_few(shape, rows);
    else
      launch_many(shape, rows);
    return {logits_.data<float>(), data(x1_), few};
  }

 private:
  // Few rows: clusters share them (few_rows.cuh).
  static bool is_few(const StepShape& shape) { return shape.distinct && shape.rows <= few_rows; }
  LayerPointers pointers_of(int layer) const;
  void find_layers();
  void make_buffers(std::int64_t rows, std::int64_t wanted);
  void grow(Tensor& tensor, std::int64_t elements, DType type);
  void launch_few(const StepShape& shape, const StepRows& rows);
  void launch_many(const StepShape& shape, const StepRows& rows);
  void launch_modulated(Product up, std::size_t layer, const StepShape& shape, const StepRows& rows);
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
    out.modulations = {data(experts.experts.weights().w1), values("gains"), static_cast<float>(config.modulation_scale),
                       config.modulation == ModulationPlace::additive, config.token_shift};
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
  // Rows of one slot need them for few rows, too.
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
  grow(counts_of_experts_, static_cast<std::int64_t>(config.layers) * config.experts, DType::i32);
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
      launch(state, ModulatedStep{block, layer.routes, layer.modulations, report_of(rows, i)});
  }
  follow_block(in, layers_.size() - 1, parts);
  in.x = data(x1_);
  launch(state, HeadStep{in, head_weight_, head_bias_, config.vocab, logits_.data<float>()});
}

// The norm after a layer's feed-forward block.
void FusedSteps::follow_block(RowInput& in, std::size_t layer, int parts) const {
  in.partial = partial2_.data<float>();
  in.parts = parts;
  in.bias = layers_[layer].down_bias;
  in.residual = data(x2_);
  in.norm_weight = layers_[layer].norm2_weight;
  in.norm_bias = layers_[layer].norm2_bias;
}

void FusedSteps::launch_many(const StepShape& shape, const StepRows& rows) {
  CudaState& state = device_.cuda();
  const ModelConfig& config = model_.config();
  const int d = config.d_model, count = static_cast<int>(shape.rows), hidden = hidden_units(config);
  const std::int32_t *row_slots = rows.slots, *row_positions = rows.positions;
  // x1: what the attention reads; x2: what the feed-forward block reads.
  RowEmbedding embedding{
      rows.tokens, row_positions, table_, places_.data<float>(), std::sqrt(static_cast<float>(d)), count, d,
      data(x1_),   nullptr,       0};
  if (counts_of_experts_) {
    embedding.cleared = counts_of_experts_.data<std::int32_t>();
    embedding.clears = static_cast<int>(counts_of_experts_.elements());
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
    return RowNorm{data(sums_), nullptr, weight, bias, count, d, x, nullptr, capacity_, row_slots, row_positions};
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerPointers& layer = layers_[i];
    Product qkv = common;
    qkv.weight = layer.qkv;
    qkv.bias = layer.qkv_bias;
    qkv.columns = 3 * d;
    qkv.result = ProductResult::qkv;
    qkv.y = data(queries_);
    qkv.cache = cached(i);
    qkv.a = data(x1_);
    launch(state, qkv);
    launch(state, RowAttention{data(queries_), d, cached(i), capacity_, row_slots, row_positions, count, config.heads,
                               data(mixed_)});
    Product out = common;
    out.a = data(mixed_);
    out.weight = layer.out;
    out.bias = layer.out_bias;
    out.columns = d;
    out.result = ProductResult::residual;
    out.residual = data(x1_);
    out.y = data(sums_);
    launch(state, out);
    RowNorm norm = norm_of(layer.norm1_weight, layer.norm1_bias, data(x2_));
    if (config.past() > 0) norm.states = data(cache_.states[i]);
    launch(state, norm);
    Product up = common;
    up.a = data(x2_);
    up.weight = layer.up;
    up.bias = layer.up_bias;
    up.columns = hidden;
    up.result = ProductResult::gelu;
    up.y = data(hidden_);
    if (config.conv > 0) {
      launch(state, RowConvolution{data(x2_), data(cache_.states[i]), layer.taps, config.conv, count, d, capacity_,
                                   row_slots, row_positions, data(mixed_)});
      up.a = data(mixed_);
    }
    if (config.ffn == Ffn::some)
      launch_modulated(up, i, shape, rows);
    else
      launch(state, up);
    Product down = common;
    down.a = data(hidden_);
    down.weight = layer.down;
    down.bias = layer.down_bias;
    down.columns = d;
    down.k = hidden;
    down.sum_parts = hidden_part / part;
    down.residual = data(x2_);
    down.result = ProductResult::residual;
    down.y = data(sums_);
    launch(state, down);
    if (i + 1 < layers_.size()) launch(state, norm_of(layer.norm2_weight, layer.norm2_bias, data(x1_)));
  }
  if (shape.wanted == 0) return;
  RowNorm last = norm_of(layers_.back().norm2_weight, layers_.back().norm2_bias, data(x1_));
  last.row_of = shape.whole ? nullptr : rows.row_of;
  last.rows = static_cast<int>(shape.wanted);
  launch(state, last);
  Product head = common;
  head.rows = static_cast<int>(shape.wanted);
  head.a = data(x1_);
  head.weight = head_weight_;
  head.bias = head_bias_;
  head.columns = config.vocab;
  head.result = ProductResult::logits;
  head.logits = logits_.data<float>();
  launch(state, head);
}

// The modulated hidden layer of rows; up: the product before it.
void FusedSteps::launch_modulated(Product up, std::size_t layer, const StepShape& shape, const StepRows& rows) {
  CudaState& state = device_.cuda();
  const LayerPointers& own = layers_[layer];
  const ModelConfig& config = model_.config();
  const int count = static_cast<int>(shape.rows);
  std::int32_t* const counts =
      counts_of_experts_.data<std::int32_t>() + static_cast<std::int64_t>(layer) * config.experts;
  bf16* const modulated = up.y;
  up.result = ProductResult::plain;
  up.y = data(modulated_);
  launch(state, up);
  Product query = up;
  query.a = data(x2_);
  query.weight = own.routes.weight;
  query.bias = own.routes.bias;
  query.columns = query_size;
  query.result = ProductResult::logits;
  query.logits = raw_.data<float>();
  launch(state, query);
  launch(state, RowRoutes{own.routes, raw_.data<float>(), count, count, indices_.data<std::int32_t>(),
                          gates_.data<float>(), counts, lists_.data<std::int32_t>(), report_of(rows, layer)});
  Product one = up;
  one.a = data(x2_);
  one.weight = own.modulations.w1;
  one.bias = nullptr;
  one.y = data(activations_);
  launch(state,
         ExpertProduct{one, config.experts, config.top_k, count, config.token_shift, counts,
                       lists_.data<std::int32_t>(), config.token_shift > 0 ? data(cache_.states[layer]) : nullptr});
  launch(state, RowModulation{own.modulations, data(modulated_), data(activations_), indices_.data<std::int32_t>(),
                              gates_.data<float>(), count, up.columns, config.top_k, modulated});
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
  return config.modulates() && config.use_library && !config.has_transforms() && !config.input_proj &&
         config.training != ExpertTraining::lora && config.router == RouterKind::linear &&
         config.routing == RoutingKind::keys && config.ground == 0 && config.query_size() == query_size &&
         config.experts <= max_experts && config.top_k <= max_choices && config.token_shift <= max_shift &&
         (config.token_shift == 0 || config.conv == 0);
}

std::unique_ptr<StepModel> make_fused_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options) {
  return std::make_unique<FusedSteps>(model, cache, options);
}

}  // namespace some::decoding

#endif
