#include "train/remember.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/system_memory.h"
#include "evaluation/evaluate.h"
#include "memory/memory_file.h"
#include "memory/reader.h"
#include "train/trainer.h"

namespace some {
namespace {

constexpr std::int64_t mean_tokens = 16384;
constexpr double seconds_between_saves = 60;
constexpr const char* training_text = "the training text";  // its name in a memory

double elapsed_seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool refine_all(Model& model, Memory& memory, const ReadingProgress& progress, const std::function<bool()>& stop,
                const std::function<void()>& save) {
  while (refinement_passes(memory) < memory.settings.refinement_passes) {
    const std::string what =
        fmt::format("refinement pass {} of {}", refinement_passes(memory) + 1, memory.settings.refinement_passes);
    const bool whole = refine(model, memory, [&](std::int64_t done, std::int64_t total) {
      if (progress) progress(what, done, total);
      return !(stop && stop());
    });
    if (!whole) return false;
    save();
  }
  return true;
}

std::optional<TokenId> document_end(const OpenedRun& run) {
  return run.recipe.data.eos ? std::optional<TokenId>(run.tokenizer.eos_id()) : std::nullopt;
}

std::vector<std::int32_t> stream_of(const TokenData& data, std::int64_t most) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < data.documents(); ++i) {
    const auto ids = data.ids(i);
    out.insert(out.end(), ids.begin(), ids.end());
    if (most > 0 && std::ssize(out) >= most) break;
  }
  if (most > 0 && std::ssize(out) > most) out.resize(static_cast<std::size_t>(most));
  return out;
}

MemorySettings default_memory_settings(const OpenedRun& run) {
  MemorySettings settings = run.recipe.memory;
  if (settings.slots == 0) settings.slots = MemorySettings{}.slots;
  return settings;
}

Memory new_memory(OpenedRun& run, const MemorySettings& settings) {
  check_settings(settings, "memory.");
  const double bytes = store_bytes(settings, run.recipe.model.d_model, size_of(run.ctx->master));
  if (run.ctx->device.is_cpu() && 2 * bytes > memory_limit())
    bad_input(Code::memory_insufficient,
              "{} slots of {} numbers require {:.1f} GiB of memory, but {:.1f} are available; use fewer slots",
              settings.slots, run.recipe.model.d_model, 2 * bytes / (1 << 30), memory_limit() / (1 << 30));
  DataConfig config = run.recipe.data;
  config.tokenizer = run.paths.tokenizer();
  const TokenData train = load_corpora(*run.ctx, config, run.recipe.seed, run.paths.read_only_cache(), {}).train;
  const std::vector<std::int32_t> tokens = stream_of(train, mean_tokens);
  Memory memory =
      make_memory(*run.ctx, settings, run.recipe.model, mean_state(*run.model, tokens, mean_tokens, settings.border));
  bind_to_model(memory, *run.model, run.tokenizer, run.paths.folder);
  return memory;
}

Memory open_memory(OpenedRun& run, const std::string& path) {
  Memory memory = load_memory(*run.ctx, path);
  require_model(memory, path, *run.model, run.tokenizer);
  if (memory.store.keys.dim(1) != run.recipe.model.d_model)
    bad_input(Code::memory_mismatch, "{}: its keys have {} numbers, but the model's hidden states {}", path,
              memory.store.keys.dim(1), run.recipe.model.d_model);
  const auto known = static_cast<std::int32_t>(run.model->config().vocab);
  if (memory.settings.contexts > 0 && memory.contexts.vocabulary() != known)
    bad_input(Code::memory_mismatch, "{}: its contexts have a vocabulary of {}, but this run one of {}", path,
              memory.contexts.vocabulary(), known);
  const Tensor values = memory.store.values.to(Device::cpu);
  const std::int32_t* value = values.data<std::int32_t>();
  bool all_known = std::all_of(value, value + values.elements(), [&](std::int32_t one) { return one < known; });
  for (const MemoryText& text : memory.texts)
    all_known = all_known && std::all_of(text.tokens.begin(), text.tokens.end(), [&](auto one) { return one < known; });
  if (!all_known)
    bad_input(Code::memory_mismatch, "{}: contains tokens outside this run's vocabulary of {}", path, known);
  return memory;
}

Memory open_memory_for_update(OpenedRun& run, const std::string& path) {
  if (precision_of(path) == Precision::f64 && run.ctx->master != DType::f64)
    bad_input(Code::memory_settings,
              "{} was built in f64, and a lower precision would round its contents; use --precision f64", path);
  return open_memory(run, path);
}

Memory open_or_create_memory(OpenedRun& run, const std::string& path, const MemorySettings& settings_of_new) {
  return exists_path(path) ? open_memory_for_update(run, path) : new_memory(run, settings_of_new);
}

TrainingMemoryReport build_training_memory(OpenedRun& run, const TrainingMemoryOptions& options) {
  const std::string path = options.memory;
  DataConfig config = run.recipe.data;
  config.tokenizer = run.paths.tokenizer();
  const Corpora corpora = load_corpora(*run.ctx, config, run.recipe.seed, run.paths.read_only_cache(), {});
  const std::vector<std::int32_t> tokens = stream_of(corpora.train, options.tokens);
  MemorySettings settings = default_memory_settings(run);
  settings.border = document_end(run);  // as in training and evaluation
  MemorySaver keeper(path);
  Memory memory = options.anew ? new_memory(run, settings) : open_or_create_memory(run, path, settings);
  auto saved = std::chrono::steady_clock::now();
  bool stopped = false;
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t read = learn_text(*run.model, memory, training_text, tokens, std::ssize(tokens), [&](auto, auto) {
    if (options.progress) options.progress(training_text, memory.history.back().reading.end, std::ssize(tokens));
    if (elapsed_seconds(saved) > seconds_between_saves) {
      keeper.save(memory);
      saved = std::chrono::steady_clock::now();
    }
    stopped = options.stop && options.stop();
    return !stopped;
  });
  keeper.save(memory);
  if (!stopped) stopped = !refine_all(*run.model, memory, options.progress, options.stop, [&] { keeper.save(memory); });
  TrainingMemoryReport report;
  report.file = path;
  report.tokens = read;
  report.slots = memory.settings.slots;
  report.slots_in_use = slots_in_use(memory);
  report.seconds = elapsed_seconds(start);
  report.stopped = stopped;
  if (stopped || !options.evaluate) return report;
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  report.loss_without = evaluate(*run.model, corpora.valid, how).loss;
  how.memory = &memory;
  report.loss = evaluate(*run.model, corpora.valid, how).loss;
  return report;
}

nlohmann::json to_json(const TrainingMemoryReport& report) {
  nlohmann::json out{{"file", report.file},       {"tokens", report.tokens},
                     {"slots", report.slots},     {"slots_in_use", report.slots_in_use},
                     {"seconds", report.seconds}, {"stopped", report.stopped}};
  if (report.stopped) return out;
  out["loss_without"] = report.loss_without;
  out["loss"] = report.loss;
  out["gain"] = report.loss_without - report.loss;
  return out;
}

namespace {

// True if the memory of a run belongs to earlier weights, because the run was extended. If it has read texts that
// cannot be read again here, it is renamed.
bool is_outdated(OpenedRun& run, const std::string& path, const Log& log) {
  if (!exists_path(path)) return false;
  const Memory memory = load_memory(*run.ctx, path);
  // Another tokenizer: the file never belonged to this run, which opening it reports.
  if (memory.tokenizer != hex(run.tokenizer.hash()) || memory.model == fingerprint(*run.model, run.tokenizer))
    return false;
  const bool of_training_text =
      memory.run == run.paths.folder && memory.texts.size() == 1 && memory.texts[0].name == training_text;
  if (of_training_text) {
    log.info("{} is rebuilt: it was read with the weights before the run was extended", path);
    return true;
  }
  const std::string stem = path.substr(0, path.rfind('.'));
  std::string kept = fmt::format("{}-before-step-{}.safetensors", stem, run.step);
  for (int i = 2; exists_path(kept); ++i) kept = fmt::format("{}-before-step-{}-{}.safetensors", stem, run.step, i);
  move_path(path, kept);
  flush_folder(run.paths.folder);
  log.info("{} was built with other weights and from other texts; it was renamed to {}, and a new memory is built",
           path, kept);
  return true;
}

}  // namespace

void build_requested_memory(TrainResult& result, const std::string& folder, const std::vector<std::string>& changes,
                            const TrainHooks& hooks, bool evaluate) {
  if (result.stopped_by != 0 || !hooks.group.root()) return;
  const Recipe recipe = read_run_recipe(folder, changes);
  if (recipe.memory.slots == 0) return;
  OpenedRun run = open_run(
      folder, {"latest", recipe.train.device, recipe.train.precision, make_host(recipe.train.threads, hooks.log)});
  TrainingMemoryOptions how;
  how.memory = RunPaths{folder}.memory();
  how.evaluate = evaluate;
  how.anew = is_outdated(run, how.memory, hooks.log);
  how.progress = hooks.remember;
  int signal = 0;
  how.stop = [&] {
    if (signal == 0 && hooks.stop_signal) signal = hooks.stop_signal();
    return signal != 0;
  };
  result.memory = build_training_memory(run, how);
  if (result.memory->stopped) result.stopped_by = signal;
}

}  // namespace some
