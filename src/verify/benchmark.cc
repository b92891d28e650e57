#include "verify/benchmark.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/random.h"
#include "kernels/cpu/gemm.h"
#include "model/model.h"
#include "model/operations.h"
#include "runs/forecast.h"
#include "runs/run.h"
#include "tensor/device.h"
#include "train/matrix_rate.h"
#include "train/step.h"
#include "verify/benchmark_comm.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the seconds taken by `work`, including device synchronization.
template <typename Work>
double timed(Context& ctx, Work&& work) {
  device_synchronize(ctx.device);
  const auto start = Clock::now();
  work();
  device_synchronize(ctx.device);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Batch synthetic_batch(const ModelConfig& model, bool count_pads, int rows, std::uint64_t seed, std::int64_t number) {
  Batch batch;
  batch.offsets.push_back(0);
  const RandomStream lengths = random_stream(seed, fmt::format("bench.lengths.{}", number)),
                     ids = random_stream(seed, fmt::format("bench.ids.{}", number));
  std::uint64_t drawn = 0;
  for (int r = 0; r < rows; ++r) {
    const auto real = static_cast<std::int64_t>(std::clamp(215.0 + 85.0 * lengths.normal(static_cast<std::uint64_t>(r)),
                                                           60.0, static_cast<double>(std::max(60, model.seq_len))));
    const std::int64_t used = std::min<std::int64_t>(real, model.seq_len), laid = count_pads ? model.seq_len : used;
    const std::size_t first = batch.tokens.size();
    for (std::int64_t p = 0; p < laid; ++p) {
      batch.tokens.push_back(
          p < used ? static_cast<std::int32_t>(3 + ids.below(drawn++, static_cast<std::uint32_t>(model.vocab - 3)))
                   : 1);
      batch.positions.push_back(static_cast<std::int32_t>(p));
    }
    for (std::int64_t p = 0; p < laid; ++p) {
      const std::int32_t target = p + 1 < laid ? batch.tokens[first + static_cast<std::size_t>(p) + 1] : -1;
      batch.targets.push_back(target);
      batch.predicted += target >= 0;
      batch.predicted_non_padding += target >= 0 && target != 1;
    }
    batch.real_tokens += used;
    batch.longest = std::max(batch.longest, laid);
    batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  }
  batch.slots = static_cast<std::int64_t>(rows) * model.seq_len;
  return batch;
}

BenchResult bench_train(const Recipe& recipe, const BenchOptions& options,
                        const std::function<void(int, int)>& progress) {
  if (options.steps < 1) bad_input(Code::option_invalid, "{} {}: must be >= 1", "--steps", options.steps);
  std::shared_ptr<Context> shared = recipe_context(recipe.train, make_host(recipe.train.threads, {}, options.group));
  Context& ctx = *shared;
  BenchResult out;
  out.device = ctx.device.is_cuda() ? some::cuda::device_name(ctx.device) : "cpu";
  out.matrix_library = ctx.device.is_cuda() ? "cuBLASLt" : cpu::gemm_description();
  const double rate_before = measure_gemm_rate(ctx);

  Model model(shared, recipe.model, true);
  const TrainConfig& train = recipe.train;
  constexpr int distinct = 4;
  // A step takes train.accumulate consecutive batches.
  const int made = distinct + train.accumulate - 1;
  std::vector<Batch> batches;
  double operations = 0, real = 0, slots = 0, tokens = 0;
  for (int i = 0; i < made; ++i) {
    batches.push_back(synthetic_batch(recipe.model, recipe.data.count_pads, train.batch, recipe.seed, i));
    const double share = static_cast<double>(train.accumulate) / made;
    operations += count_operations(recipe.model, batches.back()).total() * share;
    real += static_cast<double>(batches.back().real_tokens) * share;
    slots += static_cast<double>(batches.back().slots) * share;
    tokens = std::max(tokens, static_cast<double>(batches.back().size()));
  }
  TrainStep::Options how;
  how.early_bytes = options.overlap ? std::optional(TrainStep::min_early_bytes(ctx.group)) : std::nullopt;
  TrainStep trained(model, train, recipe.data.count_pads, how);
  const auto step = [&](int i) {
    StepPlan plan;
    plan.step = i;
    plan.lr = train.lr;
    plan.progress = 0.5;
    trained.run(
        std::span(batches).subspan(static_cast<std::size_t>(i % distinct), static_cast<std::size_t>(train.accumulate)),
        plan);
  };
  const int all = options.warmup + options.steps;
  std::vector<double> seconds;
  Group::Traffic before;
  TrainStep::Communication spent;
  double measured = 0;
  // On a GPU, steps overlap with the host's preparation of the next step, as in training; therefore groups of steps are
  // timed.
  const int group = ctx.device.is_cuda() ? 4 : 1;
  for (int i = 0; i < all; i += group) {
    if (seconds.empty()) {
      before = ctx.group.traffic();
      spent = trained.communication();
    }
    const double one = timed(ctx,
                             [&] {
                               for (int j = 0; j < group; ++j) step(i + j);
                             }) /
                       group;
    if (i >= options.warmup) {
      seconds.push_back(one);
      measured += one * group;
    }
    if (progress) progress(std::min(all, i + group), all);
  }
  const Group::Traffic after = ctx.group.traffic();  // includes the traffic of its subgroups
  out.ranks = ctx.group.size();
  const TrainStep::Communication spent_after = trained.communication();
  out.hidden_communication_share = (spent_after.hidden_seconds - spent.hidden_seconds) / measured;
  // With expert parallelism the passes wait for other ranks' experts.
  out.communication_share =
      (ctx.expert_group.alone() ? spent_after.open_seconds - spent.open_seconds : after.seconds - before.seconds) /
      measured;
  const auto steps = static_cast<double>(seconds.size() * static_cast<std::size_t>(group));
  out.sent_bytes_per_step = static_cast<double>(after.bytes - before.bytes) / steps;
  out.messages_per_step = static_cast<double>(after.exchanges - before.exchanges) / steps;
  if (out.messages_per_step > 0) out.way = transport_name(ctx.group, ctx.device);
  const double rate_after = measure_gemm_rate(ctx);
  out.matrix_rate = std::max(rate_before, rate_after);
  std::sort(seconds.begin(), seconds.end());
  out.step_seconds = median(seconds);
  out.step_spread = (seconds[seconds.size() * 9 / 10] - seconds[seconds.size() / 10]) / out.step_seconds;
  out.slots_per_second = slots / out.step_seconds;
  out.real_tokens_per_second = real / out.step_seconds;
  out.real_share = real / slots;
  out.operations_per_step = operations;
  out.operations_per_second = operations / out.step_seconds;
  out.share_of_matrix_rate = out.operations_per_second / out.matrix_rate / out.ranks;
  MemoryEstimate memory = estimate_memory(recipe.model, tokens, ctx.compute == DType::bf16, true);
  share_experts(memory, recipe.model, tokens, ctx.compute == DType::bf16, train.expert_ranks);
  out.predicted_bytes = memory.total() + sum_levels(trained.own_micro_batches(train.accumulate).count()) *
                                             static_cast<double>(model.parameters().grad.bytes());
  if (ctx.device.is_cuda()) {
    out.memory_bytes = static_cast<double>(some::cuda::memory_peak(ctx.device));
  } else {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    out.memory_bytes = static_cast<double>(usage.ru_maxrss) * 1024.0;
  }
  return out;
}

}  // namespace some
