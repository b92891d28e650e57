// Models that leave home, and come back.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "exchange/hf.h"

namespace some::cli {
namespace {

struct ExportFlags {
  exchange::ExportOptions options;
  std::string to = "hf", experts = "stored";
  double shard_gigabytes = 5;
  bool json = false;
};

void export_model(ExportFlags flags) {
  exchange::ExportOptions& options = flags.options;
  options.host.log = terminal_log();
  options.experts_from_seed = flags.experts == "seed";
  if (!(flags.shard_gigabytes > 0)) bad_input("--shard-size {}: wants gigabytes above 0", flags.shard_gigabytes);
  options.shard_bytes = flags.shard_gigabytes * 1e9;
  const exchange::ExportResult result = exchange::export_hf(options);
  if (flags.json)
    return print_json({{"run", options.run},
                       {"step", result.step},
                       {"folder", result.folder},
                       {"weights", result.weights},
                       {"bytes", result.bytes},
                       {"experts_stored", result.experts_stored}});
  fmt::print("{} at step {} -> {}: {} of weights in {} file{}{}\n", options.run, result.step, result.folder,
             human_bytes(result.bytes), result.weights.size(), result.weights.size() == 1 ? "" : "s",
             options.experts_from_seed ? "; the experts are drawn from their seed" : "");
  fmt::print(
      "use: cd {} && python3 -c 'import modeling_some; m = modeling_some.load(\".\")'; README.md there says more\n",
      result.folder);
}

struct ImportFlags {
  exchange::ImportOptions options;
  bool json = false;
};

void import_model(ImportFlags flags) {
  flags.options.host.log = terminal_log();
  const exchange::ImportResult result = exchange::import_hf(flags.options);
  if (flags.json) return print_json({{"folder", flags.options.folder}, {"run", result.run}, {"step", result.step}});
  fmt::print("{} -> {}, a run at step {}: it can be used like any other; 'some train --from {}' trains it further\n",
             flags.options.folder, result.run, result.step, result.run);
}

}  // namespace

void add_export(Command& app) {
  auto flags = std::make_shared<ExportFlags>();
  Command* command = app.add_subcommand("export", "write a trained run as a model that loads elsewhere");
  command->add_option("RUN", flags->options.run, "run folder")->required();
  command->add_option("--to", flags->to, "hf: a folder for Hugging Face's libraries and plain PyTorch")
      ->one_of({"hf"})
      ->capture_default_str();
  command->add_option("-o,--out", flags->options.out, "the new folder")->required();
  command->add_option("--checkpoint", flags->options.checkpoint, "latest, best or a step")->capture_default_str();
  command
      ->add_option("--experts", flags->experts,
                   "stored: the frozen experts are among the weights; seed: the Python files draw them, to the bit")
      ->one_of({"stored", "seed"})
      ->capture_default_str();
  command->add_option("--shard-size", flags->shard_gigabytes, "gigabytes of one file of weights")
      ->capture_default_str();
  command->add_option("--control", flags->options.controls, "a run that the model card sets beside this one; repeat it")
      ->allow_extra_args(false);
  command->add_flag("--json", flags->json, "print the result as one JSON object");
  command->callback([flags] { export_model(*flags); });
}

void add_import(Command& app) {
  auto flags = std::make_shared<ImportFlags>();
  Command* command = app.add_subcommand("import", "bring an exported model back as a run, also after further training");
  command->add_option("FOLDER", flags->options.folder, "what 'some export' wrote")->required();
  command->add_option("--out", flags->options.out, "the new run folder")->required();
  command->add_option("--tokenizer", flags->options.tokenizer, "tokenizer.json, where the folder has none");
  command->add_flag("--trained-experts", flags->options.trained_experts,
                    "experts that were frozen have learnt elsewhere: the run keeps them (some.training = \"full\")");
  command->add_flag("--json", flags->json, "print the result as one JSON object");
  command->callback([flags] { import_model(*flags); });
}

}  // namespace some::cli
