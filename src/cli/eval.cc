#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "train/json.h"
#include "train/run.h"

namespace some::cli {
namespace {

struct Options {
  ModelFlags model;
  std::string data;
  std::int64_t stories = 0;
  bool json = false;
};

void run(const Options& options) {
  OpenedRun run = open_run(options.model);
  TokenData data;
  std::string source = options.data;
  DataConfig config = run.recipe.data;
  if (source.empty()) {
    config.tokenizer = run.paths.tokenizer();
    data = load_corpora(*run.ctx, config, run.recipe.seed, run.paths.cache(), {}).valid;
    source = config.valid.empty() ? "the run's validation stories" : config.valid;
  } else {
    data = load_tokens(*run.ctx, source, config, run.tokenizer, options.stories, run.paths.cache());
  }
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.stories = options.stories;
  const Evaluation evaluation = evaluate(*run.model, data, how);
  const std::vector<LayerMeasures> layers = layer_measures(*run.model, evaluation.layers, {});
  if (options.json) {
    nlohmann::json out = to_json(evaluation, how);
    out["run"] = options.model.run;
    out["step"] = run.step;
    out["data"] = source;
    out["layers"] = to_json(layers);
    print_json(out);
    return;
  }
  fmt::print("{} at step {} on {}\n", options.model.run, run.step, source);
  fmt::print("loss {:.4f} nats a token   perplexity {:.3f}   {:.4f} bits a byte   ({} tokens, {} stories)\n",
             evaluation.loss, evaluation.perplexity(), evaluation.bits_per_byte, evaluation.tokens, evaluation.stories);
  if (evaluation.padded_loss)
    fmt::print("padded loss {:.4f} (padding counted as text, as this run was trained)\n", *evaluation.padded_loss);
  for (const LayerMeasures& layer : layers) {
    const UsageMeasures& use = layer.validation->count;
    fmt::print(
        "layer {:2}  Gini {:.3f}  entropy {:.2f} bits  {:.1f} experts in effect  {} of {} used  busiest {:.1f}x its "
        "fair share  gate entropy {:.3f}\n",
        layer.layer, use.gini, use.entropy, use.effective_experts, use.experts_used, run.recipe.model.experts,
        use.load_over_fair, layer.validation->choices.gate_entropy);
  }
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("eval", "loss of a run on its validation data or on other text");
  add_model_flags(*command, options->model);
  command->add_option("--data", options->data,
                      "file, folder or builtin:DOMAIN (default: the run's own validation data)");
  command->add_option("--stories", options->stories, "only the first N stories");
  command->add_flag("--json", options->json, "print the result as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
