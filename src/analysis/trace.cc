#include "analysis/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "memory/predictions.h"

namespace some {

std::vector<int> parse_layers(const std::string& list, const ModelConfig& config) {
  std::vector<int> out;
  if (list.empty()) {
    out.resize(static_cast<std::size_t>(config.layers));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    int layer = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
    if (error != std::errc() || rest != part.data() + part.size())
      bad_input(Code::option_invalid, "{} {}: must be comma-separated layer numbers, such as 0,2", "--layers", list);
    require_layer(config, layer);
    if (std::find(out.begin(), out.end(), layer) == out.end()) out.push_back(layer);
    begin = end + 1;
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

constexpr std::int64_t words_around = 24;

// Computes the memory's contributions token by token, because the mixture weights change along the text.
std::vector<MemoryContribution> remembered_in(OpenedRun& run, const std::vector<TokenId>& ids, Memory& memory) {
  Context& ctx = *run.ctx;
  std::vector<MemoryContribution> out(ids.size());
  if (ids.size() < 2) return out;
  Batch batch;
  batch.offsets = {0, static_cast<std::int32_t>(ids.size()) - 1};
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    batch.tokens.push_back(ids[t]);
    batch.targets.push_back(ids[t + 1]);
    batch.positions.push_back(static_cast<std::int32_t>(t));
  }
  batch.longest = batch.predicted = batch.size();
  ctx.arena->reset();
  const DeviceBatch device_batch = upload(ctx, batch);
  Tensor states, nll = run.model->evaluate(device_batch, {}, {.states = &states});
  MixtureState mixture(memory);
  const SourceFinder finder(memory, run.tokenizer);
  MemoryPredictions answers(ctx, memory, {});
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    const auto row = static_cast<std::int64_t>(t);
    const Tensor state = states.rows(row, row + 1);
    answers.set_weights({mixture_weights(memory.settings, read_vector(mixture.shares))});
    answers.set_mixtures({mixture.contexts});
    Tensor loss = nll.rows(row, row + 1);
    mix_losses(ctx, memory, batch, row, state, device_batch.targets.rows(row, row + 1), mixture, loss);
    const double mixed = read_vector(loss)[0];
    // Uses the weights of `answers` before this token was learned.
    const MemoryShares shares =
        answers.shares_of(state, 0, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(t) + 1}, ids[t + 1],
                          std::exp(-mixed), max_sources);
    static_cast<TokenSources&>(out[t + 1]) = finder.find(shares, max_sources, words_around);
    out[t + 1].nll = mixed;
  }
  return out;
}

}  // namespace

Trace trace_tokens(OpenedRun& run, const std::vector<TokenId>& ids, const std::vector<int>& layers, Memory* memory) {
  require_experts(run, "trace");
  const TokenId unknown = run.tokenizer.unk_id();
  if (std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return id == unknown; })) {
    bad_input(Code::prompt_empty,
              "the text has no token in the vocabulary of the run; use at least one word similar to its training text");
  }
  if (static_cast<std::int64_t>(ids.size()) > run.recipe.model.seq_len) {
    bad_input(Code::text_too_long, "the text has {} tokens, but the model reads at most model.seq_len = {}; shorten it",
              ids.size(), run.recipe.model.seq_len);
  }
  for (const int layer : layers) require_layer(run.recipe.model, layer);
  Trace trace;
  trace.layers = layers;
  CollectOptions options;
  options.pad_id = run.tokenizer.pad_id();
  options.eos_id = run.tokenizer.eos_id();
  trace.choices = collect_assignments(*run.model, make_token_data({ids}), options);
  for (const TokenId id : ids) trace.words.emplace_back(run.tokenizer.token_bytes(id));
  trace.text = run.tokenizer.decode(ids);
  if (memory != nullptr) trace.remembered = remembered_in(run, ids, *memory);
  return trace;
}

Trace trace_text(OpenedRun& run, const std::string& text, const std::vector<int>& layers, Memory* memory) {
  const std::vector<TokenId> ids = run.tokenizer.encode(text);
  if (ids.empty()) bad_input(Code::prompt_empty, "the text \"{}\" has no tokens; use at least one word", text);
  return trace_tokens(run, ids, layers, memory);
}

nlohmann::json to_json(const Trace& trace, const OpenedRun& run) {
  const Choices& choices = trace.choices;
  const auto k = static_cast<std::size_t>(choices.top_k);
  nlohmann::json tokens = nlohmann::json::array();
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    nlohmann::json one{{"position", t}, {"id", choices.tokens[t]}, {"text", trace.words[t]}};
    // The surprise of a token is the loss of predicting it from the previous tokens; the first is not predicted.
    if (t > 0 && choices.next[t - 1] >= 0) one["loss"] = choices.nll[t - 1];
    if (t > 0 && t < trace.remembered.size()) {
      const MemoryContribution& memory = trace.remembered[t];
      one["memory"] = to_json(static_cast<const TokenSources&>(memory));
      one["memory"]["loss"] = memory.nll;
    }
    if (trace.prompt_tokens > 0) one["generated"] = t >= trace.prompt_tokens;
    nlohmann::json layers = nlohmann::json::array();
    for (const int layer : trace.layers) {
      const LayerAssignments& firings = choices.layers[static_cast<std::size_t>(layer)];
      nlohmann::json experts = nlohmann::json::array(), gates = nlohmann::json::array();
      for (std::size_t i = t * k; i < (t + 1) * k; ++i) {
        experts.push_back(firings.experts[i]);
        gates.push_back(std::round(firings.gates[i] * 1e6) / 1e6);
      }
      layers.push_back({{"layer", layer}, {"experts", experts}, {"gates", gates}});
    }
    one["layers"] = layers;
    tokens.push_back(std::move(one));
  }
  nlohmann::json out{{"run", run.paths.folder},
                     {"step", run.step},
                     {"text", trace.text},
                     {"top_k", choices.top_k},
                     {"experts", run.recipe.model.experts},
                     {"layers", trace.layers},
                     {"middle_layer", run.recipe.model.layers / 2},
                     {"tokens", tokens}};
  out["tokens_hold_blanks"] =
      run.tokenizer.kind() == TokenizerKind::bytelevel;  // otherwise spaces between tokens are lost
  if (trace.prompt_tokens > 0) {
    out["prompt_tokens"] = trace.prompt_tokens;
    out["stopped"] = trace.stopped;
  }
  return out;
}

}  // namespace some
