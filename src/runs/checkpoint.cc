#include "runs/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/old_names.h"
#include "tensor/safetensors.h"

namespace some {
namespace fs = std::filesystem;
namespace {

constexpr const char* format_version = "some-checkpoint-1";
constexpr const char *model_file = "model.safetensors", *optimizer_file = "optimizer.safetensors";
constexpr const char* digest_key = "other_file";  // content digest of the checkpoint's other file

std::optional<std::int64_t> step_of(const std::string& name, const std::string& ending) {
  if (name.rfind("step-", 0) != 0 || name.size() < 6 + ending.size() ||
      name.substr(name.size() - ending.size()) != ending)
    return std::nullopt;
  const std::string digits = name.substr(5, name.size() - 5 - ending.size());
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

std::vector<CheckpointName> list_steps(const std::string& folder, const std::string& ending) {
  std::vector<CheckpointName> out;
  if (!exists_path(folder)) return out;
  for (const std::string& name : list_folder(folder)) {
    if (const auto step = step_of(name, ending)) out.push_back({*step, folder + "/" + name});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return out;
}

std::optional<std::int64_t> marked_step(const fs::path& path) {
  if (!exists_path(path.string())) return std::nullopt;
  const std::string text = read_file(path.string());
  return step_of("step-" + text.substr(0, text.find('\n')), "");
}

std::string checkpoint_folder(const std::string& run_folder) { return (fs::path(run_folder) / "checkpoints").string(); }

NamedTensors key_tensors(Model& model) {
  NamedTensors out;
  if (model.config().ffn != Ffn::some) return out;
  for (Layer& layer : model.layers()) {
    const std::string prefix = fmt::format("layers.{}.", layer.index);
    visit_key_state(layer.keys,
                    [&](const std::string& name, Tensor& tensor) { out.emplace_back(prefix + name, tensor); });
    out.emplace_back(prefix + "epoch_counts", model.epoch_counts()[static_cast<std::size_t>(layer.index)]);
  }
  return out;
}

// Removes a folder that could not be completed, such as on a full disk.
class RemovedOnFailure {
 public:
  explicit RemovedOnFailure(std::string path) : path_(std::move(path)) {}
  ~RemovedOnFailure() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  RemovedOnFailure(const RemovedOnFailure&) = delete;
  RemovedOnFailure& operator=(const RemovedOnFailure&) = delete;
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

NamedTensors on_host(NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) {
    if (!tensor.device().is_cpu()) tensor = tensor.to(Device::cpu);
  }
  return tensors;
}

std::string stored_in(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? std::string() : found->second;
}

void check_step(const SafetensorsFile& file, std::int64_t step) {
  if (const std::string stored = stored_in(file, "step"); !stored.empty() && stored != std::to_string(step))
    bad_input(Code::checkpoint_mixed, "{}: was written at step {}, not {}; restore the file of step {}", file.path(),
              shortened(stored, 40), step, step);
}

[[noreturn]] void refuse_run(const SafetensorsFile& file, const std::string& stored, const std::string& run) {
  bad_input(Code::checkpoint_mixed, "{}: belongs to run {}, but config.toml to run {}; restore the file of this run",
            file.path(), stored.empty() ? "(none)" : shortened(stored, 40), run.empty() ? "(none)" : run);
}

// Metadata that files of older versions lack is not compared.
void check_file(const SafetensorsFile& file, const CheckpointName& checkpoint, const RunIdentity& identity) {
  check_step(file, checkpoint.step);
  // Only runs of earlier versions, whose config.toml has no id either, have files without one.
  if (const std::string run = stored_in(file, "run"); run != identity.run) refuse_run(file, run, identity.run);
  if (const std::string tokenizer = stored_in(file, "tokenizer"); !tokenizer.empty() && tokenizer != identity.tokenizer)
    bad_input(Code::tokenizer_mismatch,
              "{}: these weights belong to the tokenizer with hash {}, but tokenizer.json of the run has hash {}; "
              "restore tokenizer.json",
              file.path(), shortened(tokenizer, 40), identity.tokenizer);
}

void check_pair(const SafetensorsFile& file, const SafetensorsFile& other, const RunIdentity& identity) {
  const auto digest = file.metadata().find(digest_key);
  if (digest == file.metadata().end() ? identity.run.empty() : digest->second == other.content_digest()) return;
  bad_input(Code::checkpoint_mixed, "{} and {} were not written together; restore both from the same checkpoint",
            file.path(), other.path());
}

void load_into(const SafetensorsFile& file, const std::string& name, Tensor& target) {
  const Tensor stored = file.load(name);
  if (stored.shape() != target.shape()) {
    bad_input(Code::checkpoint_mismatch,
              "{}: {} has shape {}, but this configuration requires {}; the checkpoint belongs to another recipe",
              file.path(), name, stored.shape().text(), target.shape().text());
  }
  target.copy_from(stored.dtype() == target.dtype() ? stored : stored.to(target.dtype()));
}

std::vector<std::int64_t> key_steps_of(const SafetensorsFile& file, std::size_t layers) {
  const std::string origin = file.path() + ": `key_steps` of its metadata";
  const JsonObject list({{"key_steps", parse_json(file.require_metadata("key_steps"), origin)}}, file.path());
  const auto steps = list.need<std::vector<std::int64_t>>("key_steps");
  if (steps.size() != layers)
    bad_input(Code::checkpoint_mismatch, "{} has {} numbers for {} layers", origin, steps.size(), layers);
  return steps;
}

}  // namespace

std::vector<Tensor> learned_tensors(Model& model) {
  const ParameterStore& store = model.parameters();
  std::vector<Tensor> out{store.value, store.first, store.second};
  for (const auto& [name, tensor] : key_tensors(model)) out.push_back(tensor);
  return out;
}

JsonObject read_state(const SafetensorsFile& optimizer) {
  const std::string origin = optimizer.path() + ": `state` of its metadata";
  return {parse_json(optimizer.require_metadata("state"), origin), origin};
}

std::vector<CheckpointName> list_checkpoints(const std::string& run_folder) {
  return list_steps(checkpoint_folder(run_folder), "");
}

CheckpointName find_checkpoint(const std::string& run_folder, const std::string& which) {
  if (!folder_exists(run_folder))
    bad_input(Code::run_not_found, "run folder {} not found; 'some train RECIPE --out {}' creates one", run_folder,
              run_folder);
  const auto all = list_checkpoints(run_folder);
  if (all.empty())
    bad_input(Code::checkpoint_not_found, "{} has no checkpoint yet; train it with 'some train --resume {}'",
              run_folder, run_folder);
  if (which == "latest") return all.back();
  std::int64_t wanted = -1;
  if (which == "best") {
    const auto best = best_step(run_folder);
    if (!best)
      bad_input(Code::checkpoint_not_found,
                "{}: no evaluation has marked a best checkpoint yet; use --checkpoint latest", run_folder);
    wanted = *best;
  } else if (const auto step = step_of(which.rfind("step-", 0) == 0 ? which : "step-" + which, "")) {
    wanted = *step;
  } else {
    bad_input(Code::option_invalid, "{} {}: must be latest, best or a step number", "--checkpoint", which);
  }
  for (const auto& one : all) {
    if (one.step == wanted) return one;
  }
  std::string steps;
  for (const auto& one : all) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", one.step);
  bad_input(Code::checkpoint_not_found, "{}: checkpoint of step {} not found; available: {}", run_folder, wanted,
            steps);
}

NamedTensors model_tensors(Model& model) {
  const ParameterStore& store = model.parameters();
  NamedTensors tensors;
  for (const auto& entry : store.entries()) tensors.emplace_back(entry.name, store.view(store.value, entry));
  for (auto& tensor : key_tensors(model)) tensors.push_back(std::move(tensor));
  return tensors;
}

void save_checkpoint(const std::string& run_folder, const RunIdentity& identity, std::int64_t step, Model& model,
                     const nlohmann::json& state, const std::string& metrics) {
  const fs::path parent = checkpoint_folder(run_folder);
  make_folder(parent.string());
  const fs::path final_name = parent / fmt::format("step-{}", step);
  const fs::path temporary = parent / fmt::format("step-{}.writing", step);
  remove_tree(temporary.string());
  make_folder(temporary.string());
  RemovedOnFailure leftovers(temporary.string());

  ParameterStore& store = model.parameters();
  NamedTensors moments;
  for (const auto& entry : store.entries()) {
    if (!store.first) continue;
    moments.emplace_back("first." + entry.name, store.view(store.first, entry));
    moments.emplace_back("second." + entry.name, store.view(store.second, entry));
  }
  nlohmann::json key_steps = nlohmann::json::array();
  for (Layer& layer : model.layers()) key_steps.push_back(layer.keys.steps);
  // Copies GPU tensors once, since the digests are needed before the first file is written.
  const NamedTensors weights = on_host(model_tensors(model));
  moments = on_host(std::move(moments));
  std::map<std::string, std::string> own{{"format", format_version}, {"step", std::to_string(step)}};
  own["tokenizer"] = identity.tokenizer;
  if (!identity.run.empty()) own["run"] = identity.run;
  std::map<std::string, std::string> about_model = own, about_optimizer = own;
  about_model[digest_key] = content_digest(moments);
  about_model["library_hash"] = hex(model.library_hash());
  about_model["key_steps"] = key_steps.dump();
  about_optimizer[digest_key] = content_digest(weights);
  about_optimizer["state"] = state.dump();
  write_safetensors((temporary / model_file).string(), weights, about_model);
  write_safetensors((temporary / optimizer_file).string(), moments, about_optimizer);
  if (!metrics.empty()) write_file_atomic((temporary / "metrics.jsonl").string(), metrics);
  // A checkpoint of the same step is replaced: moved aside first, since rename cannot overwrite a non-empty folder.
  const fs::path old = parent / fmt::format("step-{}.old", step);
  const bool replaces = exists_path(final_name.string());
  if (replaces) {
    remove_tree(old.string());
    move_path(final_name.string(), old.string());
  }
  move_path(temporary.string(), final_name.string());
  leftovers.keep();
  flush_folder(parent.string());
  if (replaces) remove_tree(old.string());
}

nlohmann::json read_checkpoint_state(const CheckpointName& checkpoint) {
  const SafetensorsFile file = SafetensorsFile::open(checkpoint.folder + "/optimizer.safetensors");
  return read_state(file).json();
}

std::optional<std::string> read_checkpoint_metrics(const CheckpointName& checkpoint) {
  const std::string path = checkpoint.folder + "/metrics.jsonl";
  if (!exists_path(path)) return std::nullopt;
  return read_file(path);
}

void check_checkpoint(const CheckpointName& checkpoint, const RunIdentity& identity) {
  const fs::path folder = checkpoint.folder;
  const SafetensorsFile model = SafetensorsFile::open((folder / model_file).string());
  check_file(model, checkpoint, identity);
  const std::string path = (folder / optimizer_file).string();
  if (!exists_path(path)) return;  // a model can be used without it
  const SafetensorsFile optimizer = SafetensorsFile::open(path);
  check_file(optimizer, checkpoint, identity);
  check_pair(model, optimizer, identity);
  check_pair(optimizer, model, identity);
}

nlohmann::json load_checkpoint(const CheckpointName& checkpoint, const RunIdentity& identity, Model& model,
                               bool with_optimizer) {
  check_checkpoint(checkpoint, identity);
  const fs::path folder = checkpoint.folder;
  SafetensorsFile file = SafetensorsFile::open((folder / model_file).string());
  file.rename(current_tensor);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != format_version) {
    bad_input(Code::file_wrong_kind, "{} is not a checkpoint of this program (format '{}' expected)", file.path(),
              format_version);
  }
  if (!file.has_checksums()) {
    model.context().log.warning(Code::checksum_missing,
                                "{} was written by an older version without checksums, so damage cannot be detected",
                                file.path());
  }
  if (const std::string& stored = file.require_metadata("library_hash"); stored != hex(model.library_hash())) {
    bad_input(Code::checkpoint_mismatch,
              "{}: the expert library rebuilt from the recipe (some.init = \"{}\") has hash {} but the checkpoint was "
              "trained "
              "with {}; [some] init, its file, library_seed or a size was changed",
              file.path(), shortened(model.config().init, 200), hex(model.library_hash()), shortened(stored, 40));
  }
  ParameterStore& store = model.parameters();
  for (auto& [name, tensor] : model_tensors(model)) load_into(file, name, tensor);
  const auto key_steps = key_steps_of(file, model.layers().size());
  for (Layer& layer : model.layers()) layer.keys.steps = key_steps[static_cast<std::size_t>(layer.index)];
  store.refresh_compute(model.context());
  if (!with_optimizer) return nullptr;

  SafetensorsFile optimizer = SafetensorsFile::open((folder / optimizer_file).string());
  optimizer.rename(current_tensor);
  if (!store.entries().empty() && !optimizer.has("first." + store.entries().front().name)) {
    bad_input(Code::checkpoint_without_optimizer,
              "{} has no optimizer state: this model was saved by 'some adapt' or 'some import', not by training, so "
              "training cannot resume from it; 'some train --from RUN' begins a new run with its weights",
              folder.string());
  }
  for (const auto& entry : store.entries()) {
    Tensor first = store.view(store.first, entry), second = store.view(store.second, entry);
    load_into(optimizer, "first." + entry.name, first);
    load_into(optimizer, "second." + entry.name, second);
  }
  return read_state(optimizer).json();
}

void remove_checkpoint(const CheckpointName& checkpoint) { remove_folder(checkpoint.folder); }

std::string set_checkpoint_aside(const CheckpointName& checkpoint) {
  std::string name = checkpoint.folder + ".aside";
  for (int i = 2; exists_path(name); ++i) name = fmt::format("{}.aside-{}", checkpoint.folder, i);
  move_path(checkpoint.folder, name);
  flush_folder(fs::path(name).parent_path().string());
  return name;
}

void tidy_checkpoints(const std::string& run_folder) {
  const std::string folder = checkpoint_folder(run_folder);
  if (!exists_path(folder)) return;
  for (const std::string& name : list_folder(folder)) {
    const std::string path = folder + "/" + name;
    if (step_of(name, ".writing") || step_of(name, ".removing")) {
      remove_tree(path);
    } else if (const auto step = step_of(name, ".old")) {
      // Its replacement was interrupted. If the replacement is missing, this is still the checkpoint of that step.
      const std::string own_name = fmt::format("{}/step-{}", folder, *step);
      if (exists_path(own_name))
        remove_tree(path);
      else
        move_path(path, own_name);
    }
  }
}

void mark_best(const std::string& run_folder, std::int64_t step) {
  write_file_atomic((fs::path(run_folder) / "best").string(), std::to_string(step) + "\n");
}

void mark_latest(const std::string& run_folder, std::int64_t step) {
  write_file_atomic((fs::path(run_folder) / "latest").string(), std::to_string(step) + "\n");
}

std::optional<std::int64_t> marked_latest(const std::string& run_folder) {
  return marked_step(fs::path(run_folder) / "latest");
}

std::optional<std::int64_t> marked_best(const std::string& run_folder) {
  return marked_step(fs::path(run_folder) / "best");
}

std::optional<std::int64_t> best_step(const std::string& run_folder) {
  if (const auto all = list_checkpoints(run_folder); !all.empty()) {
    try {
      const nlohmann::json state = read_checkpoint_state(all.back());
      if (state.contains("best_step") && state["best_step"].is_number_integer() && state["best_step"] >= 0)
        return state["best_step"].get<std::int64_t>();
    } catch (const Error&) {
      // The state is damaged; the marker may still be right.
    }
  }
  return marked_best(run_folder);
}

void save_key_positions(const std::string& run_folder, const std::string& run, std::int64_t step, Model& model) {
  if (model.config().ffn != Ffn::some) return;
  const fs::path folder = fs::path(run_folder) / "keys";
  make_folder(folder.string());
  NamedTensors tensors;
  for (Layer& layer : model.layers()) {
    visit_key_state(layer.keys, [&](const std::string& name, Tensor& tensor) {
      if (name == "keys" || name == "usage")
        tensors.emplace_back(fmt::format("layers.{}.{}", layer.index, name), tensor);
    });
  }
  std::map<std::string, std::string> metadata{{"step", std::to_string(step)}};
  if (!run.empty()) metadata["run"] = run;
  write_safetensors((folder / fmt::format("step-{}.safetensors", step)).string(), tensors, metadata);
}

SafetensorsFile open_key_positions(const CheckpointName& positions, const std::string& run) {
  SafetensorsFile file = SafetensorsFile::open(positions.folder);
  check_step(file, positions.step);
  // Those of earlier versions, and of a run whose id was not known yet, name no run.
  if (const std::string stored = stored_in(file, "run"); !stored.empty() && stored != run)
    refuse_run(file, stored, run);
  return file;
}

std::vector<Tensor> load_key_positions(const std::string& run_folder, const std::string& run, std::int64_t step,
                                       Model& model) {
  const std::string path = fmt::format("{}/keys/step-{}.safetensors", run_folder, step);
  std::vector<Tensor> out;
  if (model.config().ffn != Ffn::some || !exists_path(path)) return out;
  const SafetensorsFile file = open_key_positions({step, path}, run);
  for (const Layer& layer : model.layers()) {
    Tensor keys = Tensor::empty(layer.keys.keys.shape(), layer.keys.keys.dtype());
    load_into(file, fmt::format("layers.{}.keys", layer.index), keys);
    out.push_back(keys);
  }
  return out;
}

std::vector<CheckpointName> list_key_positions(const std::string& run_folder) {
  return list_steps((fs::path(run_folder) / "keys").string(), ".safetensors");
}

}  // namespace some
