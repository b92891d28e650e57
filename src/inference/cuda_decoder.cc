#include "inference/cuda_decoder.h"

#if SOME_HAVE_CUDA

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "inference/cuda/steps.h"
#include "tensor/cuda_state.h"
#include "tensor/graph.h"

namespace some {
namespace {

using namespace decoding;  // NOLINT(google-build-using-namespace)

constexpr int few_rows = 32;             // maximum rows for cluster kernels (cuda/few_rows.cuh)
constexpr std::int64_t max_rows = 4096;  // maximum rows per launch; longer prompts are read in pieces
constexpr int in_flight = 4, ring_size = 8;

// Pinned host memory that the device can read and write.
class Pinned {
 public:
  Pinned(const Device& device, std::size_t bytes) : data_(cuda::allocate_pinned(device, bytes)), size_(bytes) {
    std::memset(data_, 0, bytes);
  }
  ~Pinned() { cuda::release_pinned(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size() const { return size_; }

 private:
  void* data_;
  std::size_t size_;
};

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

int hidden_units(const ModelConfig& config) { return config.ffn == Ffn::dense ? config.dense_hidden() : config.d_ffn; }

// The n-th array of the numbers of a step, which are uploaded together.
enum class Array : std::uint8_t { tokens, slots, positions, numbers, targets, logprobs, rings, row_of };
constexpr std::int64_t arrays = 8;

class CudaDecoder : public Decoder {
 public:
  CudaDecoder(Model& model, const DecoderOptions& options)
      : model_(model),
        device_(model.context().device),
        capacity_(options.capacity > 0 ? options.capacity : model.config().seq_len),
        router_temperature_(options.router_temperature),
        cache_(model.make_cache(options.slots, capacity_)),
        plain_(make_model_decoder(model, options, cache_)),
        slots_(static_cast<std::size_t>(options.slots)),
        numbers_(Tensor::empty({arrays * max_rows}, DType::i32, device_)),
        last_drawn_(Tensor::zeros({options.slots}, DType::i32, device_)),
        sampling_(
            Tensor::zeros({options.slots, static_cast<std::int64_t>(sizeof(SlotSampling) / 4)}, DType::i32, device_)),
        results_(device_, sizeof(SampleResult) * ring_size * static_cast<std::size_t>(max_rows)) {
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
    set_biases(8);
    for (int i = 0; i < ring_size; ++i) {
      events_.push_back(std::make_unique<cuda::Event>(device_));
      staged_.push_back(std::make_unique<cuda::Event>(device_));
    }
    find_layers();
    const ParameterStore& store = model.parameters();
    table_ = store.param("embed.weight").value.data<float>();
    head_weight_ = halves(store.param("head.weight"));
    head_bias_ = store.param("head.bias").value.data<float>();
  }

  ~CudaDecoder() override {
    try {
      device_synchronize(device_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the error was reported where it happened
    }
  }

  void open(std::int32_t slot, const SlotSequence& sequence) override {
    Slot& own = slots_[static_cast<std::size_t>(slot)];
    const SamplingOptions& sampling = sequence.sampling;
    own = {sampling.penalizes(), sequence.memory != nullptr, 0, {}, {}};
    plain_->open(slot, sequence);
    for (const auto& [token, bias] : sampling.logit_bias) own.biases.push_back({token, static_cast<float>(bias)});
    if (std::ssize(own.biases) > biases_each_) set_biases(std::ssize(own.biases));
    own.sampling.key = random_stream(sampling.seed, fmt::format("generate.{}", sampling.stream)).key;
    own.sampling.greedy = sampling.temperature <= 0 ? 1 : 0;
    own.sampling.inverse_temperature =
        static_cast<float>(sampling.temperature > 0 ? 1.4426950408889634 / sampling.temperature : 0);
    own.sampling.top_p = static_cast<float>(sampling.top_p);
    own.sampling.min_p = static_cast<float>(sampling.min_p);
    own.sampling.repetition = static_cast<float>(sampling.repetition_penalty);
    own.sampling.presence = static_cast<float>(sampling.presence_penalty);
    own.sampling.frequency = static_cast<float>(sampling.frequency_penalty);
    own.sampling.top_k = sampling.top_k;
    own.sampling.penalizes = own.penalizes ? 1 : 0;
    own.sampling.biases = static_cast<std::int32_t>(own.biases.size());
    changed_ = true;
    if (!own.penalizes) return;
    const std::int64_t vocab = model_.config().vocab;
    if (!counts_) {
      counts_ = Tensor::zeros({slots(), vocab}, DType::i32, device_);
      forget_graphs();
    }
    const TokenCounts counts(model_.config().vocab, sequence.prompt);
    device_copy(device_, counts_.rows(slot, slot + 1).raw(), Device::cpu, counts.packed().data(),
                counts.packed().size_bytes());
  }

  void close(std::int32_t slot) override {
    slots_[static_cast<std::size_t>(slot)] = {};
    plain_->close(slot);
  }
  void memory_changed(const Memory& memory) override { plain_->memory_changed(memory); }

  void submit(const DecodeBatch& batch) override {
    const cuda::CudaDeviceGuard on(device_.cuda());
    if (model_.key_memory() != key_memory_) {
      forget_graphs();
      find_layers();
    }
    if (needs_model(batch)) return submit_to_model(batch);
    Flight& flight = flights_.emplace_back();
    flight.wanted = batch.wanted;
    flight.slots.reserve(batch.wanted.size());
    for (const WantedRow& want : batch.wanted) flight.slots.push_back(batch.slots[static_cast<std::size_t>(want.row)]);
    flight.result.wanted.resize(batch.wanted.size());
    if (changed_) upload_sampling();
    if (continues(batch)) {
      for (std::int32_t& position : recorded_.positions) ++position;
      for (WantedRow& want : recorded_.wanted) ++want.number;
      add_piece(flight, 0, batch.wanted.size());
      graph(recorded_class_).launch();
      events_[static_cast<std::size_t>(flight.pieces.back().ring)]->record();
      return;
    }
    recorded_ = {};
    std::size_t wanted = 0;
    for (std::size_t row = 0; row < batch.rows(); row += static_cast<std::size_t>(max_rows)) {
      const std::size_t end = std::min(batch.rows(), row + static_cast<std::size_t>(max_rows)), begin = wanted;
      while (wanted < batch.wanted.size() && batch.wanted[wanted].row < static_cast<std::int32_t>(end)) ++wanted;
      add_piece(flight, begin, wanted);
      read(batch, row, end, flight.pieces.back());
      events_[static_cast<std::size_t>(flight.pieces.back().ring)]->record();
    }
  }

  DecodeResult collect() override {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (Piece& piece : flight.pieces) gather(flight, piece);
    return std::move(flight.result);
  }

  int max_in_flight() const override { return in_flight; }
  std::int64_t prompt_rows() const override { return max_rows; }
  std::int64_t slots() const override { return std::ssize(slots_); }
  std::int64_t capacity() const override { return capacity_; }
  std::size_t cache_bytes() const override { return plain_->cache_bytes(); }

 private:
  struct Slot {
    bool penalizes = false, remembers = false;
    TokenId last = 0;  // sampled tokens that were collected so far
    SlotSampling sampling{};
    std::vector<LogitBias> biases;
  };
  // Output rows of a step whose results are in one place of the ring.
  struct Piece {
    int ring;
    std::size_t begin, end;  // of `wanted`
    bool gathered = false;
  };
  struct Flight {
    std::vector<WantedRow> wanted;
    std::vector<std::int32_t> slots;  // number of output rows
    std::vector<Piece> pieces;
    DecodeResult result;
  };

  LayerPointers pointers_of(int layer) const;
  void find_layers();
  bool needs_model(const DecodeBatch& batch) const;
  void submit_to_model(const DecodeBatch& batch);
  bool continues(const DecodeBatch& batch) const;
  void read(const DecodeBatch& batch, std::size_t begin, std::size_t end, const Piece& piece);
  void add_piece(Flight& flight, std::size_t begin, std::size_t end);
  void gather(Flight& flight, Piece& piece);
  void gather_all() {
    for (Flight& flight : flights_) {
      for (Piece& piece : flight.pieces) gather(flight, piece);
    }
  }
  void set_biases(std::int64_t each);
  void upload_sampling();
  Pinned& staging(std::size_t bytes);
  void forget_graphs() {
    device_synchronize(device_);
    graphs_.clear();
    recorded_ = {};
  }
  cuda::Graph& graph(std::int64_t rows);
  void make_buffers(std::int64_t rows, std::int64_t wanted);
  std::int32_t* array(Array which, std::int64_t rows) const {
    return numbers_.data<std::int32_t>() + static_cast<std::int64_t>(which) * rows;
  }
  // Launches a step with `rows` rows, `wanted` of which have an output; whole: every row has one.
  void launch_step(std::int64_t rows, std::int64_t wanted, bool few, bool whole);
  void launch_few(std::int64_t rows);
  void launch_many(std::int64_t rows, std::int64_t wanted, bool whole);
  void follow_block(RowInput& in, std::size_t layer, int parts) const;
  bf16* cached(std::size_t layer) const { return data(cache_.layers[layer]); }
  void launch_modulated(Product up, std::size_t layer, std::int64_t rows);
  void launch_samples(std::int64_t rows, std::int64_t wanted, bool few, bool whole);
  void grow(Tensor& tensor, std::int64_t elements, DType type);

  Model& model_;
  Device device_;
  std::int64_t capacity_;
  double router_temperature_;
  std::int64_t key_memory_ = 0;  // Model::key_memory
  Model::Cache cache_;
  std::unique_ptr<ModelDecoder> plain_;
  std::vector<Slot> slots_;
  std::vector<LayerPointers> layers_;
  const float *table_ = nullptr, *head_bias_ = nullptr;
  const bf16* head_weight_ = nullptr;
  Tensor numbers_, last_drawn_, sampling_, biases_, counts_, places_;
  std::int64_t biases_each_ = 0;
  bool changed_ = false;  // sampling options per slot
  Pinned results_;
  std::vector<std::unique_ptr<cuda::Event>> events_, staged_;
  std::vector<std::unique_ptr<Pinned>> staging_ = std::vector<std::unique_ptr<Pinned>>(ring_size);
  std::size_t next_staging_ = 0;
  int ring_ = 0;
  std::deque<Flight> flights_;
  std::map<std::int64_t, cuda::Graph> graphs_;  // by rows
  DecodeBatch recorded_;  // the last step, if the next one can follow without new uploads; otherwise empty
  std::int64_t recorded_class_ = 0;
  // Intermediate results, [rows, ...].
  Tensor x1_, x2_, queries_, mixed_, sums_, hidden_, partial1_, partial2_, logits_;
  Tensor modulated_, activations_, raw_, gates_, indices_, lists_, counts_of_experts_;
};

LayerPointers CudaDecoder::pointers_of(int layer) const {
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

void CudaDecoder::find_layers() {
  layers_.clear();
  for (int i = 0; i < model_.config().layers; ++i) layers_.push_back(pointers_of(i));
  key_memory_ = model_.key_memory();
}

void CudaDecoder::grow(Tensor& tensor, std::int64_t elements, DType type) {
  if (tensor && tensor.elements() >= elements) return;
  if (tensor) forget_graphs();
  tensor = Tensor::zeros({elements}, type, device_);
}

void CudaDecoder::make_buffers(std::int64_t rows, std::int64_t wanted) {
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
  grow(counts_of_experts_, static_cast<std::int64_t>(config.layers) * config.experts, DType::i32);
}

void CudaDecoder::set_biases(std::int64_t each) {
  std::int64_t size = 8;
  while (size < each) size *= 2;
  biases_each_ = size;
  if (biases_) forget_graphs();
  biases_ = Tensor::zeros({slots(), size, 2}, DType::i32, device_);
  changed_ = true;
}

Pinned& CudaDecoder::staging(std::size_t bytes) {
  next_staging_ = (next_staging_ + 1) % ring_size;
  staged_[next_staging_]->wait();
  std::unique_ptr<Pinned>& found = staging_[next_staging_];
  if (!found || found->size() < bytes) found = std::make_unique<Pinned>(device_, bytes);
  return *found;
}

void CudaDecoder::upload_sampling() {
  Pinned& own = staging(sampling_.bytes());
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) own.as<SlotSampling>()[slot] = slots_[slot].sampling;
  cuda::upload_async(device_, own.as<void>(), sampling_.raw(), sampling_.bytes());
  staged_[next_staging_]->record();
  Pinned& biases = staging(biases_.bytes());
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    std::copy(slots_[slot].biases.begin(), slots_[slot].biases.end(),
              biases.as<LogitBias>() + static_cast<std::ptrdiff_t>(slot) * biases_each_);
  cuda::upload_async(device_, biases.as<void>(), biases_.raw(), biases_.bytes());
  staged_[next_staging_]->record();
  changed_ = false;
}

bool CudaDecoder::needs_model(const DecodeBatch& batch) const {
  if (batch.routes && model_.config().ffn == Ffn::some) return true;
  // A memory with contexts needs all tokens of its sequence, also of rows without an output.
  const auto remembers = [&](std::int32_t slot) { return slots_[static_cast<std::size_t>(slot)].remembers; };
  if (std::any_of(batch.slots.begin(), batch.slots.end(), remembers)) return true;
  return std::any_of(batch.wanted.begin(), batch.wanted.end(), [&](const WantedRow& want) {
    return want.kind == WantedRow::Kind::state || want.logprobs > max_logprobs;
  });
}

void CudaDecoder::submit_to_model(const DecodeBatch& batch) {
  gather_all();
  recorded_ = {};
  DecodeBatch known = batch;
  for (std::size_t row = 0; row < batch.rows(); ++row)
    if (known.tokens[row] == some::last_drawn)
      known.tokens[row] = slots_[static_cast<std::size_t>(batch.slots[row])].last;
  plain_->submit(known);
  Flight& flight = flights_.emplace_back();
  flight.result = plain_->collect();
  for (std::size_t i = 0; i < batch.wanted.size(); ++i) {
    if (batch.wanted[i].kind != WantedRow::Kind::draw || !flight.result.wanted[i].finite) continue;
    const std::int32_t slot = batch.slots[static_cast<std::size_t>(batch.wanted[i].row)];
    const TokenId token = flight.result.wanted[i].token;
    slots_[static_cast<std::size_t>(slot)].last = token;
    device_copy(device_, last_drawn_.rows(slot, slot + 1).raw(), Device::cpu, &token, sizeof(token));
    if (!slots_[static_cast<std::size_t>(slot)].penalizes) continue;
    const std::span<const std::uint32_t> counts = plain_->counts(slot).packed();
    device_copy(device_, counts_.rows(slot, slot + 1).raw(), Device::cpu, counts.data(), counts.size_bytes());
  }
}

bool CudaDecoder::continues(const DecodeBatch& batch) const {
  if (recorded_.rows() == 0 || recorded_.rows() != batch.rows() || batch.wanted.size() != batch.rows() ||
      recorded_.slots != batch.slots)
    return false;
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const WantedRow &now = batch.wanted[row], &before = recorded_.wanted[row];
    if (batch.tokens[row] != some::last_drawn || batch.positions[row] != recorded_.positions[row] + 1 ||
        now.row != before.row || now.kind != before.kind || now.number != before.number + 1 ||
        now.logprobs != before.logprobs)
      return false;
  }
  return true;
}

void CudaDecoder::add_piece(Flight& flight, std::size_t begin, std::size_t end) {
  // The ring entry may still hold results of an earlier step.
  for (Flight& other : flights_) {
    for (Piece& piece : other.pieces)
      if (piece.ring == ring_) gather(other, piece);
  }
  flight.pieces.push_back({ring_, begin, end});
  ring_ = (ring_ + 1) % ring_size;
}

void CudaDecoder::gather(Flight& flight, Piece& piece) {
  if (piece.gathered) return;
  piece.gathered = true;
  events_[static_cast<std::size_t>(piece.ring)]->wait();
  const SampleResult* results = results_.as<SampleResult>() + static_cast<std::ptrdiff_t>(piece.ring) * max_rows;
  for (std::size_t i = piece.begin; i < piece.end; ++i, ++results) {
    const WantedRow& want = flight.wanted[i];
    DecodedRow& out = flight.result.wanted[i];
    out.token = results->token;
    out.finite = results->finite != 0;
    if (!out.finite) continue;
    if (want.kind == WantedRow::Kind::draw) {
      Slot& slot = slots_[static_cast<std::size_t>(flight.slots[i])];
      slot.last = out.token;
      if (slot.penalizes) plain_->drawn(flight.slots[i], out.token);
    }
    if (want.logprobs < 0) continue;
    const double base = static_cast<double>(results->largest) + std::log(static_cast<double>(results->sum));
    out.logprob = static_cast<double>(results->logit) - base;
    for (int n = 0; n < results->tops; ++n)
      out.top.push_back({results->top_tokens[n], static_cast<double>(results->top_logits[n]) - base});
  }
}

void CudaDecoder::read(const DecodeBatch& batch, std::size_t begin, std::size_t end, const Piece& piece) {
  const auto count = static_cast<std::int64_t>(end - begin),
             wanted = static_cast<std::int64_t>(piece.end - piece.begin);
  std::vector<std::int32_t> seen(batch.slots.begin() + static_cast<std::ptrdiff_t>(begin),
                                 batch.slots.begin() + static_cast<std::ptrdiff_t>(end));
  std::sort(seen.begin(), seen.end());
  const bool distinct = std::adjacent_find(seen.begin(), seen.end()) == seen.end();
  bool draws = wanted == count && begin == 0 && end == batch.rows();
  for (std::size_t i = piece.begin; i < piece.end; ++i) draws = draws && batch.wanted[i].kind == WantedRow::Kind::draw;
  // Batch sizes of the graphs: 1, 2, 4, 8, 16, 32, then multiples of 64.
  std::int64_t rows = 1;
  while (rows < count && rows < few_rows) rows *= 2;
  if (count > few_rows) rows = (count + 63) / 64 * 64;
  const bool few = distinct && rows <= few_rows;
  const std::size_t size = static_cast<std::size_t>(rows * arrays) * sizeof(std::int32_t);
  Pinned& own = staging(size);
  std::int32_t* to = own.as<std::int32_t>();
  const auto set = [&](Array which, std::int64_t at, std::int32_t value) {
    to[static_cast<std::int64_t>(which) * rows + at] = value;
  };
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::size_t row = begin + static_cast<std::size_t>(i);
    set(Array::tokens, i, i < count ? batch.tokens[row] : 0);
    set(Array::slots, i, i < count ? batch.slots[row] : -1);
    set(Array::positions, i, i < count ? batch.positions[row] : 0);
    const std::size_t at = piece.begin + static_cast<std::size_t>(i);
    const WantedRow want = i < wanted ? batch.wanted[at] : WantedRow{};
    set(Array::numbers, i, want.kind == WantedRow::Kind::draw ? static_cast<std::int32_t>(want.number) : -1);
    set(Array::targets, i, want.target);
    set(Array::logprobs, i, want.logprobs);
    set(Array::rings, i, piece.ring);
    // Padding rows refer to no slot.
    set(Array::row_of, i,
        i < wanted ? want.row - static_cast<std::int32_t>(begin) : static_cast<std::int32_t>(rows) - 1);
  }
  cuda::upload_async(device_, own.as<void>(), numbers_.raw(), size);
  staged_[next_staging_]->record();
  CudaState& state = device_.cuda();
  launch(state, TokenStep{array(Array::tokens, rows), array(Array::slots, rows), last_drawn_.data<std::int32_t>(),
                          static_cast<int>(rows)});
  if (draws && distinct) {
    graph(rows).launch();
    recorded_ = batch;
    recorded_class_ = rows;
    return;
  }
  make_buffers(rows, few ? rows : std::max<std::int64_t>(wanted, 1));
  launch_step(rows, wanted, few, false);
}

cuda::Graph& CudaDecoder::graph(std::int64_t rows) {
  make_buffers(rows, rows);
  cuda::Graph& found = graphs_[rows];
  if (!found.recorded()) found.record(device_, [&] { launch_step(rows, rows, rows <= few_rows, true); });
  return found;
}

void CudaDecoder::launch_step(std::int64_t rows, std::int64_t wanted, bool few, bool whole) {
  if (few)
    launch_few(rows);
  else
    launch_many(rows, wanted, whole);
  if (wanted > 0) launch_samples(rows, wanted, few, whole);
}

void CudaDecoder::launch_few(std::int64_t rows) {
  CudaState& state = device_.cuda();
  const ModelConfig& config = model_.config();
  RowInput in{};
  in.tokens = array(Array::tokens, rows);
  in.slots = array(Array::slots, rows);
  in.positions = array(Array::positions, rows);
  in.rows = static_cast<int>(rows);
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
      launch(state, ModulatedStep{block, layer.routes, layer.modulations});
  }
  follow_block(in, layers_.size() - 1, parts);
  in.x = data(x1_);
  launch(state, HeadStep{in, head_weight_, head_bias_, config.vocab, logits_.data<float>()});
}

// Launches the norm after a layer's feed-forward block.
void CudaDecoder::follow_block(RowInput& in, std::size_t layer, int parts) const {
  in.partial = partial2_.data<float>();
  in.parts = parts;
  in.bias = layers_[layer].down_bias;
  in.residual = data(x2_);
  in.norm_weight = layers_[layer].norm2_weight;
  in.norm_bias = layers_[layer].norm2_bias;
}

void CudaDecoder::launch_many(std::int64_t rows, std::int64_t wanted, bool whole) {
  CudaState& state = device_.cuda();
  const ModelConfig& config = model_.config();
  const int d = config.d_model, count = static_cast<int>(rows), hidden = hidden_units(config);
  const std::int32_t *row_slots = array(Array::slots, rows), *row_positions = array(Array::positions, rows);
  // x1: input of attention; x2: input of the feed-forward block.
  RowEmbedding embedding{array(Array::tokens, rows),
                         row_positions,
                         table_,
                         places_.data<float>(),
                         std::sqrt(static_cast<float>(d)),
                         count,
                         d,
                         data(x1_),
                         nullptr,
                         0};
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
    launch(state, RowNorm{data(sums_), nullptr, layer.norm1_weight, layer.norm1_bias, count, d, data(x2_)});
    Product up = common;
    up.a = data(x2_);
    if (config.past() > 0)
      launch(state, RowConvolution{data(x2_), data(cache_.states[i]), layer.taps, config.conv, count, d, capacity_,
                                   row_slots, row_positions, data(mixed_)});
    if (config.conv > 0) up.a = data(mixed_);
    up.weight = layer.up;
    up.bias = layer.up_bias;
    up.columns = hidden;
    up.result = ProductResult::gelu;
    up.y = data(hidden_);
    if (config.ffn == Ffn::dense)
      launch(state, up);
    else
      launch_modulated(up, i, rows);
    Product down = common;
    down.a = data(hidden_);
    down.weight = layer.down;
    down.bias = layer.down_bias;
    down.columns = d;
    down.k = hidden;
    down.sum_parts = hidden_part / part;
    down.result = ProductResult::residual;
    down.residual = data(x2_);
    down.y = data(sums_);
    launch(state, down);
    if (i + 1 < layers_.size())
      launch(state, RowNorm{data(sums_), nullptr, layer.norm2_weight, layer.norm2_bias, count, d, data(x1_)});
  }
  if (wanted == 0) return;
  launch(state, RowNorm{data(sums_), whole ? nullptr : array(Array::row_of, rows), layers_.back().norm2_weight,
                        layers_.back().norm2_bias, static_cast<int>(wanted), d, data(x1_)});
  Product head = common;
  head.rows = static_cast<int>(wanted);
  head.a = data(x1_);
  head.weight = head_weight_;
  head.bias = head_bias_;
  head.columns = config.vocab;
  head.result = ProductResult::logits;
  head.logits = logits_.data<float>();
  launch(state, head);
}

// Computes the modulated hidden layer of the rows; up: the product before modulation.
void CudaDecoder::launch_modulated(Product up, std::size_t layer, std::int64_t rows) {
  CudaState& state = device_.cuda();
  const LayerPointers& own = layers_[layer];
  const ModelConfig& config = model_.config();
  const int count = static_cast<int>(rows);
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
                          gates_.data<float>(), counts, lists_.data<std::int32_t>()});
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

void CudaDecoder::launch_samples(std::int64_t rows, std::int64_t wanted, bool few, bool whole) {
  SampleStep in{};
  in.logits = logits_.data<float>();
  in.logits_of_rows = few;
  in.vocab = model_.config().vocab;
  in.wanted = static_cast<int>(wanted);
  in.row_of = whole ? nullptr : array(Array::row_of, rows);
  in.tokens = array(Array::tokens, rows);
  in.slots = array(Array::slots, rows);
  in.positions = array(Array::positions, rows);
  in.numbers = array(Array::numbers, rows);
  in.targets = array(Array::targets, rows);
  in.logprobs = array(Array::logprobs, rows);
  in.rings = array(Array::rings, rows);
  in.ring_size = ring_size;
  in.ring_stride = static_cast<int>(max_rows);
  in.sampling = static_cast<const SlotSampling*>(sampling_.raw());
  in.biases = static_cast<const LogitBias*>(biases_.raw());
  in.max_biases = static_cast<int>(biases_each_);
  in.counts = counts_ ? static_cast<std::uint32_t*>(counts_.raw()) : nullptr;
  in.last_drawn = last_drawn_.data<std::int32_t>();
  in.advance = whole;
  in.results = results_.as<SampleResult>();
  launch(device_.cuda(), in);
}

bool supported(Model& model, const DecoderOptions& options) {
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
         config.routing == RoutingKind::keys && config.searches_all_keys() && config.ground == 0 &&
         config.query_size() == query_size && config.experts <= max_experts && config.top_k <= max_choices &&
         config.token_shift <= max_shift && (config.token_shift == 0 || config.conv == 0);
}

}  // namespace

std::unique_ptr<Decoder> make_cuda_decoder(Model& model, const DecoderOptions& options) {
  if (!supported(model, options)) return nullptr;
  return std::make_unique<CudaDecoder>(model, options);
}

void add_gpu_products(const Context& ctx, RowProducts& products) {
  if (!ctx.device.is_cuda() || ctx.cuda->major != 9) return;
  products.on_gpu = multiply_rows;
  products.attention_on_gpu = attend_rows;
}

}  // namespace some

#else

namespace some {

std::unique_ptr<Decoder> make_cuda_decoder(Model&, const DecoderOptions&) { return nullptr; }
void add_gpu_products(const Context&, RowProducts&) {}

}  // namespace some

#endif
