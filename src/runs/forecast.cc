#include "runs/forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/system_memory.h"
#include "data/outlook.h"
#include "memory/settings.h"
#include "model/ffn/expert_bank.h"
#include "runs/run.h"
#include "tensor/device.h"

namespace some {
namespace {

double limit_of(bool gpu) { return gpu ? std::numeric_limits<double>::infinity() : memory_limit(); }

// True if activations and experts are stored in bf16. On a CPU only operands of products are.
bool stores_bf16(const Forecast& forecast) {
  return forecast.precision == Precision::bf16 && forecast.device == DeviceKind::cuda;
}

// Memory of the process on the CPU besides the model: code, oneDNN and its kernels, tokenizer, buffers of text and
// files. Measured with small models; tests/cli/forecast_test.cc compares the sum with what runs use.
constexpr double program_bytes = 32.0 * (1 << 20);

// Returns what building a memory needs more than training did. The optimizer's state is gone by then.
double store_beyond_training(const Recipe& recipe, const MemoryEstimate& training) {
  constexpr double tokens_at_once = 2048;  // memory/reader.cc, on the CPU
  const MemoryEstimate reading = estimate_memory(recipe.model, tokens_at_once, false, false);
  // Saving copies the places of all tokens.
  const double places = 2 * 2 * sizeof(std::int64_t) * static_cast<double>(recipe.memory.slots * recipe.memory.values);
  const double store = store_bytes(recipe.memory, recipe.model.d_model, sizeof(float)) + places;
  return std::max(0.0, reading.total() + store - (training.parameters + training.library + training.activations));
}

std::string gibibytes(double bytes) {
  return fmt::format("{:.{}f} GiB", bytes / (1 << 30), bytes < (10u << 30) ? 2 : 0);
}

}  // namespace

Forecast forecast_run(const Host& host, const Recipe& recipe, const std::optional<DataUse>& counted) {
  const ModelConfig& model = recipe.model;
  const TrainConfig& train = recipe.train;
  Forecast out;
  out.parameters = count_parameters(model);
  out.text = counted;
  double deviation = 0;  // of the tokens of a sequence
  if (counted) {
    out.max_sequences = counted->sequences;
  } else {
    const DataEstimate data = estimate_data(host, recipe.data, model.seq_len);
    if (data.known) out.text = data.use;
    deviation = data.tokens_deviation;
    out.unknown_reason = data.unknown_reason;
    out.bytes_per_token = data.bytes_per_token;
    out.max_sequences = data.max_sequences;
  }
  out.sequences_per_step = static_cast<std::int64_t>(train.batch) * train.accumulate;
  out.slots_per_step = out.sequences_per_step * model.seq_len;
  double row = model.seq_len;  // computed tokens per sequence
  const auto sequences = static_cast<double>(out.sequences_per_step);
  if (out.text) {
    out.steps = out.text->sequences / out.sequences_per_step * train.epochs;
    if (train.max_steps > 0) out.steps = std::min(*out.steps, train.max_steps);
    // Sequences of a split document share one token with the previous one.
    const double real =
        std::min<double>(model.seq_len, static_cast<double>(out.text->used) / static_cast<double>(out.text->sequences));
    out.real_tokens_per_step = real * sequences;
    if (!recipe.data.count_pads) row = real;
    // The lengths of a run's text are not recorded: a third of what they can differ from the mean.
    if (counted) deviation = std::min(real, model.seq_len - real) / 3;
  }
  out.pass_tokens = row * train.batch;
  if (out.text && !recipe.data.count_pads) {
    // Memory is needed for the longest pass of the run: the largest of n sums of `batch` lengths.
    const double passes = static_cast<double>(*out.steps) * train.accumulate;
    const double above = std::sqrt(2 * std::log(std::max(1.0, passes)) * train.batch) * deviation;
    out.pass_tokens = std::min<double>(out.pass_tokens + above, static_cast<double>(train.batch) * model.seq_len);
  }
  out.tokens_per_step = row * sequences;
  out.operations = count_operations(model, out.tokens_per_step, sequences * row * (row + 1) / 2);
  const bool gpu = train.device.kind == DeviceChoice::Kind::cuda ||
                   (train.device.kind == DeviceChoice::Kind::automatic && some::cuda::available());
  out.device = gpu ? DeviceKind::cuda : DeviceKind::cpu;
  out.precision = resolve_precision(train.precision, out.device);
  out.memory_known = out.precision != Precision::f64;  // the estimate assumes numbers of two and four bytes
  out.memory = estimate_memory(model, out.pass_tokens, stores_bf16(out), true);
  share_experts(out.memory, model, out.pass_tokens, stores_bf16(out), train.expert_ranks);
  out.memory.parameters += sum_levels(train.accumulate) * 4.0 * static_cast<double>(out.parameters.trainable);
  if (!gpu) out.memory.program = program_bytes;
  if (recipe.memory.slots > 0 && !gpu) out.memory.store = store_beyond_training(recipe, out.memory);
  out.memory_limit = limit_of(gpu);
  return out;
}

void share_experts(MemoryEstimate& memory, const ModelConfig& config, double tokens, bool bf16, int ranks) {
  if (ranks == 1) return;
  const double d = config.d_model, f = config.d_ffn, k = config.top_k, c = bf16 ? 2 : 4;
  const double largest = Mesh{1, ranks}.max_experts(config.experts);
  memory.library *= largest / config.experts;
  // All-to-all buffers hold states and results in send and receive order. Trained experts also keep their inputs.
  memory.activations += 2 * tokens * k * c * (d + (config.experts_have_output() ? d : f));
  if (experts_learn(config)) memory.activations += tokens * k * c * d * config.layers;
}

namespace {

// Returns the bytes that a rank sends per pass of `tokens`, to experts of other ranks and back from its own, assuming
// uniform load (model/ffn/expert_parallel.h).
double expert_bytes(const ModelConfig& model, double tokens, bool bf16, int ranks) {
  const double e = model.experts, k = model.top_k, d = model.d_model, f = model.d_ffn, c = bf16 ? 2 : 4;
  const double others = ranks - 1, choices = tokens * k * others / ranks;
  // A token is sent to a rank unless none of its experts, all different, is there.
  double none = 1;
  for (double i = 0; i < k; ++i) none *= std::max(0.0, e - e / ranks - i) / (e - i);
  const bool listens = model.modulates() && model.token_shift > 0;
  const double rows = listens ? choices : tokens * others * (1 - none);
  double layer = 8 * others + choices * 12;  // counts; expert index and gate per choice
  if (model.modulates())
    layer += rows * d * c + choices * f * c + choices * (f + d) * c;
  else
    layer += (rows + choices) * (d + (model.experts_have_output() ? d : f)) * c + choices * 4;
  return layer * model.layers;
}

}  // namespace

RankForecast forecast_ranks(const Recipe& recipe, const Forecast& forecast, int ranks) {
  const ModelConfig& model = recipe.model;
  const std::int64_t all = recipe.train.accumulate;
  const double gradients = 4.0 * static_cast<double>(forecast.parameters.trainable);
  RankForecast out;
  out.micro_batches = Mesh{ranks}.max_micro_batches(all);
  out.busy = static_cast<double>(all) / static_cast<double>(out.micro_batches * ranks);
  // Fewer micro-batches per rank need fewer partial sums; half of what is exchanged at a time needs a receive buffer.
  out.memory_bytes = forecast.memory.total() - (sum_levels(all) - sum_levels(out.micro_batches)) * gradients;
  if (ranks > 1) out.memory_bytes += std::min(gradients, double{64 << 20}) / 2;
  double added = gradients + 8;
  if (model.ffn == Ffn::some) {
    const double e = model.experts, k = model.top_k, row = 4.0 * model.query_size();
    const Needs needs = needs_of(model.keys);
    double layer = e * k * 4 + e * 4 + 8;
    if (needs.query_sums) layer += e * k * row;
    if (needs.together) layer += e * e * 4;
    // Samples are merged up a tree and broadcast down: about one list per rank.
    added += layer * model.layers;
    if (needs.sample && ranks > 1) out.sent_bytes_per_step += e * (8 + row) * model.layers;
  }
  out.sent_bytes_per_step += all_reduce_bytes(ranks, added);
  if (const int together = recipe.train.expert_ranks; together > 1) {
    const double tokens = forecast.tokens_per_step / static_cast<double>(all);
    out.expert_bytes_per_step =
        static_cast<double>(out.micro_batches) * expert_bytes(model, tokens, stores_bf16(forecast), together);
    out.sent_bytes_per_step += out.expert_bytes_per_step;
  }
  return out;
}

void check_memory(const Forecast& forecast) {
  if (forecast.fits()) return;
  const MemoryEstimate& memory = forecast.memory;
  bad_input(Code::memory_insufficient,
            "the run requires {} of memory ({} for parameters and optimizer, {} for the frozen library, {} for "
            "activations), but {} are available; reduce the model or train.batch ('some info' shows the effect)",
            gibibytes(memory.total()), gibibytes(memory.parameters), gibibytes(memory.library),
            gibibytes(memory.activations), gibibytes(forecast.memory_limit));
}

void check_memory(const ModelConfig& config, const Context& ctx) {
  const MemoryEstimate memory = estimate_memory(config, 0, ctx.compute == DType::bf16, false);
  const double limit = limit_of(ctx.device.is_cuda());
  if (memory.total() > limit)
    bad_input(Code::memory_insufficient,
              "the model requires {} of memory ({} for parameters, {} for the frozen library), but {} are available",
              gibibytes(memory.total()), gibibytes(memory.parameters), gibibytes(memory.library), gibibytes(limit));
}

}  // namespace some
