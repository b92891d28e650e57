#include "model/ffn/expert_bank.h"

#include <algorithm>

#include "core/error.h"
#include "experts/hadamard.h"
#include "experts/library.h"
#include "experts/library_file.h"
#include "model/ffn/expert_parallel.h"
#include "model/library_spec.h"

namespace some {
namespace {

const std::vector<std::unique_ptr<ExpertPart>>& expert_parts() {
  static const std::vector<std::unique_ptr<ExpertPart>> parts = [] {
    std::vector<std::unique_ptr<ExpertPart>> all;
    all.push_back(library_part());
    all.push_back(lora_part());
    return all;
  }();
  return parts;
}

// Returns the parts of a configuration, in the order of the table.
std::vector<const ExpertPart*> active_parts(const ModelConfig& config) {
  std::vector<const ExpertPart*> parts;
  for (const auto& part : expert_parts()) {
    if (part->active(config)) parts.push_back(part.get());
  }
  return parts;
}

}  // namespace

void ExpertBank::settings(SettingList<ModelConfig>& list) {
  list.integer("experts", &ModelConfig::experts, 1, 1048576, "Experts per layer.");
  list.integer("d_ffn", &ModelConfig::d_ffn, 1, 1048576, "Hidden width of an expert.");
  list.role = SettingRole::training_stage;
  list.integer("top_k", &ModelConfig::top_k, 1, 4096, "Active experts per token (top-k routing); at most `experts`.");
  list.role = SettingRole::model;
  std::vector<std::string> methods = seeded_libraries();
  methods.emplace_back("file:PATH");
  list.choice("init", &ModelConfig::init, methods,
              "Distribution of the expert library; hadamard = transforms with random signs, without stored weights; "
              "file:PATH loads blocks of other models, from 'some library import'.")
      .accepts = [](const std::string& name) {
    const std::vector<std::string> drawn = seeded_libraries();
    return is_library_file(name) || std::find(drawn.begin(), drawn.end(), name) != drawn.end();
  };
  list.integer("hadamard_transforms", &ModelConfig::hadamard_transforms, 1, 3,
               "Transforms per block of an expert's matrices if init = \"hadamard\".");
  list.integer("library_seed", &ModelConfig::library_seed, 0, unlimited,
               "Seed of the expert library; equal seeds give equal experts in every run.");
  for (const auto& part : expert_parts()) part->settings(list);
}

void ExpertBank::check(const ModelConfig& config) {
  if (config.hadamard_transforms < 1 || config.hadamard_transforms > 3)
    bad_input(Code::setting_out_of_range, "{} = {}: must be an integer from 1 to 3", "some.hadamard_transforms",
              config.hadamard_transforms);
  for (const ExpertPart* part : active_parts(config)) part->check(config);
}

void ExpertBank::declare(Declaration& declare) {
  for (const ExpertPart* part : active_parts(*config_)) part->declare(*config_, *this, declare);
}

void ExpertBank::make_library(Context& ctx, int layer) {
  LibrarySpec spec = library_spec(*config_);
  // A GPU has no kernels for low-rank corrections of transforms, so it uses materialized matrices.
  if (config_->has_transforms() && (ctx.device.is_cpu() || config_->training != ExpertTraining::lora)) {
    hadamard = make_hadamard_experts(ctx, spec, layer);
    library_hash = hadamard_hash(spec, layer);
    return;
  }
  const Group& holders = ctx.expert_group;
  // Trained experts are replicated on every rank, so they are saved and all-reduced like other parameters.
  if (local && config_->training != ExpertTraining::full) spec.part = *local;
  LayerLibrary library;
  if (spec.method == hadamard_method)
    library = {write_out_hadamard(ctx, spec, layer), hadamard_hash(spec, layer)};
  else
    library =
        is_library_file(spec.method) ? load_layer_library(ctx, spec, layer) : make_layer_library(ctx, spec, layer);
  library_hash = library.hash;
  if (spec.part) {
    const std::vector<std::int64_t> mine(static_cast<std::size_t>(holders.size()),
                                         static_cast<std::int64_t>(library.hash));
    library_hash = 0;
    for (const std::int64_t part : holders.all_to_all(mine)) library_hash += static_cast<std::uint64_t>(part);
  }
  // Materialized matrices are float32 on the CPU.
  const auto placed = [&](const Tensor& drawn) {
    const Tensor typed = drawn.dtype() == ctx.compute ? drawn : drawn.to(ctx.compute);
    return typed.device().is_cpu() && !ctx.device.is_cpu() ? typed.to(ctx.device) : typed;
  };
  const auto give = [&](const Tensor& drawn, Param& matrix) {
    if (!drawn) return;
    if (matrix.value)
      matrix.value.copy_from(drawn.to(ctx.master));  // a trained expert is initialized from the library
    else
      matrix.compute = placed(drawn);
  };
  give(library.weights.w1, w1);
  give(library.weights.w2, w2);
}

ExpertWeights ExpertBank::weights() const {
  ExpertWeights out;
  for (const ExpertPart* part : active_parts(*config_)) part->weights(*this, out);
  return out;
}

ExpertGrads ExpertBank::gradients() const {
  ExpertGrads out;
  for (const ExpertPart* part : active_parts(*config_)) part->gradients(*this, out);
  return out;
}

Tensor ExpertBank::local_rows(const Tensor& of_experts) const {
  // A rank holds only its own part of a frozen library, but all trained parameters.
  if (!of_experts || !local || of_experts.dim(0) == local->count()) return of_experts;
  return of_experts.rows(local->begin, local->end);
}

Param ExpertBank::local_rows(const Param& of_experts) const {
  return {local_rows(of_experts.value), local_rows(of_experts.compute), local_rows(of_experts.grad)};
}

bool experts_learn(const ModelConfig& config) {
  for (const ExpertPart* part : active_parts(config)) {
    if (part->learns(config)) return true;
  }
  return false;
}

}  // namespace some
