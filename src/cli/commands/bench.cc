#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "cli/model_flags.h"
#include "cli/places.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "memory/settings.h"
#include "runtime/machine.h"
#include "train/rank_checks.h"
#include "verify/benchmark.h"
#include "verify/benchmark_comm.h"
#include "verify/benchmark_generate.h"

namespace some {
namespace {

struct BenchFlags {
  std::string recipe, device, precision;
  std::vector<std::string> overrides;
  BenchOptions bench;
  int threads = -1;
  bool no_overlap = false, json = false;
};

void run_train(const BenchFlags& options) {
  std::vector<std::string> changes = options.overrides;
  if (!options.device.empty()) changes.push_back("train.device=" + options.device);
  if (!options.precision.empty()) changes.push_back("train.precision=" + options.precision);
  if (options.threads >= 0) changes.push_back(fmt::format("train.threads={}", options.threads));
  const Recipe recipe = load_named_recipe(options.recipe, changes);
  BenchOptions bench = options.bench;
  bench.group = join_ranks();
  bench.overlap = !options.no_overlap;
  check_rank_shares(bench.group.size(), recipe);
  const BenchResult r = bench_train(recipe, bench, [&](int done, int all) {
    if (!is_terminal() || !bench.group.root()) return;
    redraw(done < all ? fmt::format("step {}/{}", done, all) : std::string());
  });
  if (!bench.group.root()) return;
  if (options.json) {
    print_json({{"recipe", options.recipe},
                {"device", r.device},
                {"matrix_library", r.matrix_library},
                {"step_ms", r.step_seconds * 1e3},
                {"step_spread", r.step_spread},
                {"slots_per_s", r.slots_per_second},
                {"real_tokens_per_s", r.real_tokens_per_second},
                {"real_share", r.real_share},
                {"operations_per_step", r.operations_per_step},
                {"tflops", r.operations_per_second / 1e12},
                {"matrix_tflops", r.matrix_rate / 1e12},
                {"share_of_matrix_rate", r.share_of_matrix_rate},
                {"memory_bytes", r.memory_bytes},
                {"predicted_bytes", r.predicted_bytes},
                {"ranks", r.ranks},
                {"hidden_communication_share", r.hidden_communication_share},
                {"communication_share", r.communication_share},
                {"sent_bytes_per_step", r.sent_bytes_per_step},
                {"messages_per_step", r.messages_per_step},
                {"way", r.way}});
    return;
  }
  fmt::print("{} on {} ({})\n", options.recipe, r.device, r.matrix_library);
  fmt::print("step            {:.2f} ms (spread {:.0f}%)\n", r.step_seconds * 1e3, r.step_spread * 100);
  fmt::print("tokens/s        {}   ({:.0f}% of the positions are not padding)\n",
             format_count(r.real_tokens_per_second), r.real_share * 100);
  fmt::print("padded slots/s  {}\n", format_count(r.slots_per_second));
  fmt::print("FLOPs           {:.3f} TFLOP per step, {:.3f} TFLOP/s\n", r.operations_per_step / 1e12,
             r.operations_per_second / 1e12);
  fmt::print("utilization     {:.1f}% of this machine's GEMM rate of {:.3f} TFLOP/s{}, measured in this run\n",
             r.share_of_matrix_rate * 100, r.matrix_rate / 1e12, r.ranks > 1 ? " (per rank)" : "");
  if (r.ranks > 1 || r.sent_bytes_per_step > 0)
    fmt::print(
        "ranks           {}; this rank sent {} per step: {:.1f}% of the time overlapped with computation, {:.1f}% "
        "not\n",
        r.ranks, format_bytes(r.sent_bytes_per_step), r.hidden_communication_share * 100, r.communication_share * 100);
  fmt::print("memory          {} (predicted {})\n", format_bytes(r.memory_bytes), format_bytes(r.predicted_bytes));
}

struct RanksFlags {
  std::string device = "auto";
  std::int64_t max_bytes = 64 << 20;
  int repeats = 10;
  bool json = false;
};

void run_ranks(const RanksFlags& options) {
  const Group& group = join_ranks();
  if (group.alone() && std::getenv("SOME_RANKS_THROUGH") == nullptr)
    bad_input(Code::ranks_unsupported,
              "'some bench ranks' requires several ranks (mpirun -n 2 some bench ranks), or SOME_RANKS_THROUGH=host or "
              "nccl to measure one rank sending to itself");
  const CommBenchmark r = bench_comm(group, device_choice(options.device), options.max_bytes, options.repeats);
  if (!group.root()) return;
  if (options.json) {
    const auto list = [](const std::vector<CommBenchmark::Measure>& measures) {
      nlohmann::json out = nlohmann::json::array();
      for (const auto& one : measures) out.push_back({{"bytes", one.bytes}, {"seconds", one.seconds}});
      return out;
    };
    print_json({{"ranks", r.ranks},
                {"device", r.device},
                {"way", r.way},
                {"sums", list(r.sums)},
                {"exchanges", list(r.exchanges)},
                {"message_us", r.message_seconds * 1e6},
                {"bytes_per_s", r.bytes_per_second}});
    return;
  }
  fmt::print("{} rank{} on {}, {}\n", r.ranks, r.ranks == 1 ? "" : "s", r.device, r.way);
  fmt::print("{:>10}  {:>22}  {:>22}\n", "tensor", "all-reduce", "all-to-all");
  for (std::size_t i = 0; i < r.sums.size(); ++i) {
    const auto rate = [&](const CommBenchmark::Measure& one, double sent) {
      return fmt::format("{:.1f} us {:>7.2f} GB/s", one.seconds * 1e6, sent / one.seconds / 1e9);
    };
    const auto bytes = static_cast<double>(r.sums[i].bytes);
    fmt::print("{:>10}  {:>22}  {:>22}\n", format_bytes(bytes), rate(r.sums[i], all_reduce_bytes_sent(r.ranks, bytes)),
               rate(r.exchanges[i], bytes * std::max(0, r.ranks - 1) / r.ranks));
  }
  fmt::print("fitted to the all-reduce: {:.1f} us per message and {:.2f} GB/s\n", r.message_seconds * 1e6,
             r.bytes_per_second / 1e9);
}

struct BenchGenerateFlags {
  std::string recipe, device, precision, sequences = "1,16";
  std::vector<std::string> overrides;
  GenerateBenchOptions bench;
  int threads = -1;
  bool json = false;
};

std::vector<std::int64_t> parse_counts(const std::string& text) {
  std::vector<std::int64_t> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error != std::errc() || rest != text.data() + end || value < 1)
      bad_input(Code::option_invalid, "{} {}: must be numbers >= 1, separated by commas", "--sequences", text);
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

void run_generate(BenchGenerateFlags options) {
  std::vector<std::string> changes = options.overrides;
  if (!options.device.empty()) changes.push_back("train.device=" + options.device);
  if (!options.precision.empty()) changes.push_back("train.precision=" + options.precision);
  if (options.threads >= 0) changes.push_back(fmt::format("train.threads={}", options.threads));
  options.bench.sequences = parse_counts(options.sequences);
  check(options.bench.sampling);
  const Recipe recipe = load_named_recipe(options.recipe, changes);
  const GenerateBenchResult r = bench_generate(recipe, options.bench, [](const std::string& text) {
    if (is_terminal()) redraw(text);
  });
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& one : r.measured)
      list.push_back({{"sequences", one.sequences},
                      {"tokens_per_s", one.tokens_per_second},
                      {"slowest", one.slowest},
                      {"fastest", one.fastest},
                      {"step_us", one.step_seconds * 1e6},
                      {"first_token_ms", one.first_seconds * 1e3},
                      {"cache_bytes", one.cache_bytes}});
    print_json({{"recipe", options.recipe},
                {"device", r.device},
                {"matrix_library", r.matrix_library},
                {"parameters", r.parameters},
                {"prompt", options.bench.prompt},
                {"tokens", options.bench.tokens},
                {"half_weights", options.bench.half_weights},
                {"measured", list}});
    return;
  }
  fmt::print("{} on {} ({}), {} parameters, {} new tokens after a prompt of {}\n", options.recipe, r.device,
             r.matrix_library, format_count(r.parameters), options.bench.tokens, options.bench.prompt);
  fmt::print("{:>9}  {:>10}  {:>21}  {:>10}  {:>11}\n", "sequences", "tokens/s", "minimum to maximum", "step",
             "first token");
  for (const auto& one : r.measured)
    fmt::print("{:>9}  {:>10.0f}  {:>21}  {:>10}  {:>11}\n", one.sequences, one.tokens_per_second,
               fmt::format("{:.0f} to {:.0f}", one.slowest, one.fastest),
               fmt::format("{:.0f} us", one.step_seconds * 1e6), fmt::format("{:.1f} ms", one.first_seconds * 1e3));
}

void set_up_bench_generate(Command& command) {
  auto options = std::make_shared<BenchGenerateFlags>();
  command.add_option("RECIPE", options->recipe, "recipe, by name or file")->required();
  command.add_option("OVERRIDES", options->overrides, "key=value");
  command.add_option("--sequences", options->sequences, "numbers of concurrent sequences, separated by commas")
      ->capture_default_str();
  command.add_option("--prompt", options->bench.prompt, "tokens per prompt")->range(1, 1 << 20)->capture_default_str();
  command.add_option("--tokens", options->bench.tokens, "new tokens per sequence")
      ->range(2, 1 << 20)
      ->capture_default_str();
  command.add_option("--repeats", options->bench.repeats, "number of repeats; the median is reported")
      ->range(1, 1000)
      ->capture_default_str();
  command.add_option("--temperature", options->bench.sampling.temperature, "sampling temperature; 0 = greedy")
      ->capture_default_str();
  command.add_option("--top-k", options->bench.sampling.top_k, "number of most likely tokens to sample from; 0 = all")
      ->capture_default_str();
  command
      .add_option("--top-p", options->bench.sampling.top_p,
                  "total probability of the most likely tokens to sample from")
      ->capture_default_str();
  command
      .add_option("--memory", options->bench.memory_slots,
                  "slots of a memory that is mixed into every prediction; 0 = none")
      ->range(0, max_slots)
      ->capture_default_str();
  command.add_option("--contexts", options->bench.contexts, "tokens of the longest context of that memory; 0 = none")
      ->range(0, longest_context)
      ->capture_default_str();
  command.add_flag("--report", options->bench.report, "report the experts and memory slots of every token");
  command.add_flag("--half-weights", options->bench.half_weights, "on the CPU: weights in bf16");
  command.add_option("--device", options->device, "auto, cpu, cuda or cuda:N");
  command.add_option("--precision", options->precision, "fp32 or bf16");
  command.add_option("--threads", options->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command.add_json(options->json);
  command.callback([options] { run_generate(*options); });
}

void set_up_bench_train(Command& command) {
  auto options = std::make_shared<BenchFlags>();
  command.add_option("RECIPE", options->recipe, "recipe, by name or file")->required();
  command.add_option("OVERRIDES", options->overrides, "key=value");
  command.add_option("--steps", options->bench.steps, "timed steps")->range(1, 1000000)->capture_default_str();
  command.add_option("--warmup", options->bench.warmup, "warm-up steps before the timed ones")
      ->range(0, 1000000)
      ->capture_default_str();
  command.add_option("--device", options->device, "auto, cpu, cuda or cuda:N");
  command.add_option("--precision", options->precision, "fp32 or bf16");
  command.add_option("--threads", options->threads, "CPU threads; 0 = all available")->range(0, max_threads);
  command.add_flag("--no-overlap", options->no_overlap,
                   "on several ranks, send all gradients at the end, not layer by layer during the backward pass");
  command.add_json(options->json);
  command.callback([options] { run_train(*options); });
}

void set_up_bench_ranks(Command& command) {
  auto ranks = std::make_shared<RanksFlags>();
  command.add_option("--device", ranks->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--most-bytes", ranks->max_bytes, "bytes of the largest tensor")
      ->range(1 << 14, std::int64_t{1} << 34)
      ->capture_default_str();
  command.add_option("--repeats", ranks->repeats, "number of repeats; the fastest is reported")
      ->range(1, 1000000)
      ->capture_default_str();
  command.add_json(ranks->json);
  command.callback([ranks] { run_ranks(*ranks); });
}

}  // namespace

CommandSpec bench_command() {
  return {
      .name = "bench",
      .group = CommandGroup::experiments,
      .summary = "measure speed",
      .works_on_ranks = true,
      .subcommands = {{
                          .name = "train",
                          .summary =
                              "time training steps of a recipe, in tokens/s and relative to the machine's GEMM rate",
                          .examples = {{"bench train tiny --steps 5", ""}},
                          .json = "the result",
                          .set_up = set_up_bench_train,
                      },
                      {
                          .name = "generate",
                          .summary = "time generation with the sizes of a recipe, for several batch sizes",
                          .examples = {{"bench generate tiny --sequences 1,16 --tokens 32", ""}},
                          .json = "the result",
                          .set_up = set_up_bench_generate,
                      },
                      {
                          .name = "ranks",
                          .summary = "measure messages between ranks: latency and bandwidth",
                          .json = "the result",
                          .set_up = set_up_bench_ranks,
                      }},
  };
}

}  // namespace some
