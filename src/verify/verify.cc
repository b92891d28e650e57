#include "verify/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>

#include "core/escape.h"
#include "core/files/folders.h"
#include "evaluation/evaluate.h"
#include "kernels/cpu/gemm.h"
#include "keys/measures.h"
#include "memory/store.h"
#include "model/ffn/expert_parallel.h"
#include "model/model.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "recipe/schedule.h"
#include "runtime/row_products.h"
#include "train/step.h"
#include "verify/fixture.h"

namespace some {
namespace fs = std::filesystem;

bool VerifyReport::passed() const {
  return std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.passed(); });
}

const Comparison* VerifyReport::worst() const {
  const auto found = std::max_element(
      comparisons.begin(), comparisons.end(),
      [](const Comparison& a, const Comparison& b) { return a.error / a.tolerance < b.error / b.tolerance; });
  return found == comparisons.end() ? nullptr : &*found;
}

std::vector<std::string> find_fixtures(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    if (!exists_path(path)) bad_input(Code::file_not_found, "file or folder {} not found; check the path", path);
    if (!folder_exists(path)) {
      out.push_back(path);
      continue;
    }
    const std::size_t before = out.size();
    for (const std::string& name : list_folder(path)) {
      if (fs::path(name).extension() == ".safetensors") out.push_back((fs::path(path) / name).string());
    }
    if (out.size() == before) bad_input(Code::folder_empty, "the folder {} contains no .safetensors file", path);
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

// Which results are compared at a precision, and with which tolerance.
struct Tolerances {
  double values = 0;   // forward and backward results
  double stepped = 0;  // parameters after optimizer steps: gradients that are zero except for rounding errors move them
  bool indices = true;  // expert indices must be equal
  bool losses_only = false;
};

Tolerances tolerances(const VerifyOptions& options) {
  Tolerances out;
  if (options.precision == Precision::f64)
    out = {1e-9, 1e-9, true, false};
  else if (options.precision == Precision::bf16)
    out = {2e-2, 2e-2, false, true};
  else if (options.device.kind == DeviceKind::cuda)
    out = {1e-4, 2e-3, true, false};
  else
    out = {2e-5, 2e-3, true, false};
  if (options.tolerance) out.values = out.stepped = *options.tolerance;
  return out;
}

class Case {
 public:
  Case(const std::string& path, const VerifyOptions& options) : fixture_(path), tolerances_(tolerances(options)) {
    report_.file = path;
    report_.kind = fixture_.kind();
    ctx_ = make_context(options.device, options.precision, make_host(options.threads, {}, options.group));
    if (bf16_products(*ctx_) && !cpu::bf16_gemm_reason().empty())
      bad_input(Code::precision_unusable, "precision \"bf16\": {}; use \"fp32\"", cpu::bf16_gemm_reason());
    ctx_->expert_group = options.group;
  }

  VerifyReport run() {
    if (report_.kind == "layer")
      layer();
    else if (report_.kind == "keys")
      keys();
    else if (report_.kind == "model")
      model();
    else if (report_.kind == "memory")
      memory();
    else
      bad_input(Code::fixture_invalid, "{}: unknown kind '{}' (layer, keys, model or memory)", report_.file,
                shortened(report_.kind, 40));
    if (!tolerances_.losses_only && has_tokens()) check_all_were_compared();
    return std::move(report_);
  }

 private:
  bool has_tokens() const { return ctx_->group.root(); }
  template <typename T>
  T get(const char* key, T fallback) const {
    return fixture_.config().get<T>(key, fallback);
  }
  Tensor on_device(const Tensor& host) const { return ctx_->device.is_cpu() ? host : host.to(ctx_->device); }
  Tensor input(const std::string& name, const Shape& shape, DType type) const {
    const Tensor stored = fixture_.numbers(name, shape);
    return on_device(stored.dtype() == type ? stored : stored.to(type));
  }
  // Sets the frozen experts of a layer; trained experts are parameters.
  void set_library(const ModelConfig& config, Layer& layer, const std::string& prefix) const {
    if (layer.experts.w1.value) return;
    if (config.has_transforms()) return layer.experts.make_library(*ctx_, layer.index);
    const std::int64_t d = config.d_model, experts = config.experts, hidden = config.d_ffn;
    const some::Block held = ctx_->mesh().experts(ctx_->group.rank(), config.experts);
    const auto part = [&](const char* name, const Shape& shape) {
      return input(prefix + name, shape, ctx_->compute).rows(held.begin, held.end);
    };
    if (config.use_library) layer.experts.w1.compute = part("experts.w1", {experts, hidden, d});
    if (config.experts_have_output()) layer.experts.w2.compute = part("experts.w2", {experts, d, hidden});
  }
  TrainConfig train_config() const;
  void compare(const std::string& name, const std::vector<double>& got, double tolerance,
               const std::vector<bool>* rows = nullptr);
  void compare(const std::string& name, const Tensor& got, double tolerance, const std::vector<bool>* rows = nullptr) {
    compare(name, read_vector(got), tolerance, rows);
  }
  void compare_indices(const std::string& name, const Tensor& got, const std::vector<bool>* rows);
  void check_all_were_compared() const;
  void layer();
  void keys();
  void model();
  void memory();
  void compare_store(const std::string& name, const Store& store);

  Fixture fixture_;
  Tolerances tolerances_;
  std::shared_ptr<Context> ctx_;
  VerifyReport report_;
};

TrainConfig Case::train_config() const {
  TrainConfig train;
  train.lr = get("lr", train.lr);
  train.schedule = get<std::string>("schedule", "cosine") == "cosine" ? RateSchedule::cosine : RateSchedule::constant;
  const auto betas = get("adam_betas", std::vector<double>{train.beta1, train.beta2});
  if (betas.size() != 2) fixture_.config().wrong("adam_betas", "2 numbers");
  train.beta1 = betas[0];
  train.beta2 = betas[1];
  train.eps = get("adam_eps", train.eps);
  train.weight_decay = get("weight_decay", train.weight_decay);
  train.clip = get("clip", train.clip);
  return train;
}

void Case::compare(const std::string& name, const std::vector<double>& got, double tolerance,
                   const std::vector<bool>* rows) {
  const std::vector<double> expected = fixture_.expected(name, got.size());
  Comparison out{name, 0, tolerance};
  const std::size_t width = rows ? expected.size() / rows->size() : 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (rows && !(*rows)[i / width]) continue;
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(expected[i] - got[i]);
    out.error = std::isnan(difference) ? INFINITY : std::max(out.error, difference);
  }
  if (largest > 0) out.error /= largest;
  report_.comparisons.push_back(out);
}

void Case::compare_indices(const std::string& name, const Tensor& got, const std::vector<bool>* rows) {
  const std::vector<double> actual = read_vector(got), expected = fixture_.expected(name, actual.size());
  Comparison out{name, 0, 0.5};
  const std::size_t width = rows ? expected.size() / rows->size() : 1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (rows && !(*rows)[i / width]) continue;
    out.error += expected[i] != actual[i];
  }
  if (tolerances_.indices) report_.comparisons.push_back(out);
}

// Throws if an expected result was not compared, for example because of a misspelled name: it would count as tested.
void Case::check_all_were_compared() const {
  for (const std::string& name : fixture_.names()) {
    if (name.rfind("expect.", 0) != 0) continue;
    const bool compared =
        std::any_of(report_.comparisons.begin(), report_.comparisons.end(),
                    [&](const Comparison& one) { return one.name == name.substr(std::strlen("expect.")); });
    if (!compared)
      bad_input(Code::fixture_invalid, "{}: {} is not a result of this case of kind {}", report_.file,
                shortened(name, 80), report_.kind);
  }
}

void Case::layer() {
  ModelConfig config = fixture_.checked_model_config();
  if (config.ffn != Ffn::some) fixture_.config().wrong("ffn", "\"some\": a layer of experts");
  if (config.routing == RoutingKind::hash)
    fixture_.config().wrong("routing", "\"keys\": hash routing requires token ids, which only kind model has");
  config.layers = 1;
  config.vocab = config.seq_len = 2;  // the single layer of this case uses neither
  config.keys.frozen_layers.clear();
  config.keys.beta_layer_scale.clear();
  const std::int64_t rows = fixture_.shape("x", 2)[0];
  fixture_.check_proportion(config, rows);
  Context& ctx = *ctx_;
  Model model(ctx_, config, true, false);
  Layer& layer = model.layers()[0];
  layer.keys.keys = input("keys", layer.keys.keys.shape(), ctx.master);
  set_library(config, layer, "");
  // Parameters of the feed-forward block only; attention and norms are not part of the case.
  std::vector<std::string> names;
  Declaration block(model.config());
  layer.ffn->declare(block);
  for (const Parameter& one : block.list) {
    if (!one.trained()) continue;
    model.parameters().set(ctx, "layers.0." + one.name, fixture_.numbers(one.name, one.shape));
    names.push_back(one.name);
  }
  model.parameters().refresh_compute(ctx);
  model.clear_gradients(ctx);
  Pass pass;
  pass.training = true;
  pass.settings.top_k = config.top_k;
  pass.temperature = Tensor::zeros({1}, ctx.master, ctx.device);
  fill(ctx, config.train_temp, pass.temperature);
  pass.auxiliary_loss = model.auxiliary_loss();
  const Tensor x = input("x", {rows, config.d_model}, ctx.compute),
               dy = input("dy", {rows, config.d_model}, ctx.compute);
  if (config.past() > 0) {  // the tokens of a layer case form one sequence
    Tensor positions = Tensor::empty({rows}, DType::i32);
    for (std::int64_t t = 0; t < rows; ++t) positions.data<std::int32_t>()[t] = static_cast<std::int32_t>(t);
    pass.past = Tensor::zeros({rows, config.past() + 1}, DType::i32, ctx.device);
    conv_rows(ctx, on_device(positions), pass.past);
  }
  Tensor dx = Tensor::zeros(x.shape(), ctx.compute, ctx.device);
  if (has_tokens()) {
    const auto tape = layer.ffn->forward(ctx, pass, x, nullptr);
    const RouterTape& routed = *tape->routed();
    compare("queries", routed.query, tolerances_.values);
    compare_indices("indices", routed.routing.indices, nullptr);
    compare("gates", routed.routing.gates, tolerances_.values);
    compare("y", tape->output, tolerances_.values);
    Schedule schedule(ctx);
    layer.ffn->backward(schedule, pass, *tape, {x, dy, dx});
  } else {
    model.serve_pass(true);
  }
  ctx.group.all_reduce_sum(*ctx.threads, std::array{model.parameters().grad});
  if (tolerances_.losses_only) return;
  if (has_tokens()) compare("dx", dx, tolerances_.values);
  for (const std::string& name : names)
    compare("d." + name, model.parameters().param("layers.0." + name).grad, tolerances_.values);
}

void Case::keys() {
  const ModelConfig config = fixture_.model_config();
  const auto steps = fixture_.config().get<int>("steps", 1, 1, 1 << 20);
  const std::int64_t k = config.top_k, experts = config.experts, width = config.query_size();
  fixture_.check_proportion(config, fixture_.shape("step.0.queries", 2)[0]);
  Context& ctx = *ctx_;
  KeyState state = make_key_state(ctx, config.experts, config.query_size(), 0, 0, config.keys);
  state.keys = input("keys", {experts, width}, ctx.master);
  state.usage = input("usage", {experts}, ctx.master);
  state.mass = input("mass", {experts}, ctx.master);
  if (state.average) state.average.copy_from(state.keys);
  KeySums sums = make_key_sums(ctx, config.experts, config.top_k, config.query_size(), needs_of(config.keys));
  for (int i = 0; i < steps; ++i) {
    const std::string step = fmt::format("step.{}.", i);
    const std::int64_t rows = fixture_.shape(step + "queries", 2)[0];
    Routing routing;
    routing.indices = on_device(fixture_.ids(step + "indices", {rows, k}, 0, experts - 1));
    routing.gates = input(step + "gates", {rows, k}, ctx.master);
    const KeyPlan plan = plan_update(config.keys, {config.seed, 0, i, state.steps + 1, scheduled_progress(i, steps)});
    clear_key_sums(ctx, sums);
    add_key_sums(ctx, {input(step + "queries", {rows, width}, ctx.master), routing, plan, 0, &sums}, nullptr);
    update_keys(ctx, state, sums, plan);
    compare(fmt::format("{}.keys", i), state.keys, tolerances_.values);
    compare(fmt::format("{}.usage", i), state.usage, tolerances_.values);
    compare(fmt::format("{}.mass", i), state.mass, tolerances_.values);
    const std::string average = fmt::format("{}.average", i);
    if (state.average && fixture_.has("expect." + average)) compare(average, state.average, tolerances_.values);
    if (state.choice_bias) compare(fmt::format("{}.choice_bias", i), state.choice_bias, tolerances_.values);
  }
  const auto measure = [&](const char* name, double got) {
    const auto expected = fixture_.expected_measure(name);
    if (!expected) return;
    // Both measures are of order 1. Gini is a difference of usages, so that near 0 a relative error would be dominated
    // by rounding.
    report_.comparisons.push_back(
        {name, std::abs(got - *expected) / std::max(1.0, std::abs(*expected)), tolerances_.values});
  };
  measure("gini", gini(read_vector(state.usage)));
  measure("entropy", entropy_bits(read_vector(state.usage)));
}

void Case::model() {
  const ModelConfig config = fixture_.checked_model_config();
  const Shape laid_out = fixture_.shape("tokens", 3);
  const std::int64_t steps = laid_out[0], rows = laid_out[1], length = laid_out[2];
  if (length > config.seq_len)
    bad_input(Code::fixture_invalid, "{}: tokens has rows of {}, more than seq_len = {} in its config", report_.file,
              length, config.seq_len);
  const Tensor all_tokens = fixture_.ids("tokens", laid_out, 0, config.vocab - 1);
  fixture_.check_proportion(config, rows * length);
  Context& ctx = *ctx_;
  Model model(ctx_, config, true, false);
  for (const auto& entry : model.parameters().entries())
    model.parameters().set(ctx, entry.name, fixture_.numbers(entry.name, entry.shape));
  model.parameters().refresh_compute(ctx);
  if (config.ffn == Ffn::some) {
    for (Layer& layer : model.layers()) {
      const std::string prefix = fmt::format("layers.{}.", layer.index);
      layer.keys.keys.copy_from(input(prefix + "keys", layer.keys.keys.shape(), ctx.master));
      if (layer.keys.average) layer.keys.average.copy_from(layer.keys.keys);
      set_library(config, layer, prefix);
    }
  }
  const bool count_pads = get("count_pads", true);
  const int pad = get("pad_id", 1), eos = get("eos_id", 2);
  // The step and its schedules are those of training.
  const auto total = fixture_.config().get<std::int64_t>("steps", steps, 1, 1 << 20);
  const TrainConfig train = train_config();
  TrainStep trained(model, train, count_pads);
  std::vector<double> losses, norms;
  for (std::int64_t step = 0; step < steps; ++step) {
    // The fixture's rows are padded; if padding is not counted, the program omits it entirely (unpadded rows).
    Batch batch;
    std::vector<bool> compared;       // by padded position
    std::vector<std::int64_t> place;  // padded position of each unpadded token
    batch.offsets.push_back(0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto id = [&](std::int64_t p) { return all_tokens.data<std::int32_t>()[(step * rows + r) * length + p]; };
      for (std::int64_t p = 0; p < length; ++p) {
        const bool real = id(p) != pad;
        compared.push_back(count_pads || (real && id(p) != eos));
        if (!real && !count_pads) continue;
        std::int32_t target = p + 1 < length ? id(p + 1) : -1;
        if (!count_pads && (target == pad || id(p) == eos)) target = -1;
        batch.tokens.push_back(id(p));
        batch.targets.push_back(target);
        batch.positions.push_back(static_cast<std::int32_t>(p));
        batch.predicted += target >= 0;
        place.push_back(r * length + p);
      }
      batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
      batch.longest =
          std::max<std::int64_t>(batch.longest, batch.offsets.back() - batch.offsets[batch.offsets.size() - 2]);
    }
    if (batch.predicted == 0)
      bad_input(Code::fixture_invalid, "{}: no token to predict in step {}", report_.file, step);
    // Scatters unpadded rows of results to the padded positions.
    const auto spread = [&](const Tensor& packed) {
      const std::vector<double> values = read_vector(packed);
      const std::size_t width = values.size() / place.size();
      std::vector<double> out(static_cast<std::size_t>(rows * length) * width, 0.0);
      for (std::size_t t = 0; t < place.size(); ++t) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(t * width), width,
                    out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(place[t]) * width));
      }
      return out;
    };
    if (step == 0 && !has_tokens()) {
      ctx.arena->reset();
      model.serve_pass(false);
    } else if (step == 0) {
      std::vector<bool> unlike(compared.size(), false);
      const auto observe = [&](int layer, const RouterTape& tape) {
        const std::string name = fmt::format("layers.{}.indices", layer);
        if (!fixture_.has("expect." + name)) return;
        const std::vector<double> spread_out = spread(tape.routing.indices);
        Tensor indices = Tensor::empty({static_cast<std::int64_t>(spread_out.size())}, DType::f64);
        std::copy(spread_out.begin(), spread_out.end(), indices.data<double>());
        compare_indices(name, indices, &compared);
        if (tolerances_.indices) return;
        // In bf16 a near tie may be resolved differently. Results after a different assignment come from a different
        // function, so the row's logits are not compared from that position on; the number of differing assignments is
        // reported.
        const std::vector<double> expected = fixture_.expected(name, spread_out.size());
        for (std::int64_t r = 0; r < rows; ++r) {
          bool same = true;
          for (std::int64_t p = 0; p < length; ++p) {
            const auto at = static_cast<std::size_t>(r * length + p);
            for (int i = 0; i < config.top_k && compared[at]; ++i) {
              const auto choice = at * static_cast<std::size_t>(config.top_k) + static_cast<std::size_t>(i);
              if (expected[choice] == spread_out[choice]) continue;
              same = false;
              ++report_.choices_differing;
            }
            if (!same) unlike[at] = true;
          }
        }
      };
      ctx.arena->reset();
      const std::vector<double> logits = spread(model.logits(upload(ctx, batch), {}, {observe}));
      std::vector<bool> alike = compared;
      for (std::size_t i = 0; i < alike.size(); ++i) alike[i] = compared[i] && !unlike[i];
      compare("logits", logits, tolerances_.values, &alike);
    }
    const StepPlan plan = plan_step(train, config, step, total, total);
    const std::vector<double> outcome = read_vector(trained.run(std::span(&batch, 1), plan));
    losses.push_back(outcome[0]);
    norms.push_back(outcome[1]);
    const ParameterStore& p = model.parameters();
    if (step == 0 && !tolerances_.losses_only) {
      for (const auto& entry : p.entries()) {
        if (fixture_.has("expect.d." + entry.name))
          compare("d." + entry.name, p.view(p.grad, entry), tolerances_.values);
      }
    }
  }
  compare("loss", losses, tolerances_.values);
  compare("grad_norm", norms, tolerances_.losses_only ? 5 * tolerances_.values : tolerances_.values);
  if (tolerances_.losses_only) return;
  for (const auto& entry : model.parameters().entries()) {
    compare("final." + entry.name, model.parameters().view(model.parameters().value, entry), tolerances_.stepped);
  }
  if (config.ffn != Ffn::some) return;
  for (Layer& layer : model.layers()) {
    const std::string prefix = fmt::format("final.layers.{}.", layer.index);
    compare(prefix + "keys", layer.keys.keys, tolerances_.stepped);
    compare(prefix + "usage", layer.keys.usage, tolerances_.stepped);
    compare(prefix + "mass", layer.keys.mass, tolerances_.stepped);
    if (layer.keys.choice_bias) compare(prefix + "choice_bias", layer.keys.choice_bias, tolerances_.stepped);
  }
}

// Windows are processed as in reading a text: first all positions of a window, then the memory update.
void Case::memory() {
  const JsonObject& config = fixture_.config();
  MemorySettings settings;
  settings.slots = config.need<std::int64_t>("slots", 1, 1 << 24);
  settings.threshold = config.need<double>("threshold");
  settings.beta = {config.need<double>("beta")};
  settings.decay = config.need<double>("decay");
  settings.switch_rate = config.need<double>("switch_rate");
  settings.counts = counts_from(config);
  settings.values = config.get<std::int64_t>("values", 1);
  settings.merge_evicted = config.get<bool>("merge_evicted", false);
  settings.partitions = config.get<std::int64_t>("partitions", 1);
  settings.nprobe = config.get<std::int64_t>("nprobe", settings.nprobe);
  settings.refinement_passes = config.get<std::int64_t>("refinement_passes", 0);
  check_settings(settings, report_.file + ": ");
  std::int64_t windows = 0;
  while (fixture_.has(fmt::format("window.{}.states", windows))) ++windows;
  if (windows == 0)
    bad_input(Code::fixture_invalid, "{}: window.0.states not found; a memory fixture has at least one window",
              report_.file);
  const std::int64_t d = fixture_.shape("mean", 1)[0];
  // rejects sizes that do not match the file
  fixture_.expected("0.keys", static_cast<std::size_t>(settings.slots * d));
  Context& ctx = *ctx_;
  Store store = make_store(ctx, settings, input("mean", {d}, ctx.master));
  std::int64_t read = 0;
  // Rounding a hidden state to bf16 changes its query slightly, and the inverse temperature amplifies the change.
  const double sharpest = *std::max_element(settings.beta.begin(), settings.beta.end());
  const double probabilities = tolerances_.values * (tolerances_.losses_only ? std::max(1.0, sharpest / 40) : 1.0);
  for (std::int64_t i = 0; i < windows; ++i) {
    const std::string window = fmt::format("window.{}.", i);
    const std::int64_t positions = fixture_.shape(window + "states", 2)[0];
    if (positions > max_window)
      bad_input(Code::fixture_invalid, "{}: {}states has {} positions; a window has at most {}", report_.file, window,
                positions, max_window);
    ctx.arena->reset();
    const Tensor targets =
        on_device(fixture_.ids(window + "targets", {positions}, 0, std::numeric_limits<std::int32_t>::max()));
    Tensor queries = ctx.scratch({positions, d}, ctx.master);
    make_queries(ctx, input(window + "states", {positions, d}, ctx.compute), store.mean, queries);
    Matches found = make_matches(ctx, settings, positions);
    search(ctx, store, settings, queries, targets, found);
    compare(fmt::format("{}.memory_probability", i), found.target_prob, probabilities);
    std::vector<double> chance = read_vector(input(window + "model_probability", {positions}, ctx.master));
    Tensor model = Tensor::empty({positions}, DType::f64), places = Tensor::empty({positions}, DType::i64);
    for (std::int64_t t = 0; t < positions; ++t) {
      if (!(chance[static_cast<std::size_t>(t)] > 0 && chance[static_cast<std::size_t>(t)] <= 1))
        bad_input(Code::fixture_invalid, "{}: {}model_probability contains {}; must be numbers above 0 and at most 1",
                  report_.file, window, chance[static_cast<std::size_t>(t)]);
      model.data<double>()[t] = -std::log(chance[static_cast<std::size_t>(t)]);
      places.data<std::int64_t>()[t] = packed({0, read++});
    }
    Tensor nll = on_device(model.to(ctx.master));
    mix(ctx, settings, found, targets, store.shares, nll);
    std::vector<double> mixed = read_vector(nll);
    for (double& one : mixed) one = std::exp(-one);
    compare(fmt::format("{}.probability", i), mixed, probabilities);
    Tensor assignments = ctx.scratch({positions}, DType::i32);
    learn(ctx, settings, queries, targets, on_device(places), found, store, assignments);
    if (tolerances_.losses_only) continue;
    compare_store(std::to_string(i), store);
  }
  for (std::int64_t round = 0; round < settings.refinement_passes; ++round) {
    Store refined = make_store(ctx, settings, store.mean);
    for (std::int64_t i = 0, begin = 0; i < windows; ++i) {
      ctx.arena->reset();
      const std::string window = fmt::format("window.{}.", i);
      const std::int64_t positions = fixture_.shape(window + "states", 2)[0];
      const Tensor targets =
          on_device(fixture_.ids(window + "targets", {positions}, 0, std::numeric_limits<std::int32_t>::max()));
      Tensor queries = ctx.scratch({positions, d}, ctx.master), assigned_slots = ctx.scratch({positions}, DType::i32);
      Tensor places = Tensor::empty({positions}, DType::i64);
      for (std::int64_t t = 0; t < positions; ++t) places.data<std::int64_t>()[t] = packed({0, begin + t});
      begin += positions;
      make_queries(ctx, input(window + "states", {positions, d}, ctx.compute), store.mean, queries);
      assign_slots(ctx, store, settings, queries, targets, assigned_slots);
      insert_assigned(ctx, queries, targets, on_device(places), assigned_slots, refined);
    }
    replace_store(ctx, refined, store);
    if (!tolerances_.losses_only) compare_store(fmt::format("refined.{}", round), store);
  }
}

void Case::compare_store(const std::string& name, const Store& store) {
  compare(name + ".keys", store.keys, tolerances_.values);
  compare_indices(name + ".values", store.values, nullptr);
  if (store.entries() > 1) compare(name + ".entry_counts", store.entry_counts, tolerances_.values);
  compare(name + ".counts", store.counts, tolerances_.values);
  compare(name + ".usage", store.usage, tolerances_.values);
  compare(name + ".shares", store.shares, tolerances_.values);
}

}  // namespace

VerifyReport verify_fixture(const std::string& path, const VerifyOptions& options) { return Case(path, options).run(); }

}  // namespace some
