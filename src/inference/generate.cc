#include "inference/generate.h"

#include <algorithm>

#include "core/error.h"
#include "core/system_memory.h"

namespace some {
namespace {

EngineOptions engine_options(const GenerateOptions& options, std::size_t prompts) {
  EngineOptions out;
  const auto count = static_cast<std::int64_t>(prompts);
  out.max_sequences = std::max<std::int64_t>(1, std::min(count, options.max_sequences));
  out.max_waiting = std::max<std::int64_t>(1, count);
  out.decoder.router_temperature = options.router_temperature;
  out.decoder.half_weights = options.half_weights;
  out.decoder.adapt_window = options.adapt_window;
  out.decoder.adapt_rules = options.adapt_rules;
  out.decoder.adapt_step = options.adapt_step;
  if (options.adapt_window > 0) {
    // Key updates depend on the order of the rows, so all texts are read together, each prompt at once.
    out.max_sequences = std::max<std::int64_t>(1, count);
    out.prompt_chunk = 0;
  }
  return out;
}

// The text of prompt and continuation, decoded together.
std::string whole_text(const Tokenizer& tokenizer, const Generated& one, const FinishedSequence& end) {
  std::vector<TokenId> all = one.prompt;
  all.insert(all.end(), one.tokens.begin(), one.tokens.end());
  std::string text = tokenizer.decode(all, {.skip_specials = true});
  if (end.stop.empty()) return text;
  const std::string prompt = tokenizer.decode(one.prompt, {.skip_specials = true});
  return prompt + end.text;
}

}  // namespace

void check(const GenerateOptions& options) {
  check(static_cast<const SamplingOptions&>(options));
  if (options.adapt_window < 0)
    bad_input(Code::option_invalid, "{} {}: must be >= 1", "--adapt-window", options.adapt_window);
  if (options.max_tokens < 1)
    bad_input(Code::option_invalid, "{} {}: must be >= 1", "--max-tokens", options.max_tokens);
  for (const std::string& stop : options.stop_strings) {
    if (stop.empty()) bad_input(Code::option_invalid, "{} \"{}\": must not be empty", "--stop", stop);
  }
}

std::vector<Generated> generate(Model& model, const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                const GenerateOptions& options, const TokenObserver& observe) {
  check(options);
  const std::int64_t capacity = model.config().seq_len;
  std::vector<Generated> out(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    out[i].prompt = tokenizer.encode(prompts[i]);
    if (out[i].prompt.empty())
      bad_input(Code::prompt_empty, "prompt {} (\"{}\") has no tokens; use at least one word", options.first + i + 1,
                prompts[i]);
    if (!options.slide && std::ssize(out[i].prompt) >= capacity)
      bad_input(Code::text_too_long,
                "prompt {} has {} tokens, but the model reads at most model.seq_len = {}; shorten it", i + 1,
                out[i].prompt.size(), capacity);
  }
  if (prompts.empty()) return out;
  const EngineOptions how = engine_options(options, prompts.size());
  const double needed = static_cast<double>(how.max_sequences) * cache_bytes_per_slot(model, capacity);
  if (options.adapt_window > 0 && model.context().device.is_cpu() && needed > memory_limit())
    bad_input(Code::memory_insufficient,
              "the KV cache of {} texts requires {:.1f} GiB of memory, but {:.1f} are available; request fewer at once",
              prompts.size(), needed / (1 << 30), memory_limit() / (1 << 30));
  Engine engine(model, tokenizer, how);
  std::vector<SequenceId> ids;
  std::exception_ptr error;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    SequenceRequest request;
    request.prompt = out[i].prompt;
    request.sampling = options;
    request.sampling.stream = options.first + i;
    request.max_tokens = options.max_tokens;
    request.stop_at_eos = options.stop_at_eos;
    request.stop = options.stop_strings;
    request.slide = options.slide;
    request.memory = options.memory;
    request.sources = options.memory != nullptr ? options.sources : 0;
    request.routes = options.routes;
    if (observe) request.on_token = [&observe, i](const TokenEvent& event) { observe(i, event); };
    request.on_finish = [&, i](const FinishedSequence& end) {
      if (end.error && !error) error = end.error;
      Generated& one = out[i];
      one.tokens = end.tokens;
      one.stopped = end.reason == FinishReason::cancelled ? "asked" : name_of(end.reason);
      one.text = whole_text(tokenizer, one, end);
      one.continuation = end.text;
    };
    ids.push_back(engine.add(std::move(request)));
  }
  bool asked = false;
  while (engine.step()) {
    if (error) std::rethrow_exception(error);
    if (asked || !options.stop || !options.stop()) continue;
    asked = true;
    for (const SequenceId id : ids) engine.cancel(id);
  }
  if (error) std::rethrow_exception(error);
  return out;
}

}  // namespace some
