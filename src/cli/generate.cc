#include "study/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "study/choices.h"
#include "study/learner.h"
#include "train/run.h"

namespace some::cli {
namespace {

struct Options {
  ModelFlags model;
  std::vector<std::string> prompts;
  GenerateOptions generate;
  int samples = 1;
  bool ignore_eos = false;
  bool adapt = false;
  std::int64_t adapt_window = 32;
  bool json = false;
};

void run(Options options) {
  OpenedRun run = open_run(options.model);
  if (options.samples < 1) bad_input("--samples {}: say at least 1", options.samples);
  constexpr std::size_t most_texts = 65536;
  if (options.prompts.size() * static_cast<std::size_t>(options.samples) > most_texts)
    bad_input("--samples {} for each of {} prompts: say at most {} texts in all", options.samples,
              options.prompts.size(), most_texts);
  if (options.prompts.empty()) bad_input("say at least one --prompt \"...\" to begin from");
  std::vector<std::string> prompts;
  for (const std::string& prompt : options.prompts)
    prompts.insert(prompts.end(), static_cast<std::size_t>(options.samples), prompt);
  options.generate.stop_at_eos = !options.ignore_eos;
  if (!options.adapt && !options.generate.adapt_rules.empty())
    bad_input("--rules says how keys learn: it needs --adapt");
  std::optional<KeySnapshot> start;
  if (options.adapt) {
    require_experts(run, "adapt");
    if (options.adapt_window < 1) bad_input("--adapt-window {}: say at least 1", options.adapt_window);
    options.generate.adapt_window = options.adapt_window;
    choose_rules(run.recipe.model.keys,
                 options.generate.adapt_rules);  // wrong names are told before anything is written
    options.generate.adapt_step = run.step;
    start.emplace(*run.model);
  }
  const bool streamed = !options.json && prompts.size() == 1 && run.tokenizer.kind() == TokenizerKind::bytelevel;
  bool begun = false;  // the prompt is shown with the first token, so that a refused one is not shown at all
  const auto generated =
      generate(*run.model, run.tokenizer, prompts, options.generate, [&](std::size_t, TokenId token) {
        if (!streamed) return;
        if (!begun) fmt::print("{}", prompts[0]);
        begun = true;
        fmt::print("{}", run.tokenizer.token_bytes(token));
        std::fflush(stdout);
      });
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (std::size_t i = 0; i < generated.size(); ++i) {
      list.push_back({{"prompt", prompts[i]},
                      {"text", generated[i].text},
                      {"tokens", generated[i].tokens},
                      {"stopped", generated[i].stopped}});
    }
    nlohmann::json out{
        {"run", options.model.run}, {"step", run.step}, {"seed", options.generate.seed}, {"samples", list}};
    if (start) {
      out["adapt"] = {{"window", options.adapt_window},
                      {"rules", rules_text(choose_rules(run.recipe.model.keys, options.generate.adapt_rules))},
                      {"layers", nlohmann::json::array()}};
      for (int layer = 0; layer < run.recipe.model.layers; ++layer) {
        const KeySnapshot::Distance moved = start->distance(*run.model, layer);
        out["adapt"]["layers"].push_back(
            {{"layer", layer}, {"key_moved", {{"mean", moved.mean}, {"max", moved.most}}}});
      }
    }
    print_json(out);
    return;
  }
  if (streamed) fmt::print("{}\n", begun ? "" : prompts[0]);
  for (std::size_t i = 0; !streamed && i < generated.size(); ++i)
    fmt::print("{}{}\n", i > 0 ? "\n---\n" : "", generated[i].text);
  // What follows is said beside the text, not in it.
  std::fflush(stdout);
  const auto full =
      std::count_if(generated.begin(), generated.end(), [](const Generated& one) { return one.stopped == "context"; });
  if (full > 0) {
    say("({} ended where prompt and text fill the model's sequence: model.seq_len = {} tokens)\n",
        generated.size() == 1 ? "the text" : fmt::format("{} of {} texts", full, generated.size()),
        run.recipe.model.seq_len);
  }
  if (!start) return;
  double mean = 0, most = 0;
  for (int layer = 0; layer < run.recipe.model.layers; ++layer) {
    const KeySnapshot::Distance moved = start->distance(*run.model, layer);
    mean += moved.mean / run.recipe.model.layers;
    most = std::max(most, moved.most);
  }
  say("(keys learnt by {}, an update every {} tokens: they moved {:.4f} on average, {:.4f} at most; the run "
      "itself is unchanged)\n",
      rules_text(choose_rules(run.recipe.model.keys, options.generate.adapt_rules)), options.adapt_window, mean, most);
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("generate", "write text with a trained run");
  add_model_flags(*command, options->model);
  command->add_option("--prompt", options->prompts, "text to go on from; give several for a batch")
      ->allow_extra_args(false);
  command->add_option("--samples", options->samples, "continuations of each prompt")->capture_default_str();
  command->add_option("--temperature", options->generate.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", options->generate.top_k, "only the k likeliest tokens; 0: all")->capture_default_str();
  command
      ->add_option("--top-p", options->generate.top_p,
                   "only the likeliest tokens that hold this share of the probability")
      ->capture_default_str();
  command->add_option("--seed", options->generate.seed, "the same seed gives the same text")->capture_default_str();
  command->add_option("--max-tokens", options->generate.max_tokens, "at most this many new tokens")
      ->capture_default_str();
  command->add_flag("--adapt", options->adapt,
                    "keys go on learning from what is read and written; the run itself is left as it is");
  command->add_option("--adapt-window", options->adapt_window, "with --adapt: tokens from one update to the next")
      ->capture_default_str();
  command->add_option("--rules", options->generate.adapt_rules,
                      "with --adapt: alpha,beta,delta in any choice (default: as the run was trained)");
  command->add_flag("--ignore-eos", options->ignore_eos, "do not stop at the end-of-story token");
  command->add_flag("--json", options->json, "print the result as one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace some::cli
