#include "train/rank_checks.h"

#include <algorithm>

#include "comm/mesh.h"
#include "core/files/files.h"
#include "core/version.h"
#include "runs/run.h"

namespace some {
namespace {

std::string hash_of_program() {
  const MappedFile program = map_file("/proc/self/exe");
  return hex(checksum_of(program.data, program.size));
}

}  // namespace

void check_same_command(const Group& group, const Recipe* recipe, const std::vector<std::string>& changes) {
  if (group.alone()) return;
  Group::Facts facts{{"the program's version", program_version()}, {"the program's hash", hash_of_program()}};
  if (recipe != nullptr) {
    for (const auto& [key, value] : recipe_settings(*recipe)) facts.emplace_back(key, value);
  }
  std::string overrides;
  for (const std::string& one : changes) overrides += (overrides.empty() ? "" : " ") + one;
  facts.emplace_back("the settings on the command line", overrides);
  group.check_identical(facts);
}

void check_same_machines(const Context& ctx, const std::vector<TrainingStage>& training_stages) {
  if (ctx.group.alone()) return;
  Group::Facts facts{{"what computes", computed_by(ctx)},
                     {"precision", name_of(ctx.compute)},
                     {"the tokenizer's hash", hex(training_stages.at(0).tokenizer.hash())}};
  for (const TrainingStage& training_stage : training_stages) {
    const std::string of = training_stage.title.empty() ? "" : " of " + training_stage.title;
    facts.emplace_back("the training text" + of + " (its hash)", hex(training_stage.train.hash()));
    facts.emplace_back("the validation text" + of + " (its hash)", hex(training_stage.valid.hash()));
  }
  ctx.group.check_identical(facts);
}

void check_same_run(const OpenedRun& run, const Group::Facts& more) {
  const Context& ctx = *run.ctx;
  if (ctx.group.alone()) return;
  const Tensor weights = run.model->parameters().value.to(Device::cpu);
  std::uint64_t keys = 0;
  for (const Layer& layer : run.model->layers()) {
    if (!layer.keys.keys) continue;
    const Tensor here = layer.keys.keys.to(Device::cpu);
    keys = hash_bytes(here.raw(), here.bytes(), keys);
  }
  Group::Facts facts{{"the program's version", program_version()},
                     {"the program's hash", hash_of_program()},
                     {"what computes", computed_by(ctx)},
                     {"precision", name_of(ctx.compute)},
                     {"the run's folder", run.paths.folder},
                     {"the checkpoint (its step)", fmt::to_string(run.step)},
                     {"the weights (their hash)", hex(hash_bytes(weights.raw(), weights.bytes()))},
                     {"the keys (their hash)", hex(keys)},
                     {"the library (its hash)", hex(run.model->library_hash())},
                     {"the tokenizer's hash", hex(run.tokenizer.hash())}};
  facts.insert(facts.end(), more.begin(), more.end());
  ctx.group.check_identical(facts);
}

namespace {

std::optional<Error> problem_with_expert_ranks(int ranks, const Recipe& recipe) {
  const int together = recipe.train.expert_ranks;
  if (together == 1) return std::nullopt;
  const ModelConfig& model = recipe.model;
  if (model.ffn != Ffn::some || !model.use_library)
    return make_error(Fault::input, Code::setting_conflict, "{} = {}: must be 1 without experts ({})",
                      "train.expert_ranks", together,
                      model.ffn != Ffn::some ? "this model.ffn" : "some.use_library = false");
  if (model.has_transforms())
    return make_error(Fault::input, Code::setting_conflict,
                      "{} = {}: must be 1 with some.init = \"hadamard\", because such experts have no weights to "
                      "divide; use train.accumulate for several ranks",
                      "train.expert_ranks", together);
  if (together > model.experts)
    return make_error(Fault::input, Code::ranks_uneven,
                      "{} = {}: must not exceed some.experts = {}, of which every rank holds a part",
                      "train.expert_ranks", together, model.experts);
  if (!RankGroups::fit(ranks, together)) {
    const int more = (RankGroups{together}.count(ranks) + 1) * together;
    return make_error(Fault::input, Code::ranks_uneven,
                      "{} = {}: must divide the number of ranks, and there {} {}; start {} (mpirun -n {} ...), or set "
                      "train.expert_ranks=1",
                      "train.expert_ranks", together, ranks == 1 ? "is" : "are", ranks, more, more);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> rank_shares_error(int ranks, const Recipe& recipe) {
  if (auto problem = problem_with_expert_ranks(ranks, recipe)) return problem;
  for (const Recipe& stage : stage_recipes(recipe)) {
    const int batches = stage.train.accumulate;
    if (Mesh{ranks}.every_rank_has_work(batches)) continue;
    int fewer = std::min(ranks, batches), more = ranks;
    while (!Mesh{fewer}.every_rank_has_work(batches)) --fewer;
    while (more < batches) more *= 2;  // equal blocks
    return make_error(Fault::input, Code::ranks_uneven,
                      "{} = {}: too few micro-batches per step for {} ranks, each of which takes a power of two of "
                      "them; set train.accumulate={} (and a smaller train.batch for the same step), or start {} rank{}",
                      "train.accumulate", batches, ranks, more, fewer, fewer == 1 ? "" : "s");
  }
  return std::nullopt;
}

void check_rank_shares(int ranks, const Recipe& recipe) {
  if (const auto problem = rank_shares_error(ranks, recipe)) throw *problem;
}

Recipe broadcast_recipe(const Group& group, const Recipe& recipe, const std::string& origin) {
  if (group.alone()) return recipe;
  std::string text = group.root() ? write_recipe(recipe) : "";
  group.broadcast(text);
  return group.root() ? recipe : parse_recipe(text, origin, {});
}

}  // namespace some
