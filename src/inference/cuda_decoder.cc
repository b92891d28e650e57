#include "inference/cuda_decoder.h"

#if SOME_HAVE_CUDA

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "inference/cuda/slot_memories.h"
#include "inference/cuda/step_model.h"
#include "inference/cuda/step_results.h"
#include "inference/cuda/steps.h"
#include "tensor/cuda_state.h"
#include "tensor/graph.h"

namespace some {
namespace {

using namespace decoding;  // NOLINT(google-build-using-namespace)

constexpr int in_flight = 4;
// Steps that are launched in one graph, because the gap between two graphs costs time.
constexpr int together = 2;

// The n-th array of the numbers of a step, which are uploaded together.
enum class Array : std::uint8_t { tokens, slots, positions, numbers, targets, logprobs, rings, row_of, sources };
constexpr std::int64_t arrays = 9;

class CudaDecoder : public Decoder {
 public:
  CudaDecoder(Model& model, const DecoderOptions& options)
      : model_(model),
        device_(model.context().device),
        capacity_(options.capacity > 0 ? options.capacity : model.config().seq_len),
        slots_(static_cast<std::size_t>(options.slots)),
        numbers_(Tensor::empty({arrays * max_rows}, DType::i32, device_)),
        last_drawn_(Tensor::zeros({options.slots}, DType::i32, device_)),
        sampling_(
            Tensor::zeros({options.slots, static_cast<std::int64_t>(sizeof(SlotSampling) / 4)}, DType::i32, device_)),
        memories_(model, options.slots),
        results_(device_, model.config()) {
    const bool fused = has_fused_steps(model, options);
    const Model::Cache cache = model.make_cache(options.slots + (fused ? 0 : 1), capacity_);
    steps_ = fused ? make_fused_steps(model, cache, options) : make_model_steps(model, cache, options);
    plain_ = make_model_decoder(model, options, cache);
    set_biases(8);
    for (int i = 0; i < ring_size; ++i) {
      events_.push_back(std::make_unique<cuda::Event>(device_));
      staged_.push_back(std::make_unique<cuda::Event>(device_));
    }
  }

  ~CudaDecoder() override {
    try {
      device_synchronize(device_);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the error was reported where it happened
    }
  }

  void open(std::int32_t slot, const SlotSequence& sequence) override {
    launch_delayed();
    Slot& own = slots_[static_cast<std::size_t>(slot)];
    const SamplingOptions& sampling = sequence.sampling;
    own = {};
    own.penalizes = sampling.penalizes();
    plain_->open(slot, sequence);
    memories_.open(slot, sequence);
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
    launch_delayed();
    slots_[static_cast<std::size_t>(slot)] = {};
    memories_.close(slot);
    plain_->close(slot);
  }
  void memory_changed(const Memory& memory) override {
    launch_delayed();
    plain_->memory_changed(memory);
    device_synchronize(device_);
    if (memories_.forget(memory)) forget_graphs();
  }

  void submit(const DecodeBatch& batch) override {
    const cuda::CudaDeviceGuard on(device_.cuda());
    const bool follows = !needs_model(batch) && continues(batch);
    if (!follows) launch_delayed();
    if (needs_model(batch)) return submit_to_model(batch);
    Flight& flight = flights_.emplace_back();
    flight.wanted = batch.wanted;
    flight.rows = batch.rows();
    if (reports_routes(batch)) prepare_routes(flight);
    flight.slots.reserve(batch.wanted.size());
    for (const WantedRow& want : batch.wanted) {
      flight.slots.push_back(batch.slots[static_cast<std::size_t>(want.row)]);
      const bool mixed = memories_.mixes(flight.slots.back());
      flight.sources.push_back(mixed && want.sources > 0 && want.kind != WantedRow::Kind::state ? 1 : 0);
    }
    note_tokens(batch);
    batch_ = &batch;
    flight.result.wanted.resize(batch.wanted.size());
    if (changed_) upload_sampling();
    if (follows) {
      for (std::int32_t& position : recorded_.positions) ++position;
      for (WantedRow& want : recorded_.wanted) ++want.number;
      add_piece(flight, 0, batch.wanted.size(), 0, batch.rows());
      flight.pieces.back().launched = false;
      const bool joins =
          (recorded_shape_.rows <= few_rows && !recorded_shape_.contexts) || steps_->divides(recorded_shape_);
      if (++delayed_ >= (joins ? together : 1)) launch_delayed();
      return;
    }
    recorded_ = {};
    std::size_t wanted = 0;
    for (std::size_t row = 0; row < batch.rows(); row += static_cast<std::size_t>(max_rows)) {
      const std::size_t end = std::min(batch.rows(), row + static_cast<std::size_t>(max_rows)), begin = wanted;
      while (wanted < batch.wanted.size() && batch.wanted[wanted].row < static_cast<std::int32_t>(end)) ++wanted;
      add_piece(flight, begin, wanted, row, end);
      read(batch, row, end, flight.pieces.back());
      events_[static_cast<std::size_t>(flight.pieces.back().ring)]->record();
    }
  }

  DecodeResult collect() override {
    if (!flights_.front().pieces.empty() && !flights_.front().pieces.front().launched) launch_delayed();
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (Piece& piece : flight.pieces) gather(flight, piece);
    return std::move(flight.result);
  }

  int max_in_flight() const override { return in_flight; }
  std::int64_t prompt_rows() const override { return steps_->prompt_rows(); }
  std::int64_t slots() const override { return std::ssize(slots_); }
  std::int64_t capacity() const override { return capacity_; }
  std::size_t cache_bytes() const override { return plain_->cache_bytes(); }

 private:
  struct Slot {
    bool penalizes = false;
    TokenId last = 0;  // the last sampled token that was collected
    SlotSampling sampling{};
    std::vector<LogitBias> biases;
  };
  bool reports_routes(const DecodeBatch& batch) const { return batch.routes && model_.config().ffn == Ffn::some; }
  void prepare_routes(Flight& flight);
  void note_tokens(const DecodeBatch& batch);
  void find_contexts(const StepShape& shape, const StepOutput& output);
  bool needs_model(const DecodeBatch& batch) const;
  void submit_to_model(const DecodeBatch& batch);
  bool continues(const DecodeBatch& batch) const;
  void read(const DecodeBatch& batch, std::size_t begin, std::size_t end, const Piece& piece);
  void add_piece(Flight& flight, std::size_t begin, std::size_t end, std::size_t first_row, std::size_t last_row);
  void gather(Flight& flight, Piece& piece);
  void gather_all() {
    launch_delayed();
    for (Flight& flight : flights_) {
      for (Piece& piece : flight.pieces) gather(flight, piece);
    }
  }
  // Gathers all pieces but the one that is being launched, which is the last.
  void gather_earlier() {
    for (Flight& flight : flights_) {
      for (Piece& piece : flight.pieces)
        if (&piece != &flights_.back().pieces.back()) gather(flight, piece);
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
  void prepare(const StepShape& shape);
  bool can_record(const StepShape& shape);
  void prepare_states(const DecodeBatch& batch, const Piece& piece);
  std::int32_t* array(Array which, std::int64_t rows) const {
    return numbers_.data<std::int32_t>() + static_cast<std::int64_t>(which) * rows;
  }
  void launch_whole(const StepShape& shape, int steps);
  // Launches the steps that were submitted, but not launched.
  void launch_delayed();
  StepRows rows_of(const StepShape& shape) const;
  void launch_step(const StepShape& shape) {
    model_.context().arena->reset();
    finish_step(shape, steps_->run(shape, rows_of(shape)));
    launched_.insert(shape);
  }
  void finish_step(const StepShape& shape, const StepOutput& output);
  void launch_samples(CudaState& state, const StepShape& shape, const StepOutput& output, std::int64_t first,
                      std::int64_t count);

  Model& model_;
  Device device_;
  std::int64_t capacity_;
  std::unique_ptr<StepModel> steps_;
  std::pair<std::int64_t, std::int64_t> generation_;  // of steps_ and the arena when steps were recorded
  std::set<StepShape> launched_;
  std::unique_ptr<ModelDecoder> plain_;
  std::vector<Slot> slots_;
  Tensor numbers_, last_drawn_, sampling_, biases_, counts_;
  std::int64_t biases_each_ = 0;
  bool changed_ = false;  // sampling options of slots
  SlotMemories memories_;
  StepResults results_;
  // State of the step that is being launched.
  const DecodeBatch* batch_ = nullptr;
  bool keeps_states_ = false;
  std::vector<std::unique_ptr<cuda::Event>> events_, staged_;
  std::vector<std::unique_ptr<Pinned>> staging_ = std::vector<std::unique_ptr<Pinned>>(ring_size);
  std::size_t next_staging_ = 0;
  int ring_ = 0;
  std::deque<Flight> flights_;
  // Recorded steps; with contexts only up to the logits.
  struct Recorded {
    cuda::Graph graph;
    StepOutput output;
    std::int64_t arena_words = 0;  // used by what was recorded
  };
  std::map<std::pair<StepShape, int>, Recorded> graphs_;  // by shape and number of steps
  DecodeBatch recorded_;  // the last step, if the next one can follow without new uploads; otherwise empty
  StepShape recorded_shape_;
  int delayed_ = 0;  // number of the last flights that are not launched yet
};

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
  return std::any_of(batch.wanted.begin(), batch.wanted.end(), [&](const WantedRow& want) {
    return want.logprobs > max_logprobs || want.sources > GpuMixture::max_sources ||
           memories_.needs_host(batch.slots[static_cast<std::size_t>(want.row)]);
  });
}

void CudaDecoder::submit_to_model(const DecodeBatch& batch) {
  gather_all();
  recorded_ = {};
  DecodeBatch known = batch;
  for (std::size_t row = 0; row < batch.rows(); ++row)
    if (known.tokens[row] == some::last_drawn)
      known.tokens[row] = slots_[static_cast<std::size_t>(batch.slots[row])].last;
  note_tokens(known);
  for (const std::int32_t slot : known.slots) {
    const std::span<const TokenId> tokens = memories_.tokens(slot);
    const std::size_t last = tokens.size();
    for (std::size_t p = last - std::min<std::size_t>(last, longest_context + 1); p < last; ++p)
      plain_->saw(slot, static_cast<std::int32_t>(p), tokens[p]);
  }
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
      recorded_.slots != batch.slots || recorded_.routes != batch.routes)
    return false;
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const WantedRow &now = batch.wanted[row], &before = recorded_.wanted[row];
    if (batch.tokens[row] != some::last_drawn || batch.positions[row] != recorded_.positions[row] + 1 ||
        now.row != before.row || now.kind != before.kind || now.number != before.number + 1 ||
        now.logprobs != before.logprobs || now.sources != before.sources)
      return false;
  }
  return true;
}

void CudaDecoder::add_piece(Flight& flight, std::size_t begin, std::size_t end, std::size_t first_row,
                            std::size_t last_row) {
  // The ring entry may still hold results of an earlier step.
  for (Flight& other : flights_) {
    for (Piece& piece : other.pieces)
      if (piece.ring == ring_) gather(other, piece);
  }
  flight.pieces.push_back({ring_, begin, end, first_row, last_row});
  ring_ = (ring_ + 1) % ring_size;
}

void CudaDecoder::gather(Flight& flight, Piece& piece) {
  if (piece.gathered) return;
  piece.gathered = true;
  events_[static_cast<std::size_t>(piece.ring)]->wait();
  results_.read(piece, flight);
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    DecodedRow& out = flight.result.wanted[i];
    const std::int32_t slot = flight.slots[i];
    if (!out.finite) continue;
    if (flight.sources[i] != 0 && i < flight.before.size() && out.memory.probability > 0) {
      out.memory.of_contexts = memories_.contexts_of(slot, flight.before[i], out.token);
      for (ContextContribution& one : out.memory.of_contexts)
        out.memory.contexts += one.weight /= out.memory.probability;
    }
    out.memory.limit();
    if (flight.wanted[i].kind != WantedRow::Kind::draw) continue;
    slots_[static_cast<std::size_t>(slot)].last = out.token;
    if (slots_[static_cast<std::size_t>(slot)].penalizes) plain_->drawn(slot, out.token);
  }
}

void CudaDecoder::prepare_routes(Flight& flight) {
  DecodeResult& result = flight.result;
  result.top_k = model_.config().top_k;
  const std::size_t each = static_cast<std::size_t>(model_.config().layers) * static_cast<std::size_t>(result.top_k);
  result.experts.resize(flight.rows * each);
  result.gates.resize(flight.rows * each);
  const std::int64_t rows = class_of(static_cast<std::int64_t>(std::min<std::size_t>(flight.rows, max_rows)));
  if (!results_.needs_routes(rows)) return;
  gather_all();
  forget_graphs();
  results_.make_routes(rows);
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
  const std::int64_t rows = class_of(count);
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
    set(Array::sources, i, want.sources);
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
  StepShape shape{rows, wanted, distinct, false, reports_routes(batch)};
  memories_.choose(batch, piece, shape);
  if (shape.sources && results_.needs_sources(rows)) {
    gather_earlier();
    forget_graphs();
    results_.make_sources(rows);
  }
  if (draws && distinct) {
    shape.wanted = rows;
    shape.whole = true;
    launch_whole(shape, 1);
    recorded_ = batch;
    recorded_shape_ = shape;
    return;
  }
  prepare_states(batch, piece);
  prepare(shape);
  launch_step(shape);
}

void CudaDecoder::prepare_states(const DecodeBatch& batch, const Piece& piece) {
  keeps_states_ = std::any_of(batch.wanted.begin() + static_cast<std::ptrdiff_t>(piece.begin),
                              batch.wanted.begin() + static_cast<std::ptrdiff_t>(piece.end),
                              [](const WantedRow& want) { return want.kind == WantedRow::Kind::state; });
  const std::int64_t rows = class_of(static_cast<std::int64_t>(piece.end - piece.begin));
  if (!keeps_states_ || !results_.needs_states(rows)) return;
  gather_earlier();
  device_synchronize(device_);
  results_.make_states(rows);
}

// Stores tokens for memories with contexts, which require those before a prediction.
void CudaDecoder::note_tokens(const DecodeBatch& batch) {
  memories_.note(batch, [&](std::int32_t slot) { return slots_[static_cast<std::size_t>(slot)].last; });
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    if (memories_.needs_host(batch.slots[row]) && batch.tokens[row] != some::last_drawn)
      plain_->saw(batch.slots[row], batch.positions[row], batch.tokens[row]);
  }
}

// Waits for the tokens of the earlier steps, while the device computes this one.
void CudaDecoder::find_contexts(const StepShape& shape, const StepOutput& output) {
  Flight& flight = flights_.back();
  const Piece& piece = flight.pieces.back();
  gather_earlier();
  for (const std::int32_t slot : flight.slots) memories_.set_last(slot, slots_[static_cast<std::size_t>(slot)].last);
  memories_.find_contexts(*batch_, piece, shape, output, flight);
}

void CudaDecoder::prepare(const StepShape& shape) {
  steps_->prepare(shape);
  const Arena& arena = *model_.context().arena;
  const std::pair generation{steps_->generation(), arena.generation()};
  if (generation == generation_) return;
  forget_graphs();
  generation_ = generation;
}

// Returns true if a step of this shape can be recorded. One launch before shows how much memory of the arena it uses:
// nothing can be allocated while it is recorded.
bool CudaDecoder::can_record(const StepShape& shape) {
  if (shape.memory == several_memories) return false;
  if (!steps_->uses_arena() && shape.memory == 0) return true;
  if (launched_.find(shape) == launched_.end()) return false;
  Arena& arena = *model_.context().arena;
  arena.reset();
  arena.allocate({static_cast<std::int64_t>(arena.peak_bytes() / sizeof(std::int32_t))}, DType::i32);
  return true;
}

void CudaDecoder::launch_delayed() {
  if (delayed_ == 0) return;
  const cuda::CudaDeviceGuard on(device_.cuda());
  const int steps = std::exchange(delayed_, 0);
  const StepShape shape = recorded_shape_;
  launch_whole(shape, steps);
  for (auto flight = flights_.end() - steps; flight != flights_.end(); ++flight) {
    flight->pieces.back().launched = true;
    events_[static_cast<std::size_t>(flight->pieces.back().ring)]->record();
  }
}

void CudaDecoder::launch_whole(const StepShape& shape, int steps) {
  keeps_states_ = false;
  const bool records = can_record(shape);
  prepare(shape);
  if (!records) {
    for (int i = 0; i < steps; ++i) launch_step(shape);
    return;
  }
  Recorded& found = graphs_[{shape, steps}];
  if (!shape.contexts) {
    if (!found.graph.recorded()) {
      found.graph.record(device_, [&] {
        if (steps_->divides(shape)) {
          const auto sample = [&](CudaState& state, std::int64_t first, std::int64_t count, float* logits) {
            launch_samples(state, shape, {logits, nullptr, false}, first, count);
          };
          steps_->run_divided(shape, rows_of(shape), steps, sample);
          return;
        }
        for (int i = 0; i < steps; ++i) launch_step(shape);
      });
    }
    return found.graph.launch();
  }
  // The host finds the contexts while the graph runs.
  Arena& arena = *model_.context().arena;
  const auto here = [&] { return static_cast<char*>(arena.allocate({1}, DType::i32).raw()); };
  arena.reset();
  if (!found.graph.recorded()) {
    const char* const begin = here();
    found.graph.record(device_, [&] { found.output = steps_->run(shape, rows_of(shape)); });
    found.arena_words = (here() - begin) / static_cast<std::int64_t>(sizeof(std::int32_t));
  } else {
    arena.allocate({found.arena_words}, DType::i32);
  }
  found.graph.launch();
  finish_step(shape, found.output);
}

StepRows CudaDecoder::rows_of(const StepShape& shape) const {
  StepRows rows{array(Array::tokens, shape.rows),
                array(Array::slots, shape.rows),
                array(Array::positions, shape.rows),
                array(Array::row_of, shape.rows),
                {}};
  if (shape.routes) rows.report = results_.routes(array(Array::rings, shape.rows));
  return rows;
}

// Computes the results from the logits.
void CudaDecoder::finish_step(const StepShape& shape, const StepOutput& output) {
  if (shape.wanted == 0) return;
  const StepRows rows = rows_of(shape);
  if (keeps_states_) {
    StateReport report{};
    report.states = output.states;
    report.row_of = output.of_rows ? rows.row_of : nullptr;
    report.rings = array(Array::rings, shape.rows);
    report.wanted = static_cast<int>(shape.wanted);
    report.width = model_.config().d_model;
    results_.place(report);
    launch(device_.cuda(), report);
  }
  if (shape.contexts) find_contexts(shape, output);
  if (shape.memory != 0) {
    const std::int64_t outputs = output.of_rows ? shape.rows : shape.wanted;
    memories_.mix({outputs, rows.slots, output.of_rows || shape.whole ? nullptr : rows.row_of,
                   Tensor::wrap(const_cast<bf16*>(output.states), {outputs, model_.config().d_model}, DType::bf16,
                                device_, nullptr),
                   output.logits});
  }
  launch_samples(device_.cuda(), shape, output, 0, shape.wanted);
  if (!shape.sources) return;
  GpuMixture::SourceRows report{array(Array::slots, shape.rows),   shape.whole ? nullptr : rows.row_of,
                                array(Array::numbers, shape.rows), array(Array::targets, shape.rows),
                                last_drawn_.data<std::int32_t>(),  array(Array::sources, shape.rows),
                                array(Array::rings, shape.rows)};
  report.rows = shape.wanted;
  report.of_rows = output.of_rows;
  report.logits = output.logits;
  results_.place(report);
  memories_.report(report);
}

// Samples output rows first .. first + count - 1 of a step.
void CudaDecoder::launch_samples(CudaState& state, const StepShape& shape, const StepOutput& output, std::int64_t first,
                                 std::int64_t count) {
  const auto of = [&](Array which) { return array(which, shape.rows) + first; };
  SampleStep in{};
  in.logits = output.logits;
  in.logits_of_rows = output.of_rows;
  in.vocab = model_.config().vocab;
  in.wanted = static_cast<int>(count);
  in.row_of = shape.whole ? nullptr : of(Array::row_of);
  in.tokens = of(Array::tokens);
  in.slots = of(Array::slots);
  in.positions = of(Array::positions);
  in.numbers = of(Array::numbers);
  in.targets = of(Array::targets);
  in.logprobs = of(Array::logprobs);
  in.rings = of(Array::rings);
  in.ring_size = ring_size;
  in.ring_stride = static_cast<int>(max_rows);
  in.sampling = static_cast<const SlotSampling*>(sampling_.raw());
  in.biases = static_cast<const LogitBias*>(biases_.raw());
  in.max_biases = static_cast<int>(biases_each_);
  in.counts = counts_ ? static_cast<std::uint32_t*>(counts_.raw()) : nullptr;
  in.last_drawn = last_drawn_.data<std::int32_t>();
  in.advance = shape.whole;
  in.results = results_.samples() + first;
  launch(state, in);
}

}  // namespace

std::unique_ptr<Decoder> make_cuda_decoder(Model& model, const DecoderOptions& options) {
  if (!has_fused_steps(model, options) && !has_model_steps(model, options)) return nullptr;
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
