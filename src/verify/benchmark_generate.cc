#include "verify/benchmark_generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/random.h"
#include "inference/engine.h"
#include "kernels/cpu/gemm.h"
#include "memory/reader.h"
#include "model/model.h"
#include "runs/run.h"
#include "tensor/device.h"
#include "verify/benchmark.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;

// Creates a tokenizer with the model's vocabulary size; its words are never displayed.
Tokenizer synthetic_tokenizer(int vocab) {
  std::string words;
  for (int id = 0; id < vocab; ++id) {
    const std::string word = id == 0 ? "[UNK]" : id == 1 ? "[PAD]" : id == 2 ? "[EOS]" : fmt::format("w{}", id);
    words += fmt::format("{}\"{}\":{}", id > 0 ? "," : "", word, id);
  }
  return Tokenizer::from_json(
      R"({"version":"1.0","pre_tokenizer":{"type":"Whitespace"},"model":{"type":"BPE","unk_token":"[UNK]","vocab":{)" +
      words + R"(},"merges":[]}})");
}

// A memory whose slots are all used, by a text of random tokens.
Memory full_memory(Model& model, const GenerateBenchOptions& options) {
  const RandomStream ids = random_stream(1, "bench.memory");
  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(options.memory_slots, 4096) * 5 / 4; ++i)
    text.push_back(3 + static_cast<std::int32_t>(ids.below(static_cast<std::uint64_t>(i),
                                                           static_cast<std::uint32_t>(model.config().vocab - 3))));
  MemorySettings settings;
  settings.slots = std::max<std::int64_t>(options.memory_slots, 64);
  settings.contexts = options.contexts;
  settings.window = default_window(model.config());
  Memory memory = make_memory(model.context(), settings, model.config(), mean_state(model, text, 1024));
  learn_text(model, memory, "text", text, std::ssize(text), {});
  return memory;
}

struct Round {
  double first = 0, seconds = 0;  // time until the first token of the last sequence, and from there to the end
  double rate = 0;                // tokens per second in that time
};

Round one_round(Engine& engine, Memory* memory, const GenerateBenchOptions& options, std::int64_t sequences,
                std::int64_t tokens, int vocab, std::uint64_t number) {
  const RandomStream ids = random_stream(number, "bench.prompts");
  std::uint64_t drawn = 0;
  std::int64_t started = 0, after = 0;
  Clock::time_point all_started;
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 0; i < sequences; ++i) {
    SequenceRequest request;
    for (std::int64_t p = 0; p < options.prompt; ++p)
      request.prompt.push_back(3 + static_cast<TokenId>(ids.below(drawn++, static_cast<std::uint32_t>(vocab - 3))));
    request.sampling = options.sampling;
    request.sampling.stream = static_cast<std::uint64_t>(i);
    request.max_tokens = tokens;
    request.stop_at_eos = false;
    request.memory = memory;
    request.routes = options.report;
    if (options.report && memory != nullptr) request.sources = 4;
    request.on_token = [&](const TokenEvent& event) {
      if (event.number == 0 && ++started == sequences) all_started = Clock::now();
      if (started == sequences) ++after;
    };
    engine.add(std::move(request));
  }
  engine.run();
  const Clock::time_point end = Clock::now();
  Round out;
  out.first = std::chrono::duration<double>(all_started - start).count();
  out.seconds = std::chrono::duration<double>(end - all_started).count();
  out.rate = static_cast<double>(after - 1) / out.seconds;
  return out;
}

}  // namespace

GenerateBenchResult bench_generate(const Recipe& recipe, const GenerateBenchOptions& options,
                                   const std::function<void(const std::string&)>& progress) {
  if (options.repeats < 1 || options.tokens < 2 || options.prompt < 1)
    bad_input(Code::option_invalid, "{} {}: must be >= 2", "--tokens", options.tokens);
  for (const std::int64_t n : options.sequences) {
    if (n < 1 || n > 1 << 16) bad_input(Code::option_invalid, "{} {}: must be from 1 to 65536", "--sequences", n);
  }
  std::shared_ptr<Context> ctx = recipe_context(recipe.train, make_host(recipe.train.threads));
  Model model(ctx, recipe.model, false);
  const Tokenizer tokenizer = synthetic_tokenizer(recipe.model.vocab);
  std::optional<Memory> memory;
  if (options.memory_slots > 0 || options.contexts > 0) memory = full_memory(model, options);
  GenerateBenchResult out;
  out.device = ctx->device.is_cuda() ? some::cuda::device_name(ctx->device) : "cpu";
  out.matrix_library = ctx->device.is_cuda() ? "cuBLASLt" : cpu::gemm_description();
  out.parameters = static_cast<double>(count_parameters(recipe.model).total);
  for (const std::int64_t n : options.sequences) {
    EngineOptions how;
    how.max_sequences = n;
    how.decoder.half_weights = options.half_weights;
    Engine engine(model, tokenizer, how);
    if (engine.decoder().slots() < n)
      bad_input(Code::memory_insufficient, "{} sequences exceed the available memory: {} fit", n,
                engine.decoder().slots());
    GenerateBenchResult::One one;
    one.sequences = n;
    one.cache_bytes = static_cast<double>(engine.decoder().cache_bytes());
    one_round(engine, memory ? &*memory : nullptr, options, n, std::min<std::int64_t>(options.tokens, 16),
              recipe.model.vocab, 0);  // warm-up
    std::vector<double> rates, seconds, first;
    for (int i = 0; i < options.repeats; ++i) {
      if (progress) progress(fmt::format("{} sequences, repeat {} of {}", n, i + 1, options.repeats));
      const Round round = one_round(engine, memory ? &*memory : nullptr, options, n, options.tokens, recipe.model.vocab,
                                    static_cast<std::uint64_t>(i) + 1);
      rates.push_back(round.rate);
      seconds.push_back(round.seconds / static_cast<double>(options.tokens - 1));
      first.push_back(round.first);
    }
    one.tokens_per_second = median(rates);
    one.slowest = *std::min_element(rates.begin(), rates.end());
    one.fastest = *std::max_element(rates.begin(), rates.end());
    one.step_seconds = median(seconds);
    one.first_seconds = median(first);
    out.measured.push_back(one);
  }
  if (progress) progress("");
  return out;
}

}  // namespace some
