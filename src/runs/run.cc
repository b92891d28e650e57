#include "runs/run.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "comm/mesh.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json_lines.h"
#include "evaluation/json.h"
#include "kernels/cpu/gemm.h"
#include "recipe/toml.h"
#include "runs/checkpoint.h"
#include "runs/forecast.h"
#include "runtime/row_products.h"
#include "tensor/device.h"
#include "tensor/safetensors.h"

namespace some {
namespace fs = std::filesystem;
namespace {

// For a run whose checkpoints were removed: the timing line of a session, written after its last checkpoint, records
// whether the run had finished.
bool ended_by_its_timing(const std::string& folder) {
  bool ended = false;
  for_each_json_line(RunPaths{folder}.timing(),
                     [&](const JsonObject& line) { ended = line.json().value("finished", nlohmann::json()) == true; });
  return ended;
}

}  // namespace

std::string RunPaths::cache() const {
  const fs::path parent = fs::path(folder).lexically_normal().parent_path();
  return ((parent.empty() ? fs::path(".") : parent) / "cache").string();
}

void save_run_data(const RunPaths& paths, const RunData& data) {
  nlohmann::json out{{"train", to_json(data.train)}, {"valid", to_json(data.valid)}};
  for (const RunData& stage : data.stages)
    out["stages"].push_back({{"train", to_json(stage.train)}, {"valid", to_json(stage.valid)}});
  write_file_atomic(paths.data(), out.dump(1) + "\n");
}

std::optional<RunData> read_run_data(const RunPaths& paths) {
  if (!exists_path(paths.data())) return std::nullopt;
  const JsonObject all(parse_json(read_file(paths.data()), paths.data()), paths.data());
  const auto use = [](const JsonObject& of, const char* name) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const JsonObject one = of.object(name);
    DataUse out;
    out.documents = one.need<std::int64_t>("documents", 1, most);
    out.tokens = one.need<std::int64_t>("tokens", 1, most);
    out.used = one.need<std::int64_t>("used", 1, out.tokens);
    out.sequences = one.need<std::int64_t>("sequences", 1, most);
    return out;
  };
  RunData data{use(all, "train"), use(all, "valid"), {}};
  if (!all.has("stages")) return data;
  for (const JsonObject& stage : all.objects("stages"))
    data.stages.push_back({use(stage, "train"), use(stage, "valid"), {}});
  return data;
}

Group make_expert_group(const Group& group, int expert_ranks) {
  if (group.alone() || expert_ranks == 1) return {};
  return group.split(Mesh::of(group.size(), expert_ranks).expert_group(group.rank()));
}

namespace {

// Assigns the GPUs of a machine to its ranks round-robin, unless one was chosen by index.
DeviceName device_for(const TrainConfig& train, const Group& sharing) {
  DeviceName device = choose_device(train.device);
  if (!sharing.alone() && device.kind == DeviceKind::cuda && !train.device.index) {
    constexpr int max_gpus = 64;
    std::vector<int> usable;
    for (int i = 0; i < max_gpus; ++i) {
      if (some::cuda::unusable_reason(i).empty()) usable.push_back(i);
    }
    device.index = usable.at(static_cast<std::size_t>(sharing.local_rank()) % usable.size());
  }
  return device;
}

std::shared_ptr<Context> open_context(const TrainConfig& train, const DeviceName& device, const Host& host) {
  std::shared_ptr<Context> ctx = make_context(device, resolve_precision(train.precision, device.kind), host);
  if (bf16_products(*ctx) && !cpu::bf16_gemm_reason().empty())
    bad_input(Code::precision_unusable, "precision \"bf16\": {}; use \"fp32\"", cpu::bf16_gemm_reason());
  ctx->group.link_gpus(ctx->device, ctx->log);
  ctx->expert_group = make_expert_group(ctx->group, train.expert_ranks);  // subgroups use the same transport
  return ctx;
}

}  // namespace

std::shared_ptr<Context> recipe_context(const TrainConfig& train, const Host& host) {
  return open_context(train, device_for(train, host.group), host);
}

std::shared_ptr<Context> recipe_context(const TrainConfig& train, const Log& log, const Group& group,
                                        const Group& sharing) {
  const Group& shared = sharing.alone() ? group : sharing;
  Host host = make_host(train.threads == 0 && !shared.alone() ? shared.cpus() : train.threads, log, group);
  return open_context(train, device_for(train, shared), host);
}

std::string computed_by(const Context& ctx) {
  if (ctx.device.is_cuda()) return some::cuda::device_name(ctx.device) + ", cuBLASLt";
  return cpu::gemm_description() + (bf16_products(ctx) ? ", products in bf16" : "");
}

Recipe read_run_recipe(const std::string& folder, const std::vector<std::string>& changes) {
  const RunPaths paths{folder};
  if (!folder_exists(folder))
    bad_input(Code::run_not_found, "run folder {} not found; 'some train RECIPE --out {}' creates one", folder, folder);
  if (!exists_path(paths.config()))
    bad_input(Code::run_invalid, "{} is not a run folder: config.toml not found", folder);
  // The file contains every key. Runs older than data.long cut their documents.
  std::vector<std::string> overrides = changes;
  const TomlNode config = parse_toml(read_file(paths.config()), paths.config());
  const TomlNode* data = config.find("data");
  if (data != nullptr && data->find("long") == nullptr) overrides.push_back("data.long=cut");
  return load_written_recipe(paths.config(), overrides);
}

Recipe recipe_at(const Recipe& recipe, const CheckpointName& checkpoint) {
  if (recipe.stages.empty()) return recipe;
  const JsonObject state(read_checkpoint_state(checkpoint), checkpoint.folder);
  const auto last = static_cast<std::int64_t>(recipe.stages.size());
  return stage_recipes(recipe).at(static_cast<std::size_t>(state.get<std::int64_t>("stage", last, 1, last) - 1));
}

bool run_is_finished(const std::string& folder) {
  const auto checkpoints = list_checkpoints(folder);
  if (checkpoints.empty()) return ended_by_its_timing(folder);
  const SafetensorsFile file = SafetensorsFile::open(checkpoints.back().folder + "/optimizer.safetensors");
  return read_state(file).need<bool>("finished");
}

OpenedRun open_run(const std::string& folder, const OpenOptions& options) {
  OpenedRun run{
      RunPaths{folder}, read_run_recipe(folder), Tokenizer::load(RunPaths{folder}.tokenizer()), nullptr, nullptr, 0};
  const CheckpointName checkpoint = find_checkpoint(folder, options.checkpoint);
  const RunIdentity identity = identity_of(run.recipe, run.tokenizer);
  check_checkpoint(checkpoint, identity);
  run.recipe = recipe_at(run.recipe, checkpoint);
  TrainConfig train = run.recipe.train;
  train.device = options.device;
  if (options.precision)
    train.precision = *options.precision;
  else if (choose_device(options.device).kind == DeviceKind::cpu && train.precision == PrecisionChoice::bf16)
    train.precision = PrecisionChoice::fp32;
  // The number of ranks that share the experts may differ from training.
  if (!RankGroups::fit(options.host.group.size(), train.expert_ranks)) train.expert_ranks = 1;
  run.ctx = recipe_context(train, options.host);
  run.recipe.model.vocab = run.tokenizer.vocab_size();
  check_memory(run.recipe.model, *run.ctx);
  run.model = std::make_unique<Model>(run.ctx, run.recipe.model, false);
  load_checkpoint(checkpoint, identity, *run.model, false);
  run.step = checkpoint.step;
  return run;
}

}  // namespace some
