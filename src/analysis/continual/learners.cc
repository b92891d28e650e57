#include "analysis/continual/learners.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "inference/engine.h"
#include "memory/reader.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/optimizer.h"
#include "runs/checkpoint.h"
#include "runs/identity.h"
#include "train/remember.h"

namespace some {
namespace {

// A copy of the run's model that gradients change.
class GradientLearner : public ContinualLearner {
 public:
  GradientLearner(OpenedRun& run, ContinualMethod method, const ContinualSettings& settings, std::int64_t window)
      : run_(run),
        method_(method),
        settings_(settings),
        window_(window),
        border_(document_end(run)),
        model_(run.ctx, run.recipe.model, true),
        schedule_(*run.ctx),
        norm_(Tensor::zeros({1}, run.ctx->master, run.ctx->device)) {
    load_checkpoint(find_checkpoint(run.paths.folder, fmt::to_string(run.step)), identity_of(run.recipe, run.tokenizer),
                    model_, false);
    rate_ = settings.rate > 0 ? settings.rate : 0.3 * run.recipe.train.lr;
    if (method == ContinualMethod::lora) {
      rate_ = settings.lora_rate > 0 ? settings.lora_rate : 2 * rate_;
      declare_lora();
    }
  }

  void begin(const TokenStream& text) override { keep(text); }

  void learn(const std::string& name, const TokenStream& text) override {
    if (method_ == ContinualMethod::lora) begin_lora();
    ParameterStore& p = model_.parameters();
    for (Tensor* moments : {&p.first, &p.second}) fill(*run_.ctx, 0, *moments);
    if (method_ == ContinualMethod::dynamic) {
      if (!dynamic_steps_) dynamic_steps_ = 0;
      for_each_window(text, [&](const Batch& batch) { step(batch, settings_.dynamic_rate, ++*dynamic_steps_); });
      return;
    }
    const std::int64_t length = run_.recipe.model.seq_len,
                       sequences = std::max<std::int64_t>(1, (std::ssize(text) - 1) / length);
    const std::int64_t per_epoch = std::max<std::int64_t>(1, sequences / settings_.batch);
    const std::int64_t steps = per_epoch * settings_.epochs;
    const RandomStream order = random_stream(settings_.seed, "continual.order." + name),
                       replay = random_stream(settings_.seed, "continual.replay." + name);
    std::vector<std::int64_t> shuffled;
    std::uint64_t drawn = 0, replayed = 0;
    for (std::int64_t s = 0; s < steps; ++s) {
      Batch batch;
      for (int b = 0; b < settings_.batch; ++b) {
        if (shuffled.empty()) {
          for (std::int64_t i = 0; i < sequences; ++i) shuffled.push_back(i);
          for (std::size_t i = shuffled.size(); i > 1; --i)
            std::swap(shuffled[i - 1], shuffled[order.below(drawn++, static_cast<std::uint32_t>(i))]);
        }
        if (!earlier_.empty() && static_cast<double>(replay.uniform(replayed++)) < replay_share()) {
          add_sequence(batch, earlier_[replay.below(replayed++, static_cast<std::uint32_t>(earlier_.size()))], 0);
        } else {
          add_sequence(batch, text, shuffled.back());
          shuffled.pop_back();
        }
      }
      step(batch, scheduled(s, steps), s + 1);
    }
    keep(text);
  }

  double loss(const TokenStream& text) override {
    if (method_ != ContinualMethod::dynamic) return loss_on(model_, nullptr, text, window_, border_);
    // It learns while it is tested, and then returns to what it was.
    ParameterStore& p = model_.parameters();
    const Tensor value = p.value.clone(), first = p.first.clone(), second = p.second.clone();
    std::int64_t steps = dynamic_steps_.value_or(0);
    double sum = 0;
    for_each_window(text, [&](const Batch& batch) { sum += step(batch, settings_.dynamic_rate, ++steps); });
    p.value.copy_from(value);
    p.first.copy_from(first);
    p.second.copy_from(second);
    p.refresh_compute(*run_.ctx);
    return sum / static_cast<double>(std::ssize(text) - 1);
  }

  double kept_bytes() const override {
    double tokens = 0;
    for (const TokenStream& one : earlier_) tokens += static_cast<double>(one.size());
    double bytes = tokens * (run_.recipe.model.vocab <= 65536 ? 2 : 4);
    const auto number = static_cast<double>(model_.parameters().value.bytes()) /
                        static_cast<double>(model_.parameters().value.elements());
    if (fisher_) bytes += 2 * number * static_cast<double>(model_.parameters().parameters());
    if (dynamic_steps_) bytes += 2 * number * static_cast<double>(model_.parameters().parameters());
    return bytes;
  }

 private:
  // A matrix of a block and the offsets of its additions in the flat buffers: W = W0 + A B^T, A: [out, rank], B: [in,
  // rank].
  struct Lora {
    ParameterStore::Entry entry;
    std::int64_t a = 0, b = 0;
  };

  double replay_share() const {
    switch (method_) {
      case ContinualMethod::replay_1: return 0.01;
      case ContinualMethod::replay_10:
      case ContinualMethod::replay_self: return 0.1;
      default: return 0;
    }
  }

  // Warm-up over a tenth of the steps, then a cosine to a tenth of the rate.
  double scheduled(std::int64_t step, std::int64_t steps) const {
    const double warm = std::max(1.0, 0.1 * static_cast<double>(steps)), at = static_cast<double>(step) + 1;
    if (at < warm) return rate_ * at / warm;
    const double left = (at - warm) / std::max(1.0, static_cast<double>(steps) - warm);
    return rate_ * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi * std::min(1.0, left))));
  }

  // Adds sequence number `number` of a text, of at most seq_len tokens.
  void add_sequence(Batch& batch, const TokenStream& text, std::int64_t number) const {
    const std::int64_t first = number * run_.recipe.model.seq_len + 1;
    add_window(batch, text, first, std::min(std::ssize(text), first + run_.recipe.model.seq_len), 0, border_);
  }

  template <typename Work>
  void for_each_window(const TokenStream& text, const Work& work) const {
    for (std::int64_t first = 1; first < std::ssize(text); first += window_) {
      Batch batch;
      add_window(batch, text, first, std::min(std::ssize(text), first + window_), run_.recipe.model.seq_len - window_,
                 border_);
      work(batch);
    }
  }

  // Forward and backward pass; returns the sum of the losses.
  double pass(const Batch& batch) {
    Context& ctx = *run_.ctx;
    ctx.arena->reset();
    model_.clear_gradients(ctx);
    StepSettings settings;
    settings.temperature = run_.recipe.model.eval_temp;
    settings.loss_scale = 1.0 / static_cast<double>(batch.predicted);
    const Tensor nll = model_.train_pass(schedule_, upload(ctx, batch), settings);
    Tensor sum = ctx.scratch({1}, ctx.master);
    sum_all(ctx, nll, sum);
    return read_vector(sum)[0];
  }

  double step(const Batch& batch, double rate, std::int64_t number) {
    Context& ctx = *run_.ctx;
    ParameterStore& p = model_.parameters();
    const double sum = pass(batch);
    if (!std::isfinite(sum))
      failed(Code::loss_not_finite, "{}: the loss is {} after {} steps; lower the learning rate", name_of(method_), sum,
             number);
    AdamSettings adam;
    adam.lr = rate;
    adam.beta1 = run_.recipe.train.beta1;
    adam.beta2 = run_.recipe.train.beta2;
    adam.eps = run_.recipe.train.eps;
    adam.weight_decay = 0;
    adam.clip = 1;
    adam.step = number;
    if (method_ == ContinualMethod::lora) {
      step_lora(adam);
      return sum;
    }
    if (fisher_) {
      // Gradient of ewc/2 * sum of fisher * (value - anchor)^2.
      difference_.copy_from(p.value);
      add_into(ctx, anchor_, difference_);
      multiply_add(ctx, fisher_, difference_, p.grad);
    }
    gradient_norm(ctx, p.grad, norm_);
    adamw_step(ctx, p.value, p.compute, p.grad, p.first, p.second, norm_, adam);
    return sum;
  }

  // Keeps the sequences or statistics of a learned text (or of the training text) that the method needs later.
  void keep(const TokenStream& text) {
    const std::int64_t length = run_.recipe.model.seq_len;
    if (method_ == ContinualMethod::replay_1 || method_ == ContinualMethod::replay_10) {
      for (std::int64_t first = 0; first + 1 < std::ssize(text); first += length)
        earlier_.emplace_back(text.begin() + first, text.begin() + std::min(std::ssize(text), first + length + 1));
    } else if (method_ == ContinualMethod::replay_self) {
      write(text);
    } else if (method_ == ContinualMethod::ewc) {
      consolidate(text);
    }
  }

  // Texts of the model, from first tokens of the text.
  void write(const TokenStream& text) {
    constexpr std::int64_t texts = 64;
    EngineOptions how;
    how.max_sequences = texts;
    Engine engine(model_, run_.tokenizer, how);
    const RandomStream stream = random_stream(settings_.seed, "continual.write");
    std::vector<TokenStream> written(texts);
    for (std::int64_t i = 0; i < texts; ++i) {
      SequenceRequest request;
      const auto at = stream.below(written_++, static_cast<std::uint32_t>(text.size()));
      request.prompt = {text[at]};
      request.sampling.temperature = 1;
      request.sampling.seed = settings_.seed;
      request.sampling.stream = static_cast<std::size_t>(written_);
      request.max_tokens = run_.recipe.model.seq_len - 1;
      request.stop_at_eos = false;
      request.slide = false;
      TokenStream& own = written[static_cast<std::size_t>(i)];
      own = request.prompt;
      request.on_finish = [&own](const FinishedSequence& end) {
        if (end.error) std::rethrow_exception(end.error);
        own.insert(own.end(), end.tokens.begin(), end.tokens.end());
      };
      engine.add(std::move(request));
    }
    engine.run();
    for (TokenStream& one : written) {
      if (one.size() > 1) earlier_.push_back(std::move(one));
    }
  }

  // Adds the text's Fisher information, of the mean token: T times the squared gradient of a sequence's mean loss.
  void consolidate(const TokenStream& text) {
    Context& ctx = *run_.ctx;
    ParameterStore& p = model_.parameters();
    const std::int64_t length = run_.recipe.model.seq_len,
                       sequences = std::max<std::int64_t>(1, (std::ssize(text) - 1) / length),
                       used = std::min(sequences, settings_.fisher_sequences);
    if (!fisher_) {
      fisher_ = Tensor::zeros(p.value.shape(), ctx.master, ctx.device);
      difference_ = p.value.clone();
    }
    Tensor squares = Tensor::zeros(p.value.shape(), ctx.master, ctx.device);
    for (std::int64_t i = 0; i < used; ++i) {
      Batch batch;
      add_sequence(batch, text, i * sequences / used);
      pass(batch);
      multiply_add(ctx, p.grad, p.grad, squares);
    }
    const std::vector<double> added = read_vector(squares);
    std::vector<double> all = read_vector(fisher_), anchor = read_vector(p.value);
    const double scale = settings_.ewc * static_cast<double>(length) / static_cast<double>(used);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] += scale * added[i];
      anchor[i] = -anchor[i];
    }
    const auto upload_doubles = [&](const std::vector<double>& values) {
      Tensor host = Tensor::empty(p.value.shape(), DType::f64);
      std::copy(values.begin(), values.end(), host.data<double>());
      return host.to(ctx.master).to(ctx.device);
    };
    fisher_ = upload_doubles(all);
    anchor_ = upload_doubles(anchor);
  }

  void declare_lora() {
    std::int64_t size = 0;
    for (const ParameterStore::Entry& entry : model_.parameters().entries()) {
      if (entry.layer < 0 || entry.shape.rank() != 2) continue;
      Lora one{entry, size, 0};
      one.b = size += entry.shape[0] * settings_.rank;
      size += entry.shape[1] * settings_.rank;
      loras_.push_back(std::move(one));
    }
    const Context& ctx = *run_.ctx;
    for (Tensor* flat : {&lora_value_, &lora_grad_, &lora_first_, &lora_second_})
      *flat = Tensor::zeros({size}, ctx.master, ctx.device);
  }

  Tensor a_of(const Tensor& flat, const Lora& one) const {
    return flat.view(one.a, {one.entry.shape[0], settings_.rank});
  }
  Tensor b_of(const Tensor& flat, const Lora& one) const {
    return flat.view(one.b, {one.entry.shape[1], settings_.rank});
  }
  Tensor as_compute(const Tensor& master) const {
    Context& ctx = *run_.ctx;
    if (ctx.compute == ctx.master) return master;
    Tensor out = ctx.scratch(master.shape());
    convert(ctx, master, out);
    return out;
  }

  // New additions: A = 0 and random B, to the parameters as they are.
  void begin_lora() {
    Context& ctx = *run_.ctx;
    Tensor host = Tensor::zeros(lora_value_.shape(), DType::f64);
    for (std::size_t m = 0; m < loras_.size(); ++m) {
      const Lora& one = loras_[m];
      const RandomStream stream = random_stream(settings_.seed, fmt::format("continual.lora.{}.{}", lora_texts_, m));
      const std::int64_t inputs = one.entry.shape[1];
      for (std::int64_t i = 0; i < inputs * settings_.rank; ++i)
        host.data<double>()[one.b + i] =
            static_cast<double>(stream.normal(static_cast<std::uint64_t>(i))) / std::sqrt(static_cast<double>(inputs));
    }
    lora_value_.copy_from(host.to(ctx.master));
    for (Tensor* moments : {&lora_first_, &lora_second_}) fill(ctx, 0, *moments);
    lora_base_ = model_.parameters().value.clone();
    ++lora_texts_;
  }

  void step_lora(const AdamSettings& adam) {
    Context& ctx = *run_.ctx;
    ParameterStore& p = model_.parameters();
    fill(ctx, 0, lora_grad_);
    for (const Lora& one : loras_) {
      const ArenaScope scope(*ctx.arena);
      const Tensor gradient = as_compute(p.view(p.grad, one.entry)), a = as_compute(a_of(lora_value_, one));
      const Param b{b_of(lora_value_, one), as_compute(b_of(lora_value_, one)), b_of(lora_grad_, one)};
      Tensor of_a = ctx.scratch(a.shape()), a_grad = a_of(lora_grad_, one);
      linear_backward(ctx, gradient, a, b, {}, &of_a, Into::overwrite);
      convert(ctx, of_a, a_grad);
    }
    gradient_norm(ctx, lora_grad_, norm_);
    adamw_step(ctx, lora_value_, lora_value_, lora_grad_, lora_first_, lora_second_, norm_, adam);
    for (const Lora& one : loras_) {
      const ArenaScope scope(*ctx.arena);
      const Param b{b_of(lora_value_, one), as_compute(b_of(lora_value_, one)), {}};
      Tensor product = ctx.scratch(one.entry.shape), value = p.view(p.value, one.entry);
      linear_forward(ctx, as_compute(a_of(lora_value_, one)), b, {}, product);
      value.copy_from(p.view(lora_base_, one.entry));
      add_into(ctx, product, value);
    }
    p.refresh_compute(ctx);
  }

  OpenedRun& run_;
  ContinualMethod method_;
  ContinualSettings settings_;
  std::int64_t window_;
  std::optional<std::int32_t> border_;
  mutable Model model_;  // parameters() has no const version
  Schedule schedule_;
  Tensor norm_;
  double rate_ = 0;
  std::vector<TokenStream> earlier_;  // sequences that are replayed
  std::uint64_t written_ = 0;
  Tensor fisher_, anchor_, difference_;  // of EWC: weight * information, the negative old parameters, scratch
  std::optional<std::int64_t> dynamic_steps_;
  std::vector<Lora> loras_;
  Tensor lora_value_, lora_grad_, lora_first_, lora_second_, lora_base_;
  int lora_texts_ = 0;
};

class MemoryLearner : public ContinualLearner {
 public:
  MemoryLearner(OpenedRun& run, MemorySettings settings, std::int64_t window) : run_(run), window_(window) {
    settings.window = window;
    memory_ = new_memory(run, settings);
  }
  void begin(const TokenStream&) override {}
  void learn(const std::string& name, const TokenStream& text) override {
    learn_text(*run_.model, memory_, name, text, std::ssize(text), {});
  }
  double loss(const TokenStream& text) override {
    return loss_on(*run_.model, &memory_, text, window_, memory_.settings.border);
  }
  double kept_bytes() const override {
    MemorySettings bounded = memory_.settings;
    bounded.slots = slots_in_use(memory_);
    bounded.contexts = 0;
    double bytes = store_bytes(bounded, memory_.store.keys.dim(1), size_of(memory_.store.keys.dtype()));
    if (memory_.settings.contexts > 0)
      bytes += static_cast<double>(memory_.contexts.size()) * ContextStore::bytes_per_entry();
    return bytes;
  }

 private:
  OpenedRun& run_;
  std::int64_t window_;
  Memory memory_;
};

class CountingLearner : public ContinualLearner {
 public:
  CountingLearner(const OpenedRun& run, const MemorySettings& settings, std::int64_t window)
      : border_(settings.border), store_(of_contexts(settings, window), run.recipe.model.vocab) {}
  void begin(const TokenStream& text) override { learn("", text); }
  void learn(const std::string&, const TokenStream& text) override {
    for (std::int64_t t = 1; t < std::ssize(text); ++t)
      store_.learn(before(text, t), text[static_cast<std::size_t>(t)], -1);
  }
  double loss(const TokenStream& text) override {
    std::vector<double> estimates(static_cast<std::size_t>(store_.settings().orders()));
    double sum = 0;
    for (std::int64_t t = 1; t < std::ssize(text); ++t) {
      store_.estimate(store_.find(before(text, t)), text[static_cast<std::size_t>(t)], estimates);
      sum -= std::log(estimates.back());
    }
    return sum / static_cast<double>(std::ssize(text) - 1);
  }
  double kept_bytes() const override { return static_cast<double>(store_.size()) * ContextStore::bytes_per_entry(); }

 private:
  static ContextSettings of_contexts(MemorySettings settings, std::int64_t window) {
    settings.window = window;
    return settings.of_contexts();
  }
  std::span<const std::int32_t> before(const TokenStream& text, std::int64_t t) const {
    return context_before(text, t, store_.settings().longest, border_);
  }
  std::optional<std::int32_t> border_;
  ContextStore store_;
};

}  // namespace

const char* name_of(ContinualMethod method) {
  switch (method) {
    case ContinualMethod::finetune: return "fine-tuning";
    case ContinualMethod::ewc: return "EWC";
    case ContinualMethod::replay_1: return "replay 1%";
    case ContinualMethod::replay_10: return "replay 10%";
    case ContinualMethod::replay_self: return "replay of own text";
    case ContinualMethod::lora: return "LoRA per text";
    case ContinualMethod::dynamic: return "dynamic evaluation";
    case ContinualMethod::slots: return "memory, slots";
    case ContinualMethod::contexts: return "memory, slots and contexts";
    case ContinualMethod::counter: return "counter";
  }
  return "";
}

const char* what_is_kept(ContinualMethod method) {
  switch (method) {
    case ContinualMethod::finetune:
    case ContinualMethod::lora: return "nothing";
    case ContinualMethod::ewc: return "Fisher information, old parameters";
    case ContinualMethod::replay_1:
    case ContinualMethod::replay_10: return "all earlier texts";
    case ContinualMethod::replay_self: return "text of the model";
    case ContinualMethod::dynamic: return "moments of the optimizer";
    case ContinualMethod::slots: return "slots";
    case ContinualMethod::contexts: return "slots, counts";
    case ContinualMethod::counter: return "counts";
  }
  return "";
}

double loss_on(Model& model, Memory* memory, const TokenStream& text, std::int64_t window,
               std::optional<std::int32_t> border) {
  double sum = 0;
  MemoryReader(model, memory, false, border)
      .read(text, {0, 1, std::ssize(text), window, windows_at_once(model.context(), model.config())},
            [&](std::span<const WindowResult> windows, auto) {
              for (const WindowResult& one : windows) sum += one.mixed;
              return true;
            });
  return sum / static_cast<double>(std::ssize(text) - 1);
}

std::unique_ptr<ContinualLearner> make_learner(OpenedRun& run, ContinualMethod method,
                                               const ContinualSettings& settings, std::int64_t window) {
  switch (method) {
    case ContinualMethod::slots: {
      MemorySettings without = settings.memory;
      without.contexts = 0;
      return std::make_unique<MemoryLearner>(run, without, window);
    }
    case ContinualMethod::contexts: return std::make_unique<MemoryLearner>(run, settings.memory, window);
    case ContinualMethod::counter: return std::make_unique<CountingLearner>(run, settings.memory, window);
    default: return std::make_unique<GradientLearner>(run, method, settings, window);
  }
}

}  // namespace some
