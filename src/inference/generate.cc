#include "inference/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/random.h"
#include "core/system_memory.h"
#include "evaluation/evaluate.h"
#include "inference/key_learner.h"
#include "memory/predictions.h"

namespace some {

namespace {

// The rows of one forward pass, and the rows whose logits are needed.
struct DecodeRows {
  std::vector<std::int32_t> tokens, slots, positions, wanted;
};

// Runs the model on rows of tokens; with key learning, in pieces that end at each update. The key/value cache stays
// valid across updates: it holds attention keys and values, which do not depend on expert keys.
class Reader {
 public:
  Reader(Model& model, const GenerateOptions& options, std::size_t slots)
      : model_(model),
        options_(options),
        cache_(model.make_cache(static_cast<std::int64_t>(slots), model.config().seq_len)) {
    settings_.temperature = options.router_temperature;
    observe_ = options.look;
    if (options.adapt_window <= 0) return;
    if (model.config().ffn != Ffn::some)
      bad_input(Code::experts_missing,
                "{}: this run has no experts (model.ffn is not \"some\"), so there are no keys that could learn",
                "--adapt");
    learner_.emplace(model, choose_rules(model.config().keys, options.adapt_rules), options.adapt_step);
    observe_ = [this](int layer, const RouterTape& tape) {
      learner_->observe(layer, tape, nullptr);
      if (options_.look) options_.look(layer, tape);
    };
  }

  // Reads earlier rows again at other positions, to refill the cache. Keys do not learn from them again.
  void refill_cache(const DecodeRows& rows) {
    if (rows.tokens.empty()) return;
    model_.context().arena->reset();
    model_.decode(cache_, rows.tokens, rows.slots, rows.positions, {0}, settings_);
  }

  // Enables the memory. `say` contains its mixture weights for each text.
  void remember(std::vector<std::vector<double>> say) {
    answers_.emplace(model_.context(), *options_.memory, std::move(say));
  }

  std::vector<double> read(const DecodeRows& rows) {
    std::vector<double> logits;
    for (std::size_t first = 0; first < rows.tokens.size();) {
      std::size_t last = rows.tokens.size();
      if (learner_) last = std::min(last, first + static_cast<std::size_t>(options_.adapt_window - seen_));
      const auto part = [&](const std::vector<std::int32_t>& all) {
        return std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                         all.begin() + static_cast<std::ptrdiff_t>(last));
      };
      std::vector<std::int32_t> wanted;
      for (const std::int32_t row : rows.wanted) {
        if (row >= static_cast<std::int32_t>(first) && row < static_cast<std::int32_t>(last))
          wanted.push_back(row - static_cast<std::int32_t>(first));
      }
      const bool silent = wanted.empty();
      if (silent) wanted.push_back(0);
      model_.context().arena->reset();
      Tensor states;
      std::vector<double> some = read_vector(model_.decode(
          cache_, part(rows.tokens), part(rows.slots), part(rows.positions), wanted, settings_, {observe_, &states}));
      if (answers_ && !silent) {
        std::vector<std::int32_t> texts;
        for (const std::int32_t row : wanted) texts.push_back(rows.slots[first + static_cast<std::size_t>(row)]);
        answers_->mix(states, texts, some);
      }
      if (!silent) logits.insert(logits.end(), some.begin(), some.end());
      if (learner_) {
        learner_->pass_done(static_cast<std::int64_t>(last - first));
        seen_ += static_cast<std::int64_t>(last - first);
        if (seen_ == options_.adapt_window) {
          learner_->update();
          seen_ = 0;
        }
      }
      first = last;
    }
    return logits;
  }

 private:
  Model& model_;
  const GenerateOptions& options_;
  Model::Cache cache_;
  StepSettings settings_;
  LayerObserver observe_;
  std::optional<KeyLearner> learner_;
  std::optional<MemoryPredictions> answers_;
  std::int64_t seen_ = 0;  // tokens since the last key update
};

// Returns the beginning of the sequence that predicts token number `length` of a text. A sequence begins every half
// seq_len, and each token is predicted in the first sequence that reaches it (Reading::evaluation in
// data/token_data.h).
std::size_t sequence_begin(std::size_t length, std::int64_t seq_len) {
  const auto whole = static_cast<std::size_t>(seq_len), step = std::max<std::size_t>(1, whole / 2);
  return length < whole ? 0 : ((length - whole) / step + 1) * step;
}

}  // namespace

TokenId sample_token(const double* logits, int vocab, const GenerateOptions& options, double uniform) {
  std::vector<int> order(static_cast<std::size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  if (options.temperature <= 0) return *std::min_element(order.begin(), order.end(), better);
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  if (kept < order.size())
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), better);
  else if (options.top_p < 1)
    std::sort(order.begin(), order.end(), better);
  order.resize(kept);
  const double largest = logits[*std::min_element(order.begin(), order.end(), better)];
  std::vector<double> weight(order.size());
  double sum = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    sum += weight[i] = std::exp((logits[order[i]] - largest) / options.temperature);
  if (options.top_p < 1) {
    // The smallest set of most likely tokens with total probability top_p; at least one token.
    double held = 0;
    std::size_t n = 0;
    while (n < order.size() && (n == 0 || held < options.top_p * sum)) held += weight[n++];
    order.resize(n);
    sum = held;
  }
  double at = uniform * sum;
  for (std::size_t i = 0; i < order.size(); ++i) {
    at -= weight[i];
    if (at < 0) return order[i];
  }
  return order.back();
}

void check(const GenerateOptions& options) {
  if (!(options.temperature >= 0) || options.temperature > 100)
    bad_input(Code::option_invalid, "{} {}: say a number from 0 (always the likeliest token) to 100", "--temperature",
              options.temperature);
  if (!(options.top_p > 0 && options.top_p <= 1))
    bad_input(Code::option_invalid, "{} {}: say a share above 0 and at most 1", "--top-p", options.top_p);
  if (options.top_k < 0) bad_input(Code::option_invalid, "{} {}: say 0 (all tokens) or more", "--top-k", options.top_k);
  if (options.adapt_window < 0)
    bad_input(Code::option_invalid, "{} {}: must be >= 1", "--adapt-window", options.adapt_window);
  if (options.max_tokens < 1)
    bad_input(Code::option_invalid, "{} {}: must be >= 1", "--max-tokens", options.max_tokens);
}

std::vector<Generated> generate(Model& model, const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                const GenerateOptions& options, const TokenObserver& observe) {
  check(options);
  const std::int64_t capacity = model.config().seq_len;
  if (capacity < 2)
    bad_input(Code::model_unsuitable,
              "this run reads one token at a time (model.seq_len = 1): it cannot go on from a text");
  const TokenId eos = tokenizer.eos_id(), pad = tokenizer.pad_id();
  std::vector<Generated> out(prompts.size());
  DecodeRows rows;
  const auto add_row = [](DecodeRows& to, std::size_t slot, TokenId token, std::size_t position) {
    to.tokens.push_back(token);
    to.slots.push_back(static_cast<std::int32_t>(slot));
    to.positions.push_back(static_cast<std::int32_t>(position));
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    out[i].prompt = tokenizer.encode(prompts[i]);
    if (out[i].prompt.empty())
      bad_input(Code::prompt_empty, "prompt {} (\"{}\") gives no token: write at least one word", options.first + i + 1,
                prompts[i]);
    if (!options.slide && static_cast<std::int64_t>(out[i].prompt.size()) >= capacity) {
      bad_input(Code::text_too_long,
                "prompt {} has {} tokens, but the model reads at most model.seq_len = {}: shorten it", i + 1,
                out[i].prompt.size(), capacity);
    }
    const std::size_t begin = sequence_begin(out[i].prompt.size(), capacity);
    for (std::size_t p = begin; p < out[i].prompt.size(); ++p) add_row(rows, i, out[i].prompt[p], p - begin);
    rows.wanted.push_back(static_cast<std::int32_t>(rows.tokens.size()) - 1);
  }
  const ModelConfig& config = model.config();
  const double cache = static_cast<double>(prompts.size()) * static_cast<double>(capacity) * 2 * config.d_model *
                       config.layers * static_cast<double>(size_of(model.context().compute));
  if (model.context().device.is_cpu() && cache > memory_limit())
    bad_input(Code::memory_insufficient,
              "{} texts at once need {:.1f} GiB of memory for what was read, and there are {:.1f}: ask for fewer",
              prompts.size(), cache / (1 << 30), memory_limit() / (1 << 30));
  Reader reader(model, options, prompts.size());
  if (options.memory != nullptr) {
    std::vector<std::vector<double>> say;
    for (const Generated& one : out)
      say.push_back(
          mixture_weights(options.memory->settings, mixture_weights_after(model, *options.memory, one.prompt)));
    reader.remember(std::move(say));
  }
  std::vector<std::size_t> active(prompts.size());
  std::iota(active.begin(), active.end(), std::size_t{0});
  const int vocab = model.config().vocab;
  while (!active.empty()) {
    std::vector<double> logits = reader.read(rows);
    rows = {};
    DecodeRows again;
    std::vector<std::size_t> still;
    for (std::size_t row = 0; row < active.size(); ++row) {
      Generated& one = out[active[row]];
      double* row_logits = logits.data() + row * static_cast<std::size_t>(vocab);
      for (int i = 0; i < vocab; ++i) {
        if (!std::isfinite(row_logits[i]))
          failed(Code::loss_not_finite,
                 "the model's scores are no finite numbers any more: its checkpoint is of no use; look for an earlier "
                 "one with --checkpoint STEP");
      }
      row_logits[pad] = -INFINITY;  // padding is never generated
      if (!options.stop_at_eos) row_logits[eos] = -INFINITY;
      // The n-th token of a prompt always uses the same random number, whatever other prompts are in the batch.
      const RandomStream stream = random_stream(options.seed, fmt::format("generate.{}", options.first + active[row]));
      const TokenId token = sample_token(row_logits, vocab, options, stream.uniform(one.tokens.size()));
      if (token == eos) {
        one.stopped = "eos";
        continue;
      }
      one.tokens.push_back(token);
      if (observe) observe(active[row], token);
      const std::size_t length = one.prompt.size() + one.tokens.size();
      if (static_cast<std::int64_t>(one.tokens.size()) >= options.max_tokens) {
        one.stopped = "length";
      } else if (!options.slide && static_cast<std::int64_t>(length) >= capacity) {
        one.stopped = "context";
      } else {
        still.push_back(active[row]);
        const std::size_t begin = sequence_begin(length, capacity);
        if (begin != sequence_begin(length - 1, capacity)) {
          const auto token_at = [&](std::size_t at) {
            return at < one.prompt.size() ? one.prompt[at] : one.tokens[at - one.prompt.size()];
          };
          for (std::size_t at = begin; at + 1 < length; ++at) add_row(again, active[row], token_at(at), at - begin);
        }
        add_row(rows, active[row], token, length - 1 - begin);
        rows.wanted.push_back(static_cast<std::int32_t>(rows.tokens.size()) - 1);
      }
    }
    active = std::move(still);
    if (options.stop && options.stop()) {
      for (const std::size_t one : active) out[one].stopped = "asked";
      active.clear();
    }
    if (!active.empty()) reader.refill_cache(again);
  }
  for (Generated& one : out) {
    std::vector<TokenId> all = one.prompt;
    all.insert(all.end(), one.tokens.begin(), one.tokens.end());
    one.text = tokenizer.decode(all, {.skip_specials = true});
  }
  return out;
}

}  // namespace some
