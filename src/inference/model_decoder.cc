// The decoder for every device and model: Model::decode, then sampling on the host.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.h"
#include "inference/cuda_decoder.h"
#include "inference/decoder.h"
#include "inference/key_learner.h"
#include "memory/partitions.h"
#include "runtime/row_products.h"

namespace some {
namespace {

class HostDecoder : public ModelDecoder {
 public:
  HostDecoder(Model& model, const DecoderOptions& options, Model::Cache cache)
      : model_(model),
        options_(options),
        capacity_(cache.capacity),
        cache_(std::move(cache)),
        sequences_(static_cast<std::size_t>(options.slots)) {
    settings_.temperature = options.router_temperature;
    add_gpu_products(model.context(), products_);
    if (options.half_weights) keep_half_weights();
    if (options.adapt_window <= 0) return;
    if (model.config().ffn != Ffn::some)
      bad_input(Code::experts_missing,
                "{}: this run has no experts (model.ffn is not \"some\"), and therefore no keys to learn", "--adapt");
    learner_.emplace(model, choose_rules(model.config().keys, options.adapt_rules), options.adapt_step);
  }

  void open(std::int32_t slot, const SlotSequence& sequence) override {
    Sequence& own = sequences_[static_cast<std::size_t>(slot)];
    own = {sequence.sampling, {}, sequence.memory, 0, {}};
    if (sequence.sampling.penalizes()) own.counts = TokenCounts(model_.config().vocab, sequence.prompt);
    if (sequence.memory == nullptr) return;
    Remembered& memory = memories_[sequence.memory];
    memory.mixture.resize(sequences_.size());
    memory.mixture[static_cast<std::size_t>(slot)] = sequence.mixture;
    memory.contexts.resize(sequences_.size());
    memory.contexts[static_cast<std::size_t>(slot)] = sequence.contexts;
    if (memory.predictions)
      memory.predictions->set_weights(memory.mixture);
    else
      memory.predictions.emplace(model_.context(), *sequence.memory, memory.mixture);
    memory.predictions->set_mixtures(memory.contexts);
  }

  void close(std::int32_t slot) override { sequences_[static_cast<std::size_t>(slot)] = {}; }
  void memory_changed(const Memory& memory) override { memories_.erase(&memory); }

  void submit(const DecodeBatch& batch) override { result_ = compute(batch); }
  DecodeResult collect() override { return std::move(result_); }
  void drawn(std::int32_t slot, TokenId token) override {
    Sequence& sequence = sequences_[static_cast<std::size_t>(slot)];
    sequence.last = token;
    if (!sequence.counts.empty()) sequence.counts.add(token);
  }
  void saw(std::int32_t slot, std::int32_t position, TokenId token) override {
    Sequence& own = sequences_[static_cast<std::size_t>(slot)];
    if (own.memory == nullptr) return;
    own.tokens.resize(static_cast<std::size_t>(position) + 1);
    own.tokens.back() = token;
  }
  const TokenCounts& counts(std::int32_t slot) const override {
    return sequences_[static_cast<std::size_t>(slot)].counts;
  }

  std::int64_t slots() const override { return static_cast<std::int64_t>(sequences_.size()); }
  std::int64_t capacity() const override { return capacity_; }
  std::size_t cache_bytes() const override {
    std::size_t bytes = 0;
    for (const auto* list : {&cache_.layers, &cache_.states}) {
      for (const Tensor& one : *list) bytes += one.bytes();
    }
    return bytes;
  }

 private:
  struct Sequence {
    SamplingOptions sampling;
    TokenCounts counts;
    const Memory* memory = nullptr;
    TokenId last = 0;             // sampled
    std::vector<TokenId> tokens;  // by position; only with a memory
  };
  struct Remembered {
    std::vector<std::vector<double>> mixture;  // by slot
    std::vector<ContextMixture> contexts;      // by slot as well
    std::optional<MemoryPredictions> predictions;
  };
  // Rows of one call of the model, as indices into the batch.
  struct Part {
    std::vector<std::int32_t> tokens, slots, positions, rows;
  };

  void keep_half_weights();
  DecodeResult compute(const DecodeBatch& batch);
  void read(const DecodeBatch& batch, const Part& part, bool reread, DecodeResult& result);
  void predict(const DecodeBatch& batch, const std::vector<std::size_t>& wanted, const Tensor& states,
               std::vector<double> logits, DecodeResult& result);
  void keep_routes(const Part& part, int layer, const RouterTape& tape, DecodeResult& result) const;

  Model& model_;
  DecoderOptions options_;
  std::int64_t capacity_;
  Model::Cache cache_;
  StepSettings settings_;
  RowProducts products_;  // constant, so that a row's result never depends on the other rows of the batch
  std::optional<KeyLearner> learner_;
  std::int64_t seen_ = 0;  // rows since the last key update
  std::vector<Sequence> sequences_;
  std::map<const Memory*, Remembered> memories_;
  DecodeResult result_;
};

void HostDecoder::keep_half_weights() {
  Context& ctx = model_.context();
  if (!ctx.device.is_cpu() || ctx.compute != DType::f32)
    bad_input(Code::option_conflict, "{}: requires fp32 on the CPU; on a GPU, use --precision bf16", "--half-weights");
  products_.add_half(model_.parameters().compute ? model_.parameters().compute : model_.parameters().value);
  for (const Layer& layer : model_.layers()) {
    for (const Tensor* library : {&layer.experts.w1.compute, &layer.experts.w2.compute}) {
      if (*library && products_.half_of(library->raw()) == nullptr) products_.add_half(*library);
    }
  }
}

DecodeResult HostDecoder::compute(const DecodeBatch& batch) {
  // If keys learn, a text depends on the other texts anyway.
  std::optional<RowProductsScope> scope;
  if (!learner_ || options_.half_weights) scope.emplace(model_.context(), products_);
  DecodeResult result;
  result.wanted.resize(batch.wanted.size());
  if (batch.routes && model_.config().ffn == Ffn::some) {
    result.top_k = model_.config().top_k;
    const std::size_t entries =
        batch.rows() * static_cast<std::size_t>(model_.config().layers) * static_cast<std::size_t>(result.top_k);
    result.experts.assign(entries, 0);
    result.gates.assign(entries, 0);
  }
  // If keys learn, rows that are read again are in a pass of their own, because keys do not learn from them; the other
  // rows of their slots follow. The key/value cache stays valid across key updates: it holds attention keys and values,
  // which do not depend on expert keys.
  for (const bool reread : {true, false}) {
    if (!learner_ && !reread) continue;
    Part part;
    const auto flush = [&] {
      if (!part.rows.empty()) read(batch, part, learner_ && reread, result);
      part = {};
    };
    for (std::size_t row = 0; row < batch.rows(); ++row) {
      if (learner_ && (batch.again[row] != 0) != reread) continue;
      const std::int32_t slot = batch.slots[row];
      part.tokens.push_back(batch.tokens[row] == last_drawn ? sequences_[static_cast<std::size_t>(slot)].last
                                                            : batch.tokens[row]);
      saw(slot, batch.positions[row], part.tokens.back());
      part.slots.push_back(slot);
      part.positions.push_back(batch.positions[row]);
      part.rows.push_back(static_cast<std::int32_t>(row));
      if (learner_ && !reread && std::ssize(part.rows) == options_.adapt_window - seen_) flush();
    }
    flush();
  }
  return result;
}

void HostDecoder::read(const DecodeBatch& batch, const Part& part, bool reread, DecodeResult& result) {
  std::vector<std::int32_t> rows;
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0, at = 0; i < batch.wanted.size(); ++i) {
    while (at < part.rows.size() && part.rows[at] < batch.wanted[i].row) ++at;
    if (at == part.rows.size()) break;
    if (part.rows[at] != batch.wanted[i].row) continue;
    wanted.push_back(i);
    rows.push_back(static_cast<std::int32_t>(at));
  }
  const bool silent = rows.empty();
  if (silent) rows.push_back(0);
  LayerObserver observe;
  if (!reread && (learner_ || result.top_k > 0)) {
    observe = [&](int layer, const RouterTape& tape) {
      if (learner_) learner_->observe(layer, tape, nullptr);
      if (result.top_k > 0) keep_routes(part, layer, tape, result);
    };
  }
  model_.context().arena->reset();
  Tensor states;
  const Tensor logits =
      model_.decode(cache_, part.tokens, part.slots, part.positions, rows, settings_, {observe, &states});
  if (!silent) predict(batch, wanted, states, read_vector(logits), result);
  if (!learner_ || reread) return;
  learner_->pass_done(std::ssize(part.rows));
  seen_ += std::ssize(part.rows);
  if (seen_ == options_.adapt_window) {
    learner_->update();
    seen_ = 0;
  }
}

void HostDecoder::predict(const DecodeBatch& batch, const std::vector<std::size_t>& wanted, const Tensor& states,
                          std::vector<double> logits, DecodeResult& result) {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab), count = wanted.size();
  const auto slot_of = [&](std::size_t i) { return batch.slots[static_cast<std::size_t>(batch.wanted[i].row)]; };
  std::vector<double> own;  // hidden states
  for (std::size_t n = 0; n < count; ++n) {
    if (batch.wanted[wanted[n]].kind != WantedRow::Kind::state) continue;
    if (own.empty()) own = read_vector(states);
    const std::size_t width = own.size() / count;
    result.wanted[wanted[n]].state.assign(own.begin() + static_cast<std::ptrdiff_t>(n * width),
                                          own.begin() + static_cast<std::ptrdiff_t>((n + 1) * width));
  }
  for (std::size_t n = 0; n < count; ++n) {
    const std::span<const double> row(logits.data() + n * vocab, vocab);
    result.wanted[wanted[n]].finite = std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); });
  }
  const auto before = [&](std::size_t n) {
    const auto row = static_cast<std::size_t>(batch.wanted[wanted[n]].row);
    const std::vector<TokenId>& tokens = sequences_[static_cast<std::size_t>(batch.slots[row])].tokens;
    const auto end = std::min<std::ptrdiff_t>(std::ssize(tokens), batch.positions[row] + 1);
    const auto begin = std::max<std::ptrdiff_t>(0, end - longest_context);
    return std::vector<std::int32_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  // Each memory mixes into its own rows.
  std::vector<std::vector<std::size_t>> rows_of;
  std::vector<const Memory*> mixed;
  for (std::size_t n = 0; n < count; ++n) {
    const Memory* memory = sequences_[static_cast<std::size_t>(slot_of(wanted[n]))].memory;
    if (memory == nullptr || batch.wanted[wanted[n]].kind == WantedRow::Kind::state) continue;
    const auto found = std::find(mixed.begin(), mixed.end(), memory);
    if (found == mixed.end()) {
      mixed.push_back(memory);
      rows_of.push_back({n});
    } else {
      rows_of[static_cast<std::size_t>(found - mixed.begin())].push_back(n);
    }
  }
  const auto states_of = [&](std::size_t n) {
    return states.rows(static_cast<std::int64_t>(n), static_cast<std::int64_t>(n) + 1);
  };
  for (std::size_t m = 0; m < mixed.size(); ++m) {
    MemoryPredictions& predictions = *memories_.at(mixed[m]).predictions;
    // Searches over partitions add in chunks whose size depends on the number of rows.
    if (rows_of[m].size() == count && !searches_some_partitions(mixed[m]->store, mixed[m]->settings)) {
      std::vector<std::int32_t> texts;
      std::vector<std::vector<std::int32_t>> contexts;
      for (const std::size_t n : rows_of[m]) {
        texts.push_back(slot_of(wanted[n]));
        contexts.push_back(before(n));
      }
      predictions.mix(states, texts, logits, contexts);
      continue;
    }
    for (const std::size_t n : rows_of[m]) {
      const std::vector<std::int32_t> texts{slot_of(wanted[n])};
      std::vector<double> one(logits.begin() + static_cast<std::ptrdiff_t>(n * vocab),
                              logits.begin() + static_cast<std::ptrdiff_t>((n + 1) * vocab));
      const std::vector<std::vector<std::int32_t>> contexts{before(n)};
      predictions.mix(states_of(n), texts, one, contexts);
      std::copy(one.begin(), one.end(), logits.begin() + static_cast<std::ptrdiff_t>(n * vocab));
    }
  }
  parallel_for(*model_.context().threads, static_cast<std::int64_t>(count), [&](std::int64_t n) {
    const WantedRow& want = batch.wanted[wanted[static_cast<std::size_t>(n)]];
    DecodedRow& out = result.wanted[wanted[static_cast<std::size_t>(n)]];
    if (want.kind == WantedRow::Kind::state || !out.finite) return;
    const std::span<double> row(logits.data() + static_cast<std::size_t>(n) * vocab, vocab);
    if (want.kind == WantedRow::Kind::score) {
      Logprobs known = logprobs_of(row, want.target, want.logprobs);
      out.token = want.target;
      out.logprob = known.chosen.logprob;
      out.top = std::move(known.top);
      return;
    }
    Sequence& sequence = sequences_[static_cast<std::size_t>(batch.slots[static_cast<std::size_t>(want.row)])];
    std::vector<double> adjusted(row.begin(), row.end());
    adjust_logits(adjusted, sequence.sampling, sequence.counts);
    out.token = choose_token(adjusted, sequence.sampling,
                             sampling_uniform(sequence.sampling, static_cast<std::uint64_t>(want.number)));
    sequence.last = out.token;
    if (!sequence.counts.empty()) sequence.counts.add(out.token);
    if (want.logprobs < 0) return;
    Logprobs known = logprobs_of(row, out.token, want.logprobs);
    out.logprob = known.chosen.logprob;
    out.top = std::move(known.top);
  });
  for (std::size_t n = 0; n < count; ++n) {
    const WantedRow& want = batch.wanted[wanted[n]];
    DecodedRow& out = result.wanted[wanted[n]];
    const Memory* memory = sequences_[static_cast<std::size_t>(slot_of(wanted[n]))].memory;
    if (want.sources <= 0 || memory == nullptr || !out.finite || want.kind == WantedRow::Kind::state) continue;
    const double probability = std::exp(logprobs_of({logits.data() + n * vocab, vocab}, out.token, 0).chosen.logprob);
    out.memory = memories_.at(memory).predictions->shares_of(states_of(n), slot_of(wanted[n]), before(n), out.token,
                                                             probability, static_cast<std::size_t>(want.sources));
  }
}

void HostDecoder::keep_routes(const Part& part, int layer, const RouterTape& tape, DecodeResult& result) const {
  const std::vector<double> experts = read_vector(tape.routing.indices), gates = read_vector(tape.routing.gates);
  const auto k = static_cast<std::size_t>(result.top_k), layers = static_cast<std::size_t>(model_.config().layers);
  const std::size_t chosen = experts.size() / part.rows.size();
  for (std::size_t i = 0; i < part.rows.size(); ++i) {
    const std::size_t at = (static_cast<std::size_t>(part.rows[i]) * layers + static_cast<std::size_t>(layer)) * k;
    for (std::size_t j = 0; j < std::min(k, chosen); ++j) {
      result.experts[at + j] = static_cast<std::int32_t>(experts[i * chosen + j]);
      result.gates[at + j] = static_cast<float>(gates[i * chosen + j]);
    }
  }
}

}  // namespace

std::unique_ptr<ModelDecoder> make_model_decoder(Model& model, const DecoderOptions& options) {
  return make_model_decoder(
      model, options,
      model.make_cache(options.slots, options.capacity > 0 ? options.capacity : model.config().seq_len));
}

std::unique_ptr<ModelDecoder> make_model_decoder(Model& model, const DecoderOptions& options, Model::Cache cache) {
  return std::make_unique<HostDecoder>(model, options, std::move(cache));
}

}  // namespace some
