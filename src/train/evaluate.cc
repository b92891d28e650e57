#include "train/evaluate.h"

#include <cmath>
#include <limits>

#include "ops/elementwise.h"

namespace some::train {
namespace {

constexpr std::int64_t sample_batches = 8,
                       sample_positions = 16384;  // enough for a share of a percent, cheap in every evaluation
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
    : Error(Fault::failure,
            fmt::format("the loss is {}: this model computes no finite numbers any more, its checkpoint is of no use; "
                        "look for an earlier one with --checkpoint STEP",
                        loss)),
      loss_(loss) {}

Evaluation evaluate(Model& model, const TokenData& data, const EvaluateOptions& options) {
  Context& ctx = model.context();
  const ModelConfig& config = model.config();
  const SequenceList sequences(data, config.seq_len, options.long_documents, Reading::evaluation, options.stories);
  BatchOptions batch_options;
  batch_options.seq_len = config.seq_len;
  batch_options.count_pads = options.count_pads;
  batch_options.pad_id = options.pad_id;
  batch_options.eos_id = options.eos_id;

  Evaluation out;
  out.stories = options.stories > 0 ? std::min(options.stories, data.stories()) : data.stories();
  std::vector<ChoiceSample> samples(static_cast<std::size_t>(config.layers));
  std::int64_t batches = 0;
  const Batch* current = nullptr;
  const Tensor* taking_part = nullptr;
  EvalPass pass;
  pass.temperature = options.temperature;
  model.clear_key_sums();
  pass.observe = [&](int layer, const SomeTape& tape) {
    const auto l = static_cast<std::size_t>(layer);
    add_key_sums(ctx, {tape.query, tape.routing, KeyPlan(), 0, &model.key_sums()[l]}, taking_part);
    if (batches < sample_batches && samples[l].positions < sample_positions)
      samples[l].add(tape.routing, current->targets, taking_part == nullptr);
  };

  double real_sum = 0, all_sum = 0, batch_means = 0;
  std::int64_t all_count = 0;
  for (std::int64_t first = 0; first < sequences.size(); first += options.rows) {
    std::vector<Sequence> chosen;
    bool context = false;  // read, but predicted and counted in another sequence
    for (std::int64_t i = first; i < std::min(sequences.size(), first + options.rows); ++i) {
      chosen.push_back(sequences[i]);
      context = context || chosen.back().first_target > chosen.back().begin + 1;
    }
    const Batch batch = make_batch(data, chosen, batch_options);
    if (batch.predicted == 0) continue;
    ctx.arena->reset();
    const DeviceBatch device_batch = upload(ctx, batch);
    current = &batch;
    taking_part = options.count_pads && !context ? nullptr : &device_batch.targets;
    const std::vector<double> nll = read_vector(model.evaluate(device_batch, pass));
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
    out.tokens += batch.predicted_real;
    out.bytes += batch.real_bytes;
  }
  if (out.tokens == 0)
    bad_input("there is nothing to evaluate: no document of the data predicts a token (documents of one token?)");
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
    model.clear_key_sums();
  }
  return out;
}

}  // namespace some::train
