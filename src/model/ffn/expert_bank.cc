#include "model/ffn/expert_bank.h"

#include <algorithm>

#include "core/error.h"
#include "experts/library.h"
#include "experts/library_file.h"
#include "model/ffn/expert_parallel.h"

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

// Those of a configuration, in the order of the table.
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
  std::vector<std::string> methods = library_methods();
  methods.push_back("file:PATH");
  list.choice("init", &ModelConfig::init, methods,
              "Distribution of the expert library; file:PATH loads blocks of other models, from 'some library import'.")
      .accepts = [](const std::string& name) {
    const std::vector<std::string> drawn = library_methods();
    return is_library_file(name) || std::find(drawn.begin(), drawn.end(), name) != drawn.end();
  };
  list.integer("library_seed", &ModelConfig::library_seed, 0, unlimited,
               "Seed of the expert library; equal seeds give equal experts in every run.");
  for (const auto& part : expert_parts()) part->settings(list);
}

void ExpertBank::check(const ModelConfig& config) {
  for (const ExpertPart* part : active_parts(config)) part->check(config);
}

void ExpertBank::declare(Declaration& declare) {
  for (const ExpertPart* part : active_parts(*config_)) part->declare(*config_, *this, declare);
}

void ExpertBank::make_library(Context& ctx, int layer) {
  LibrarySpec spec{config_->library_seed, config_->init,  config_->experts,
                   config_->d_model,      config_->d_ffn, config_->experts_have_output()};
  const Group& holders = ctx.expert_group;
  // Experts that are trained are complete on every rank, so that they are written and summed as always.
  if (local && config_->training != ExpertTraining::full) spec.part = *local;
  LayerLibrary library =
      is_library_file(spec.method) ? load_layer_library(ctx, spec, layer) : make_layer_library(ctx, spec, layer);
  library_hash = library.hash;
  if (spec.part) {
    const std::vector<std::int64_t> mine(static_cast<std::size_t>(holders.size()),
                                         static_cast<std::int64_t>(library.hash));
    library_hash = 0;
    for (const std::int64_t part : holders.all_to_all(mine)) library_hash += static_cast<std::uint64_t>(part);
  }
  const auto give = [&](const Tensor& drawn, Param& matrix) {
    if (matrix.value)
      matrix.value.copy_from(drawn.to(ctx.master));  // an expert that learns starts from the library
    else
      matrix.compute = drawn;
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
  // A rank has only its own part of a frozen library, but all of what is trained.
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
