#include "analysis/adaptation_methods.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "analysis/assignments.h"
#include "core/error.h"
#include "inference/key_learner.h"
#include "memory/contexts.h"
#include "ops/optimizer.h"
#include "runs/checkpoint.h"

namespace some {
namespace {

// Step sizes to try; the one with the lowest loss on the stream is reported.
constexpr double bias_rates[] = {0.003, 0.01, 0.03, 0.1};
constexpr double gradient_rates[] = {1e-4, 3e-4};

// Result of one method: losses per window, where each window is learned from after it was read.
struct Outcome {
  std::vector<WindowResult> windows;
  double original = 0, seconds = 0;
  double loss() const {
    double sum = 0;
    std::int64_t tokens = 0;
    for (const WindowResult& window : windows) {
      sum += window.mixed;
      tokens += window.tokens;
    }
    return tokens > 0 ? sum / static_cast<double>(tokens) : 0;
  }
};

class Ways {
 public:
  Ways(OpenedRun& run, const AdaptMethodsOptions& options) : run_(run), options_(options) {
    if (options.data.empty())
      bad_input(Code::argument_missing, "no text to read; use --data with a file, a folder or builtin:DOMAIN");
    if (options.tokens < 0 || options.tokens == 1)
      bad_input(Code::option_invalid, "{} {}: must be 0 (all) or >= 2", "--tokens", options.tokens);
    stream_ =
        stream_of(load_tokens(*run.ctx, options.data, run.recipe.data, run.tokenizer, 0, run.paths.read_only_cache()),
                  options.tokens);
    if (stream_.size() < 2)
      bad_input(Code::data_nothing_to_predict, "{} is too short: it has no token to predict; use a longer text",
                options.data);
    original_text_ = load_analysis_text(run, "", 0).data;
    original_ = stream_of(original_text_, options.original_tokens);
    window_ = options.choices.window.value_or(default_window(run.recipe.model));
    if (window_ < 1 || window_ > run.recipe.model.seq_len)
      bad_input(Code::option_invalid, "{} {}: must be from 1 to model.seq_len = {}", "--window", window_,
                run.recipe.model.seq_len);
  }

  AdaptMethodsReport compare() {
    const Outcome frozen = alone();
    add(AdaptMethodKind::frozen, frozen);
    if (run_.recipe.model.ffn == Ffn::some) add(AdaptMethodKind::keys, keys());
    add(AdaptMethodKind::plain_cache, memory(AdaptMethodKind::plain_cache));
    add(AdaptMethodKind::memory, memory(AdaptMethodKind::memory));
    if (options_.memory.empty() && options_.choices.contexts.value_or(0) == 0)
      add(AdaptMethodKind::memory_with_contexts, memory(AdaptMethodKind::memory_with_contexts));
    add(AdaptMethodKind::counter, counter());
    add_best(AdaptMethodKind::output_bias, bias());
    add_best(AdaptMethodKind::gradients, gradients());
    for (AdaptMethod& way : report_.ways) {
      way.gain = frozen.loss() - way.loss;
      way.forgotten = way.original - frozen.original;
      way.times_frozen = way.seconds / std::max(1e-9, frozen.seconds);
    }
    report_.run = run_.paths.folder;
    report_.step = run_.step;
    report_.data = options_.data;
    report_.tokens = std::ssize(stream_) - 1;
    report_.window = window_;
    report_.original_tokens = std::ssize(original_) - 1;
    if (run_.tokenizer.kind() == TokenizerKind::bytelevel) {
      const std::string text = run_.tokenizer.decode(std::span(stream_).subspan(1));
      report_.bytes = std::ssize(text);
      report_.compressors = measure_compressors(text);
    }
    return std::move(report_);
  }

 private:
  ReadSpan whole(const std::vector<std::int32_t>& tokens) const {
    return {0, 1, std::ssize(tokens), window_, windows_at_once(*run_.ctx, run_.recipe.model)};
  }
  void tell(const char* what, std::int64_t done) const {
    if (options_.progress) options_.progress(what, done, std::ssize(stream_));
  }
  // Returns the loss of the model in its current state on the original text.
  double original_loss(Model& model) const {
    double sum = 0;
    MemoryReader(model, nullptr, false).read(original_, whole(original_), [&](auto windows, auto) {
      for (const WindowResult& window : windows) sum += window.frozen;
      return true;
    });
    return sum / static_cast<double>(std::max<std::int64_t>(1, std::ssize(original_) - 1));
  }
  template <typename Body>
  static double seconds_of(Body&& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  // Processes the tokens window by window: `read` returns the sum of losses of a batch with one window, then learns
  // from it.
  template <typename Read>
  std::vector<WindowResult> window_by_window(const char* what, const std::vector<std::int32_t>& tokens, Read&& read) {
    std::vector<WindowResult> out;
    for (std::int64_t first = 1; first < std::ssize(tokens); first += window_) {
      const std::int64_t last = std::min(std::ssize(tokens), first + window_);
      Batch batch;
      const std::int64_t row = add_window(batch, tokens, first, last, run_.recipe.model.seq_len - window_);
      WindowResult result;
      result.tokens = last - first;
      result.mixed = read(batch, row);
      if (!std::isfinite(result.mixed)) throw LossNotFinite(result.mixed);
      out.push_back(result);
      tell(what, last);
    }
    return out;
  }

  Outcome alone() {
    Outcome out;
    out.original = original_loss(*run_.model);
    out.seconds = seconds_of([&] {
      MemoryReader(*run_.model, nullptr, false).read(stream_, whole(stream_), [&](auto windows, auto) {
        out.windows.insert(out.windows.end(), windows.begin(), windows.end());
        tell("frozen", std::ssize(out.windows) * window_);
        return true;
      });
    });
    return out;
  }

  Outcome keys() {
    Model& model = *run_.model;
    const KeySnapshot start(model);
    Outcome out;
    {
      KeyLearner learner(model, run_.recipe.model.keys, run_.step);
      out.seconds = seconds_of([&] {
        out.windows = window_by_window("keys", stream_, [&](const Batch& batch, std::int64_t) {
          model.context().arena->reset();
          const DeviceBatch device_batch = upload(model.context(), batch);
          const auto observe = [&](int layer, const RouterTape& tape) {
            learner.observe(layer, tape, &device_batch.targets);
          };
          double sum = 0;
          for (const double nll : read_vector(model.evaluate(device_batch, {}, {observe}))) sum += nll;
          learner.pass_done(batch.size());
          learner.update();
          return sum;
        });
      });
    }
    out.original = original_loss(model);
    start.restore(model);
    return out;
  }

  // Kneser-Ney estimates that start empty, with no limit on the entries. Each token is learned at once.
  Outcome counter() const {
    const ContextSettings settings{.entries = std::max<std::int64_t>(min_context_entries, 16 * std::ssize(stream_))};
    ContextStore store(settings, run_.recipe.model.vocab);
    std::vector<double> estimates(static_cast<std::size_t>(settings.orders()));
    const auto loss_at = [&](std::span<const std::int32_t> tokens, std::int64_t t) {
      const std::int64_t known = std::min<std::int64_t>(t, settings.longest);
      const auto before = tokens.subspan(static_cast<std::size_t>(t - known), static_cast<std::size_t>(known));
      store.estimate(store.find(before), tokens[static_cast<std::size_t>(t)], estimates);
      return std::make_pair(before, -std::log(estimates.back()));
    };
    Outcome out;
    out.seconds = seconds_of([&] {
      for (std::int64_t t = 1; t < std::ssize(stream_); ++t) {
        if ((t - 1) % window_ == 0) out.windows.emplace_back();
        const auto [before, loss] = loss_at(stream_, t);
        out.windows.back().tokens += 1;
        out.windows.back().mixed += loss;
        store.learn(before, stream_[static_cast<std::size_t>(t)], -1);
      }
    });
    for (std::int64_t t = 1; t < std::ssize(original_); ++t) out.original += loss_at(original_, t).second;
    out.original /= static_cast<double>(std::max<std::int64_t>(1, std::ssize(original_) - 1));
    return out;
  }

  // plain_cache: the same store without matching and merging; the oldest slot is evicted first.
  Outcome memory(AdaptMethodKind kind) {
    const bool plain_cache = kind == AdaptMethodKind::plain_cache;
    MemoryOverrides choices = options_.choices;
    choices.window = window_;
    choices.plain_cache = plain_cache;
    if (plain_cache) choices.contexts = 0;
    if (kind == AdaptMethodKind::memory_with_contexts) choices.contexts = ContextSettings{}.longest;
    Memory memory =
        options_.memory.empty() || plain_cache
            ? new_memory(run_, apply_memory_overrides(default_memory_settings(run_), choices, document_end(run_)))
            : open_memory(run_, options_.memory);
    report_.slots = memory.settings.slots;
    Outcome out;
    out.seconds = seconds_of([&] {
      learn_text(*run_.model, memory, "the stream", stream_, std::ssize(stream_), [&](auto windows, auto) {
        out.windows.insert(out.windows.end(), windows.begin(), windows.end());
        tell("memory", std::ssize(out.windows) * window_);
        return true;
      });
    });
    out.original = measure_losses(*run_.model, memory, original_).mixed;
    warn_about_overlap(run_, memory, original_text_, 0, "the run's validation text");
    return out;
  }

  // Computes the logits once for all step sizes; the biases learn on the host. Positions are summed in groups of fixed
  // size, so that the results are identical for any number of threads.
  std::vector<std::pair<double, Outcome>> bias() {
    Model& model = *run_.model;
    Threads& threads = *run_.ctx->threads;
    const auto vocabulary = static_cast<std::size_t>(run_.recipe.model.vocab);
    constexpr std::size_t rates = std::size(bias_rates), group = 16;
    std::vector<std::vector<double>> biases(rates, std::vector<double>(vocabulary, 0.0));
    std::vector<Outcome> outcomes(rates);
    double model_seconds = 0, rates_seconds = 0;
    const auto read = [&](const Batch& batch, std::int64_t row, bool learn, std::vector<double>& sums) {
      std::vector<double> logits;
      model_seconds += seconds_of([&] {
        model.context().arena->reset();
        logits = read_vector(model.logits(upload(model.context(), batch), {}).rows(row, std::ssize(batch.targets)));
      });
      const auto first = static_cast<std::size_t>(row);
      const std::size_t positions = batch.targets.size() - first, groups = (positions + group - 1) / group;
      std::vector<std::vector<double>> steps(rates * groups);
      std::vector<double> losses(rates * groups, 0.0);
      rates_seconds += seconds_of([&] {
        parallel_for(threads, std::ssize(steps), [&](std::int64_t piece) {
          const auto which = static_cast<std::size_t>(piece);
          const std::vector<double>& bias = biases[which / groups];
          const std::size_t begin = which % groups * group;
          std::vector<double> step(vocabulary, 0.0), chance(vocabulary);
          for (std::size_t t = begin; t < std::min(positions, begin + group); ++t) {
            const double* one = logits.data() + t * vocabulary;
            double highest = -INFINITY, sum = 0;
            for (std::size_t v = 0; v < vocabulary; ++v) highest = std::max(highest, one[v] + bias[v]);
            for (std::size_t v = 0; v < vocabulary; ++v) sum += chance[v] = std::exp(one[v] + bias[v] - highest);
            const auto target = static_cast<std::size_t>(batch.targets[first + t]);
            losses[which] -= std::log(std::max(chance[target] / sum, 1e-300));
            if (!learn) continue;
            for (std::size_t v = 0; v < vocabulary; ++v) step[v] -= chance[v] / sum;
            step[target] += 1;
          }
          steps[which] = std::move(step);
        });
        parallel_for(threads, static_cast<std::int64_t>(rates), [&](std::int64_t which) {
          const auto r = static_cast<std::size_t>(which);
          for (std::size_t g = r * groups; g < (r + 1) * groups; ++g) {
            sums[r] += losses[g];
            for (std::size_t v = 0; v < vocabulary && learn; ++v) biases[r][v] += bias_rates[r] * steps[g][v];
          }
        });
      });
    };
    window_by_window("output bias", stream_, [&](const Batch& batch, std::int64_t row) {
      std::vector<double> sums(rates, 0.0);
      read(batch, row, true, sums);
      for (std::size_t r = 0; r < rates; ++r) outcomes[r].windows.push_back({batch.size() - row, 0, sums[r]});
      return sums[0];
    });
    const double seconds = model_seconds + rates_seconds / static_cast<double>(rates);  // per step size
    std::vector<double> original(rates, 0.0);
    window_by_window("output bias", original_, [&](const Batch& batch, std::int64_t row) {
      read(batch, row, false, original);
      return 0.0;
    });
    std::vector<std::pair<double, Outcome>> out;
    for (std::size_t r = 0; r < rates; ++r) {
      outcomes[r].original = original[r] / static_cast<double>(std::max<std::int64_t>(1, std::ssize(original_) - 1));
      outcomes[r].seconds = seconds;
      out.emplace_back(bias_rates[r], std::move(outcomes[r]));
    }
    return out;
  }

  std::vector<std::pair<double, Outcome>> gradients() {
    std::vector<std::pair<double, Outcome>> out;
    Context& ctx = *run_.ctx;
    Schedule schedule(ctx);
    const CheckpointName checkpoint = find_checkpoint(run_.paths.folder, fmt::to_string(run_.step));
    for (const double rate : gradient_rates) {
      Model model(run_.ctx, run_.recipe.model, true);
      load_checkpoint(checkpoint, identity_of(run_.recipe, run_.tokenizer), model, false);
      ParameterStore& p = model.parameters();
      AdamSettings adam;
      adam.lr = rate;
      adam.beta1 = run_.recipe.train.beta1;
      adam.beta2 = run_.recipe.train.beta2;
      adam.eps = run_.recipe.train.eps;
      adam.weight_decay = 0;
      adam.clip = 1;
      adam.step = 0;
      Tensor norm = Tensor::zeros({1}, ctx.master, ctx.device);
      Outcome outcome;
      outcome.seconds = seconds_of([&] {
        outcome.windows = window_by_window("gradients", stream_, [&](const Batch& batch, std::int64_t) {
          ctx.arena->reset();
          model.clear_gradients(ctx);
          StepSettings pass;
          pass.temperature = run_.recipe.model.eval_temp;  // the dtype and order of inference
          pass.loss_scale = 1.0 / static_cast<double>(batch.predicted);
          double sum = 0;
          for (const double nll : read_vector(model.train_pass(schedule, upload(ctx, batch), pass))) sum += nll;
          ++adam.step;
          gradient_norm(ctx, p.grad, norm);
          adamw_step(ctx, p.value, p.compute, p.grad, p.first, p.second, norm, adam);
          return sum;
        });
      });
      outcome.original = original_loss(model);
      out.emplace_back(rate, std::move(outcome));
    }
    return out;
  }

  AdaptMethod& add(AdaptMethodKind kind, const Outcome& outcome) {
    AdaptMethod& way = report_.ways.emplace_back();
    way.kind = kind;
    for (const WindowResult& window : outcome.windows)
      way.windows.push_back(
          {window.tokens, window.mixed / static_cast<double>(std::max<std::int64_t>(1, window.tokens))});
    way.loss = outcome.loss();
    way.original = outcome.original;
    way.seconds = outcome.seconds;
    return way;
  }
  void add_best(AdaptMethodKind kind, const std::vector<std::pair<double, Outcome>>& tried) {
    const auto best = std::min_element(tried.begin(), tried.end(),
                                       [](const auto& a, const auto& b) { return a.second.loss() < b.second.loss(); });
    AdaptMethod& way = add(kind, best->second);
    way.rate = best->first;
    for (const auto& [rate, outcome] : tried) way.tried.push_back({rate, outcome.loss(), outcome.original});
  }

  OpenedRun& run_;
  const AdaptMethodsOptions& options_;
  TokenData original_text_;
  std::vector<std::int32_t> stream_, original_;
  std::int64_t window_ = 0;
  AdaptMethodsReport report_;
};

}  // namespace

const char* name_of(AdaptMethodKind kind) {
  switch (kind) {
    case AdaptMethodKind::frozen: return "frozen";
    case AdaptMethodKind::keys: return "keys";
    case AdaptMethodKind::plain_cache: return "plain cache";
    case AdaptMethodKind::memory: return "memory";
    case AdaptMethodKind::memory_with_contexts: return "memory with contexts";
    case AdaptMethodKind::counter: return "counter";
    case AdaptMethodKind::output_bias: return "output bias";
    case AdaptMethodKind::gradients: return "gradients";
  }
  return "";
}

const char* what_learns(AdaptMethodKind kind) {
  switch (kind) {
    case AdaptMethodKind::frozen: return "nothing";
    case AdaptMethodKind::keys: return "keys of frozen experts, by the published rules";
    case AdaptMethodKind::plain_cache: return "slots with a key and a token, the oldest evicted first (control)";
    case AdaptMethodKind::counter: return "Kneser-Ney counts after 0 to 5 tokens, without the model (baseline)";
    case AdaptMethodKind::memory: return "slots with a key and a token, inserted during use";
    case AdaptMethodKind::memory_with_contexts: return "slots, and counts after 0 to 5 tokens";
    case AdaptMethodKind::output_bias: return "one bias per token on the output, by the delta rule";
    case AdaptMethodKind::gradients: return "every parameter, by AdamW after each window (dynamic evaluation)";
  }
  return "";
}

double AdaptMethodsReport::bits_per_byte(double loss) const {
  return bytes > 0 ? loss * static_cast<double>(tokens) / static_cast<double>(bytes) / std::log(2.0) : 0;
}

AdaptMethodsReport compare_adapt_methods(OpenedRun& run, const AdaptMethodsOptions& options) {
  return Ways(run, options).compare();
}

}  // namespace some
