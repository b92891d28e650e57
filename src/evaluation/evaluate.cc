#include "evaluation/evaluate.h"

#include <cmath>
#include <limits>
#include <utility>

#include "comm/all_gather_rows.h"
#include "core/heartbeat.h"
#include "memory/predictions.h"
#include "ops/elementwise.h"

namespace some {
namespace {

constexpr std::int64_t sample_batches = 8,
                       sample_positions = 16384;  // precise to about one percent, and cheap in every evaluation
constexpr std::size_t shown_cliques = 8;

// Sets and gate entropy of one layer over the first positions that take part.
struct ChoiceSample {
  std::vector<std::int32_t> indices;
  double entropy = 0;
  std::int64_t positions = 0;

  void add(const Routing& routing, const std::vector<std::int32_t>& targets, bool all_positions) {
    const Tensor chosen = routing.indices.device().is_cpu() ? routing.indices : routing.indices.to(Device::cpu);
    const std::vector<double> gates = read_vector(routing.gates);
    const std::int64_t k = chosen.dim(1);
    for (std::int64_t t = 0; t < chosen.dim(0) && positions < sample_positions; ++t) {
      if (!all_positions && targets[static_cast<std::size_t>(t)] < 0) continue;
      for (std::int64_t i = 0; i < k; ++i) {
        indices.push_back(chosen.data<std::int32_t>()[t * k + i]);
        const double gate = gates[static_cast<std::size_t>(t * k + i)];
        if (gate > 0) entropy -= gate * std::log(gate);
      }
      ++positions;
    }
  }

  void measure(int experts, int top_k, ChoiceMeasures& out) const {
    out.sampled = positions;
    if (positions == 0) return;
    out.gate_entropy = entropy / static_cast<double>(positions);
    std::vector<Clique> sets = frequent_sets(indices, top_k, std::numeric_limits<std::size_t>::max());
    out.distinct_sets = static_cast<std::int64_t>(sets.size());
    const auto groups = static_cast<std::size_t>(std::max(1, experts / top_k));
    for (std::size_t i = 0; i < std::min(groups, sets.size()); ++i) out.top_sets_share += sets[i].share;
    if (sets.size() > shown_cliques) sets.resize(shown_cliques);
    out.cliques = std::move(sets);
  }
};

}  // namespace

EvaluateOptions evaluate_options(const Recipe& recipe, const Tokenizer& tokenizer) {
  EvaluateOptions options;
  options.rows = recipe.train.batch;
  options.count_pads = recipe.data.count_pads;
  options.pad_id = tokenizer.pad_id();
  options.eos_id = tokenizer.eos_id();
  options.average = recipe.train.eval_average;
  options.long_documents = recipe.data.long_documents;
  return options;
}

double Evaluation::perplexity() const { return std::exp(loss); }

double Evaluation::headline(const EvaluateOptions& options) const {
  if (options.average == EvalAverage::batches) return batch_mean_loss;
  return padded_loss.value_or(loss);
}

LossNotFinite::LossNotFinite(double loss)
    : Error(Fault::failure, Code::loss_not_finite,
            fmt::format("the loss is {}: the model's numbers are not finite, so this checkpoint is unusable; use an "
                        "earlier one with --checkpoint STEP",
                        loss),
            {fmt::format("{}", loss)}),
      loss_(loss) {}

namespace {

// Input of one forward pass.
struct Piece {
  Batch batch;
  bool context = false;  // some rows are context only, predicted and counted in another sequence
};

// Splits a text into pieces, in order; pieces without predicted positions are skipped.
class Pieces {
 public:
  Pieces(const Model& model, const TokenData& data, const EvaluateOptions& options)
      : data_(data),
        rows_(options.rows),
        sequences_(data, model.config().seq_len, options.long_documents, Reading::evaluation, options.max_documents) {
    batch_.seq_len = model.config().seq_len;
    batch_.count_pads = options.count_pads;
    batch_.pad_id = options.pad_id;
    batch_.eos_id = options.eos_id;
  }
  std::vector<Piece> next(int number) {  // fewer at the end
    std::vector<Piece> out;
    for (; first_ < sequences_.size() && std::ssize(out) < number; first_ += rows_) {
      std::vector<Sequence> chosen;
      bool context = false;
      for (std::int64_t i = first_; i < std::min(sequences_.size(), first_ + rows_); ++i) {
        chosen.push_back(sequences_[i]);
        context = context || chosen.back().first_target > chosen.back().begin + 1;
      }
      Batch batch = make_batch(data_, chosen, batch_);
      if (batch.predicted > 0) out.push_back({std::move(batch), context});
    }
    return out;
  }

 private:
  const TokenData& data_;
  std::int64_t rows_, first_ = 0;
  SequenceList sequences_;
  BatchOptions batch_;
};

// Results of the model for a piece, whichever rank computed it; in scratch memory.
struct Answer {
  DeviceBatch batch;
  Tensor losses, states;         // states: only if requested
  std::vector<Routing> choices;  // per layer; empty if they were reported during the pass
};

// Called on a rank without a piece: other ranks with a piece may need its experts.
void serve_others(Model& model, std::size_t pieces) {
  const Context& ctx = model.context();
  if (ctx.mesh().group_has_pass(ctx.group.rank(), static_cast<std::int64_t>(pieces))) model.serve_pass(false);
}

// Each rank runs one piece of `round` through the model; then all ranks gather all results.
std::vector<Answer> run_passes(const Group& group, Model& model, const std::vector<Piece>& round,
                               const StepSettings& settings, bool with_states) {
  Context& ctx = model.context();
  const ModelConfig& config = model.config();
  const auto self = static_cast<std::size_t>(group.rank());
  const std::int64_t layers = config.ffn == Ffn::some ? config.layers : 0, k = config.top_k;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 0), counts_of_layers = counts;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < round.size(); ++i) {
    counts[i] = round[i].batch.size();
    counts_of_layers[i] = layers * counts[i];
    total += counts[i];
  }
  const std::int64_t rows = counts[self];
  // The choices of all layers, concatenated.
  const Tensor indices = ctx.scratch({layers * rows, k}, DType::i32),
               gates = ctx.scratch({layers * rows, k}, ctx.master);
  Tensor losses = ctx.scratch({0}, ctx.master), states = ctx.scratch({0, config.d_model});
  if (self < round.size()) {
    const auto observe = [&](int layer, const RouterTape& tape) {
      indices.rows(layer * rows, (layer + 1) * rows).copy_from(tape.routing.indices);
      gates.rows(layer * rows, (layer + 1) * rows).copy_from(tape.routing.gates);
    };
    losses = model.evaluate(upload(ctx, round[self].batch), settings, {observe, &states});
  } else {
    serve_others(model, round.size());
  }
  const auto of_all = [&](const Tensor& mine, const std::vector<std::int64_t>& rows_of, Shape shape) {
    Tensor all = ctx.scratch(std::move(shape), mine.dtype());
    all_gather_rows(group, mine, rows_of, all);
    return all;
  };
  const Tensor all_losses = of_all(losses, counts, {total});
  const Tensor all_indices = of_all(indices, counts_of_layers, {layers * total, k}),
               all_gates = of_all(gates, counts_of_layers, {layers * total, k});
  const Tensor all_states = with_states ? of_all(states, counts, {total, config.d_model}) : Tensor();
  std::vector<Answer> out;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < round.size(); ++i) {
    Answer& one = out.emplace_back(Answer{upload(ctx, round[i].batch), {}, {}, {}});
    one.losses = all_losses.rows(first, first + counts[i]);
    if (with_states) one.states = all_states.rows(first, first + counts[i]);
    for (std::int64_t l = 0; l < layers; ++l) {
      const std::int64_t begin = layers * first + l * counts[i];
      one.choices.push_back({all_indices.rows(begin, begin + counts[i]), {}, all_gates.rows(begin, begin + counts[i])});
    }
    first += counts[i];
  }
  return out;
}

}  // namespace

Evaluation evaluate(Model& model, const TokenData& data, const EvaluateOptions& options) {
  Context& ctx = model.context();
  const ModelConfig& config = model.config();
  const Group group = options.alone ? Group() : ctx.group;
  Pieces pieces(model, data, options);
  Evaluation out;
  out.documents = options.max_documents > 0 ? std::min(options.max_documents, data.documents()) : data.documents();
  std::vector<ChoiceSample> samples(static_cast<std::size_t>(config.layers));
  std::int64_t batches = 0;
  std::optional<MixtureState> mixture;
  if (options.memory != nullptr) mixture.emplace(*options.memory);
  StepSettings settings;
  settings.temperature = options.temperature;
  model.clear_key_sums(model.context());
  const auto count_choices = [&](int layer, const Tensor& query, const Routing& routing, const Piece& piece,
                                 const DeviceBatch& batch) {
    const auto l = static_cast<std::size_t>(layer);
    const Tensor* const taking_part = options.count_pads && !piece.context ? nullptr : &batch.targets;
    add_key_sums(ctx, {query, routing, KeyPlan(), 0, &model.key_sums()[l]}, taking_part);
    if (batches < sample_batches && samples[l].positions < sample_positions)
      samples[l].add(routing, piece.batch.targets, taking_part == nullptr);
  };

  double real_sum = 0, all_sum = 0, batch_means = 0;
  std::int64_t all_count = 0;
  for (std::vector<Piece> round; !(round = pieces.next(group.size())).empty();) {
    beat();
    ctx.arena->reset();
    std::vector<Answer> answers;
    if (group.alone()) {
      Answer& one = answers.emplace_back(Answer{upload(ctx, round[0].batch), {}, {}, {}});
      const auto observe = [&](int layer, const RouterTape& tape) {
        count_choices(layer, tape.query, tape.routing, round[0], one.batch);
      };
      one.losses = model.evaluate(one.batch, settings, {observe, &one.states});
    } else {
      answers = run_passes(group, model, round, settings, options.memory != nullptr);
    }
    for (std::size_t i = 0; i < round.size(); ++i) {
      const Batch& batch = round[i].batch;
      Answer& answer = answers[i];
      for (std::size_t l = 0; l < answer.choices.size(); ++l) {
        const ArenaScope scope(*ctx.arena);
        const Tensor query = ctx.scratch({batch.size(), config.query_size()}, ctx.master);  // not read here
        count_choices(static_cast<int>(l), query, answer.choices[l], round[i], answer.batch);
      }
      if (options.memory != nullptr)
        mix_losses(ctx, *options.memory, batch, 0, answer.states, answer.batch.targets, *mixture, answer.losses);
      const std::vector<double> nll = read_vector(answer.losses);
      double batch_sum = 0;
      for (std::size_t t = 0; t < nll.size(); ++t) {
        if (batch.targets[t] < 0) continue;
        batch_sum += nll[t];
        if (batch.tokens[t] != options.pad_id && batch.targets[t] != options.pad_id) real_sum += nll[t];
      }
      all_sum += batch_sum;
      all_count += batch.predicted;
      batch_means += batch_sum / static_cast<double>(batch.predicted);
      ++batches;
      out.tokens += batch.predicted_non_padding;
      out.bytes += batch.real_bytes;
    }
  }
  if (out.tokens == 0)
    bad_input(Code::data_nothing_to_predict,
              "nothing to evaluate: no document has a token to predict (documents of one token?)");
  out.loss = real_sum / static_cast<double>(out.tokens);
  out.bits_per_byte = out.bytes > 0 ? real_sum / static_cast<double>(out.bytes) / std::log(2.0) : 0.0;
  if (options.count_pads) out.padded_loss = all_sum / static_cast<double>(all_count);
  out.batch_mean_loss = batch_means / static_cast<double>(batches);
  for (const double loss : {out.loss, out.padded_loss.value_or(0), out.batch_mean_loss}) {
    if (!std::isfinite(loss)) throw LossNotFinite(loss);
  }
  if (config.ffn == Ffn::some) {
    for (std::size_t l = 0; l < model.layers().size(); ++l) {
      ChoiceMeasures choices;
      const std::vector<double> slots = read_vector(model.key_sums()[l].slot_counts);
      choices.counts.assign(static_cast<std::size_t>(config.experts), 0.0);
      for (std::size_t i = 0; i < slots.size(); ++i)
        choices.counts[i / static_cast<std::size_t>(config.top_k)] += slots[i];
      choices.mass = read_vector(model.key_sums()[l].gate_sums);
      samples[l].measure(config.experts, config.top_k, choices);
      out.layers.push_back(std::move(choices));
    }
    model.clear_key_sums(model.context());
  }
  return out;
}

}  // namespace some
