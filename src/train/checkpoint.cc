#include "train/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.h"
#include "base/safetensors.h"

namespace some::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* format_version = "some-checkpoint-1";

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
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (const auto step = step_of(entry.path().filename().string(), ending))
      out.push_back({*step, entry.path().string()});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return out;
}

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

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

void load_into(const SafetensorsFile& file, const std::string& name, Tensor& target) {
  const Tensor stored = file.load(name);
  if (stored.shape() != target.shape()) {
    bad_input("{}: {} has shape {} where this configuration needs {}; the checkpoint belongs to another recipe",
              file.path(), name, stored.shape().text(), target.shape().text());
  }
  target.copy_from(stored.dtype() == target.dtype() ? stored : stored.to(target.dtype()));
}

}  // namespace

std::vector<CheckpointName> list_checkpoints(const std::string& run_folder) {
  return list_steps((fs::path(run_folder) / "checkpoints").string(), "");
}

CheckpointName find_checkpoint(const std::string& run_folder, const std::string& which) {
  if (!fs::is_directory(run_folder)) bad_input("there is no run folder {}", run_folder);
  const auto all = list_checkpoints(run_folder);
  if (all.empty())
    bad_input("{} holds no checkpoint yet: train it first with 'some train --resume {}'", run_folder, run_folder);
  if (which == "latest") return all.back();
  std::int64_t wanted = -1;
  if (which == "best") {
    wanted = best_step(run_folder);
    if (wanted < 0)
      bad_input("{}: no evaluation has marked a best checkpoint yet; use --checkpoint latest", run_folder);
  } else if (const auto step = step_of(which.rfind("step-", 0) == 0 ? which : "step-" + which, "")) {
    wanted = *step;
  } else {
    bad_input("--checkpoint {}: say latest, best or a step number", which);
  }
  for (const auto& one : all) {
    if (one.step == wanted) return one;
  }
  std::string steps;
  for (const auto& one : all) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", one.step);
  bad_input("{} has no checkpoint of step {}; there are: {}", run_folder, wanted, steps);
}

void save_checkpoint(const std::string& run_folder, std::int64_t step, Model& model, const nlohmann::json& state) {
  const fs::path parent = fs::path(run_folder) / "checkpoints";
  fs::create_directories(parent);
  const fs::path final_name = parent / fmt::format("step-{}", step);
  const fs::path temporary = parent / fmt::format("step-{}.writing", step);
  fs::remove_all(temporary);
  fs::create_directories(temporary);

  ParameterStore& store = model.parameters();
  NamedTensors tensors, moments;
  for (const auto& entry : store.entries()) {
    tensors.emplace_back(entry.name, store.view(store.value, entry));
    if (store.first) {
      moments.emplace_back("first." + entry.name, store.view(store.first, entry));
      moments.emplace_back("second." + entry.name, store.view(store.second, entry));
    }
  }
  nlohmann::json key_steps = nlohmann::json::array();
  for (Layer& layer : model.layers()) key_steps.push_back(layer.keys.steps);
  for (auto& tensor : key_tensors(model)) tensors.push_back(std::move(tensor));
  write_safetensors((temporary / "model.safetensors").string(), tensors,
                    {{"format", format_version},
                     {"step", std::to_string(step)},
                     {"library_hash", hex(model.library_hash())},
                     {"key_steps", key_steps.dump()}});
  write_safetensors((temporary / "optimizer.safetensors").string(), moments,
                    {{"format", format_version}, {"step", std::to_string(step)}, {"state", state.dump()}});
  flush_folder(temporary.string());
  // A checkpoint of the same step (the run was resumed from an earlier one) is replaced: moved aside first, since a
  // folder with content cannot be renamed over.
  const fs::path old = parent / fmt::format("step-{}.old", step);
  fs::remove_all(old);
  if (fs::exists(final_name)) fs::rename(final_name, old);
  fs::rename(temporary, final_name);
  flush_folder(parent.string());
  fs::remove_all(old);
}

nlohmann::json load_checkpoint(const CheckpointName& checkpoint, Model& model, bool with_optimizer) {
  const fs::path folder = checkpoint.folder;
  const SafetensorsFile file = SafetensorsFile::open((folder / "model.safetensors").string());
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != format_version) {
    bad_input("{} is not a checkpoint of this program (format '{}' expected)", file.path(), format_version);
  }
  if (const std::string stored = file.metadata().at("library_hash"); stored != hex(model.library_hash())) {
    bad_input(
        "{}: the expert library rebuilt from the recipe has hash {} but the checkpoint was trained with {}; [some] "
        "init, library_seed or a size was changed",
        file.path(), hex(model.library_hash()), stored);
  }
  ParameterStore& store = model.parameters();
  for (const auto& entry : store.entries()) {
    Tensor target = store.view(store.value, entry);
    load_into(file, entry.name, target);
  }
  for (auto& [name, tensor] : key_tensors(model)) load_into(file, name, tensor);
  const auto key_steps = nlohmann::json::parse(file.metadata().at("key_steps"));
  for (Layer& layer : model.layers())
    layer.keys.steps = key_steps.at(static_cast<std::size_t>(layer.index)).get<std::int64_t>();
  store.refresh_compute(model.context());
  if (!with_optimizer) return nullptr;

  const SafetensorsFile optimizer = SafetensorsFile::open((folder / "optimizer.safetensors").string());
  if (!store.entries().empty() && !optimizer.has("first." + store.entries().front().name)) {
    bad_input(
        "{} holds no optimizer state: this model was saved by 'some adapt', not by training, so training cannot go on "
        "from it",
        folder.string());
  }
  for (const auto& entry : store.entries()) {
    Tensor first = store.view(store.first, entry), second = store.view(store.second, entry);
    load_into(optimizer, "first." + entry.name, first);
    load_into(optimizer, "second." + entry.name, second);
  }
  return nlohmann::json::parse(optimizer.metadata().at("state"));
}

void remove_checkpoint(const CheckpointName& checkpoint) { fs::remove_all(checkpoint.folder); }

void mark_best(const std::string& run_folder, std::int64_t step) {
  write_file_atomic((fs::path(run_folder) / "best").string(), std::to_string(step) + "\n");
}

std::int64_t best_step(const std::string& run_folder) {
  const fs::path path = fs::path(run_folder) / "best";
  if (!fs::exists(path)) return -1;
  const std::string text = read_file(path.string());
  const auto step = step_of("step-" + text.substr(0, text.find('\n')), "");
  return step ? *step : -1;
}

void save_key_positions(const std::string& run_folder, std::int64_t step, Model& model) {
  if (model.config().ffn != Ffn::some) return;
  const fs::path folder = fs::path(run_folder) / "keys";
  fs::create_directories(folder);
  NamedTensors tensors;
  for (auto& [name, tensor] : key_tensors(model)) {
    if (name.ends_with(".keys") || name.ends_with(".usage")) tensors.emplace_back(name, tensor);
  }
  write_safetensors((folder / fmt::format("step-{}.safetensors", step)).string(), tensors,
                    {{"step", std::to_string(step)}});
}

std::vector<CheckpointName> list_key_positions(const std::string& run_folder) {
  return list_steps((fs::path(run_folder) / "keys").string(), ".safetensors");
}

}  // namespace some::train
