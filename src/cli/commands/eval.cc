#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "analysis/read.h"
#include "cli/model_flags.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files/files.h"
#include "evaluation/json.h"
#include "runs/run.h"
#include "train/rank_checks.h"

namespace some {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::string data;
  std::vector<std::string> overrides;
  std::int64_t max_documents = 0;
  std::string memory;
  bool json = false;
};

// Returns the data settings for evaluation. Overrides may change how the text is read, but not what was learned.
DataConfig data_settings(const OpenedRun& run, const std::string& source, const std::vector<std::string>& overrides) {
  for (const std::string& one : overrides) {
    const std::string key = one.substr(0, one.find('='));
    if (key != "data.separator" && key != "data.field" && key != "data.unit" && key != "data.long")
      bad_input(Code::setting_misplaced, "{}: only data.separator, data.field, data.unit and data.long can be set here",
                one);
  }
  Recipe recipe = run.recipe;
  if (!source.empty()) recipe.data.train = source;  // set first: the allowed overrides depend on the source of the text
  return override_recipe(recipe, run.paths.config(), overrides).data;
}

void run(const EvalFlags& options) {
  if (!options.overrides.empty() && options.data.empty())
    bad_input(Code::option_needs_another, "{}: requires --data", options.overrides[0]);
  const Group& group = join_ranks();
  OpenedRun run = open_run(options.model, group);
  TokenData data;
  std::string source = options.data;
  DataConfig config = data_settings(run, options.data, options.overrides);
  if (source.empty()) {
    config.tokenizer = run.paths.tokenizer();
    data = load_corpora(*run.ctx, config, run.recipe.seed, run.paths.read_only_cache(), {}).valid;
    source = config.valid.empty() ? "the run's validation text" : config.valid;
  } else {
    data = load_tokens(*run.ctx, source, config, run.tokenizer, options.max_documents, run.paths.read_only_cache());
  }
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.max_documents = options.max_documents;
  how.long_documents = config.long_documents;
  check_same_run(run, {{"the text (its hash)", hex(data.hash())}});
  const Evaluation evaluation = evaluate(*run.model, data, how);
  std::optional<Evaluation> remembering;
  DocumentOverlap known;
  if (!options.memory.empty()) {
    const Memory memory = open_memory(run, options.memory);
    known = warn_about_overlap(run, memory, data, options.max_documents, source);
    how.memory = &memory;
    remembering = evaluate(*run.model, data, how);
    how.memory = nullptr;
  }
  if (!group.root()) return;
  const std::vector<LayerMeasures> layers = layer_measures(*run.model, evaluation.layers, {});
  const DataUse text = data_use(data, run.recipe.model.seq_len, config.long_documents, options.max_documents);
  if (options.json) {
    nlohmann::json out = to_json(evaluation, how);
    out["run"] = options.model.run;
    out["step"] = run.step;
    out["data"] = source;
    out["text"] = to_json(text);
    out["layers"] = to_json(layers);
    if (remembering)
      out["memory"] = {{"file", options.memory},
                       {"loss", remembering->loss},
                       {"bits_per_byte", remembering->bits_per_byte},
                       {"gain", evaluation.loss - remembering->loss},
                       {"known", known.known}};
    print_json(out);
    return;
  }
  fmt::print("{} at step {} on {}\n", options.model.run, run.step, source);
  fmt::print("{}\n", describe(text, run.recipe.model.seq_len));
  fmt::print("loss {:.4f} nats/token   perplexity {:.3f}   {:.4f} bits per byte   ({} tokens predicted)\n",
             evaluation.loss, evaluation.perplexity(), evaluation.bits_per_byte, evaluation.tokens);
  if (remembering)
    fmt::print("with {}: loss {:.4f}   perplexity {:.3f}   {:.4f} bits per byte   ({} {:.4f})\n", options.memory,
               remembering->loss, remembering->perplexity(), remembering->bits_per_byte,
               remembering->loss <= evaluation.loss ? "gains" : "costs", std::abs(evaluation.loss - remembering->loss));
  if (evaluation.padded_loss)
    fmt::print("padded loss {:.4f} (padding counted as text, as this run was trained)\n", *evaluation.padded_loss);
  for (const LayerMeasures& layer : layers) {
    const UsageMeasures& use = layer.validation->count;
    fmt::print(
        "layer {:2}  Gini {:.3f}  entropy {:.2f} bits  {:.1f} effective experts  {} of {} used  max/mean load "
        "{:.1f}  gate entropy {:.3f}\n",
        layer.layer, use.gini, use.entropy, use.effective_experts, use.experts_used, run.recipe.model.experts,
        use.max_over_mean_load, layer.validation->choices.gate_entropy);
  }
}

void set_up_eval(Command& command) {
  auto options = std::make_shared<EvalFlags>();
  add_model_flags(command, options->model);
  command.add_option("--data", options->data,
                     "text to evaluate: file, folder or builtin:DOMAIN (default: the run's validation data)");
  command.add_option("OVERRIDES", options->overrides,
                     "with --data, settings for reading it: data.separator, data.field, data.unit, data.long");
  command.add_option("--max-documents", options->max_documents, "maximum number of documents, from the first");
  command.add_option("--memory", options->memory, "memory of this run; also reports the loss with it");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec eval_command() {
  return {
      .name = "eval",
      .group = CommandGroup::train_and_use,
      .summary = "evaluate a run on its validation data or on other text",
      .examples = {{"eval runs/tiny", "on the run's validation text"},
                   {"eval runs/tiny --data mine.txt data.unit=paragraph", "on other text, one document per paragraph"}},
      .works_on_ranks = true,
      .json = "the result",
      .set_up = set_up_eval,
  };
}

}  // namespace some
