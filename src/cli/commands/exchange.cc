// `some library`, `some export`, `some import`: exchange of expert libraries and models with other programs.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "exchange/hf.h"
#include "exchange/library_dense.h"
#include "exchange/library_import.h"

namespace some {
namespace {

struct ExportFlags {
  ExportOptions options;
  std::string to = "hf", experts = "stored";
  double shard_gigabytes = 5;
  bool json = false;
};

void export_model(ExportFlags flags) {
  ExportOptions& options = flags.options;
  options.host.log = terminal_log();
  if (flags.to != "hf")
    bad_input(Code::option_invalid, "{} {}: must be hf; docs/exchange.md explains why gguf is not supported", "--to",
              flags.to);
  if (flags.experts != "stored" && flags.experts != "seed")
    bad_input(Code::option_invalid, "{} {}: must be stored or seed", "--experts", flags.experts);
  options.experts_from_seed = flags.experts == "seed";
  if (!(flags.shard_gigabytes > 0))
    bad_input(Code::option_invalid, "{} {}: must be a number of gigabytes > 0", "--shard-size", flags.shard_gigabytes);
  options.shard_bytes = flags.shard_gigabytes * 1e9;
  const ExportResult result = export_hf(options);
  if (flags.json)
    return print_json({{"run", options.run},
                       {"step", result.step},
                       {"folder", result.folder},
                       {"weights", result.weights},
                       {"bytes", result.bytes},
                       {"experts_stored", result.experts_stored}});
  fmt::print("{} at step {} -> {}: {} of weights in {} file{}{}\n", options.run, result.step, result.folder,
             format_bytes(result.bytes), result.weights.size(), result.weights.size() == 1 ? "" : "s",
             options.experts_from_seed ? "; the experts are generated from their seed" : "");
  fmt::print("use: cd {} && python3 -c 'import modeling_some; m = modeling_some.load(\".\")'; see its README.md\n",
             result.folder);
}

struct ImportFlags {
  ImportOptions options;
  bool json = false;
};

void import_model(ImportFlags flags) {
  flags.options.host.log = terminal_log();
  const ImportResult result = import_hf(flags.options);
  if (flags.json) return print_json({{"folder", flags.options.folder}, {"run", result.run}, {"step", result.step}});
  fmt::print("{} -> {}, a run at step {}: it can be used like any other; 'some train --from {}' trains it further\n",
             flags.options.folder, result.run, result.step, result.run);
}

struct LibraryFlags {
  LibraryImport options;
  std::string file;
  bool json = false;
};

nlohmann::json library_json(const std::string& path, const LibraryFile& about) {
  return {{"file", path},         {"layers", about.layers}, {"experts", about.experts}, {"d_model", about.d_model},
          {"d_ffn", about.d_ffn}, {"source", about.source}, {"hash", about.hash}};
}

void import_library(LibraryFlags flags) {
  flags.options.host.log = terminal_log();
  const ImportedLibrary made = import_library(flags.options);
  const LibraryFile& about = made.about;
  if (flags.json) {
    nlohmann::json out = library_json(made.path, about);
    out["blocks"] = made.blocks;
    out["adapted"] = made.adapted;
    out["units_left_out"] = made.left_out;
    out["biases_left_out"] = made.biases_left_out;
    return print_json(out);
  }
  fmt::print("{}: {} layers of {} experts, {} units each, for a width of {}\n", made.path, about.layers, about.experts,
             about.d_ffn, about.d_model);
  if (made.adapted)
    fmt::print("their width of {} is mapped to {} by a fixed orthonormal matrix (--seed)\n", made.width, about.d_model);
  if (made.left_out > 0) fmt::print("{} hidden units per block do not fill an expert and are omitted\n", made.left_out);
  if (made.biases_left_out) fmt::print("biases are omitted, because experts have none\n");
  fmt::print("use: some.init=file:{} model.layers={} some.experts={} some.d_ffn={} model.d_model={}\n", made.path,
             about.layers, about.experts, about.d_ffn, about.d_model);
}

void write_out_library(const DenseLibrary& options, bool json) {
  const WrittenLibrary made = write_dense_library(options);
  if (json) return print_json(library_json(made.path, made.about));
  fmt::print("{}: {} layers of {} experts, {} units each, for a width of {}; from {}\n", made.path, made.about.layers,
             made.about.experts, made.about.d_ffn, made.about.d_model, made.about.source);
  fmt::print("use: some.init=file:{} with the other settings of {}\n", made.path, options.run);
}

void show_library(const LibraryFlags& flags) {
  const LibraryFile about = read_library_file(flags.file);
  if (flags.json) return print_json(library_json(flags.file, about));
  fmt::print("{}: {} layers of {} experts, {} units each, for a width of {}; from {}\n", flags.file, about.layers,
             about.experts, about.d_ffn, about.d_model, about.source);
}

void set_up_library_import(Command& command) {
  auto flags = std::make_shared<LibraryFlags>();
  LibraryImport& options = flags->options;
  command.add_option("MODEL", options.models, "the model's safetensors files, its folder, or a run")->required();
  command.add_option("--pattern", options.pattern,
                     "names of its blocks: gpt2, pythia, some (a dense run), or two names UP,DOWN with {} for the "
                     "block number (default: detected)");
  command.add_option("--layers", options.layers, "layers of the library (default: one per block)");
  command.add_option("--experts", options.experts, "experts per layer (default: all pieces of all blocks)");
  command.add_option("--d-ffn", options.d_ffn,
                     "hidden units per expert; blocks are split into experts of this width (default: whole blocks)");
  command.add_option("--d-model", options.d_model, "width of the model that will use them (default: the blocks' own)");
  command.add_option("--seed", options.seed, "seed of the matrix between two widths")->capture_default_str();
  command.add_option("-o,--out", options.folder, "output folder; the file is named after its hash")
      ->capture_default_str();
  command.add_json(flags->json);
  command.callback([flags] { import_library(*flags); });
}

void set_up_library_dense(Command& command) {
  auto flags = std::make_shared<DenseLibrary>();
  auto json = std::make_shared<bool>(false);
  command.add_option("RUN", flags->run, "run, by name (in runs) or folder")->run_folder()->required();
  command.add_option("-o,--out", flags->folder, "output folder; the file is named after its hash")
      ->capture_default_str();
  command.add_json(*json);
  command.callback([flags, json] {
    flags->host.log = terminal_log();
    write_out_library(*flags, *json);
  });
}

void set_up_library_show(Command& command) {
  auto shown = std::make_shared<LibraryFlags>();
  command.add_option("FILE", shown->file, "a library file")->required();
  command.add_json(shown->json);
  command.callback([shown] { show_library(*shown); });
}

void set_up_export(Command& command) {
  auto flags = std::make_shared<ExportFlags>();
  command.add_option("RUN", flags->options.run, "run, by name (in runs) or folder")->run_folder()->required();
  command.add_option("--to", flags->to, "format; hf = a folder for Hugging Face's libraries and plain PyTorch")
      ->capture_default_str();
  command.add_option("-o,--out", flags->options.out, "new folder")->required();
  command.add_option("--checkpoint", flags->options.checkpoint, "checkpoint: latest, best or a step")
      ->capture_default_str();
  command
      .add_option(
          "--experts", flags->experts,
          "stored = frozen experts are stored as weights; seed = the Python files regenerate them, bit-identical")
      ->capture_default_str();
  command.add_option("--shard-size", flags->shard_gigabytes, "maximum size of a weight file, in gigabytes")
      ->capture_default_str();
  command.add_option("--control", flags->options.controls, "control run listed on the model card; repeatable")
      ->allow_extra_args(false);
  command.add_json(flags->json);
  command.callback([flags] { export_model(*flags); });
}

void set_up_import(Command& command) {
  auto flags = std::make_shared<ImportFlags>();
  command.add_option("FOLDER", flags->options.folder, "folder written by 'some export'")->required();
  command.add_option("-o,--out", flags->options.out, "the new run folder")->required();
  command.add_option("--tokenizer", flags->options.tokenizer, "path of a tokenizer.json, if the folder has none");
  command.add_flag("--trained-experts", flags->options.trained_experts,
                   "accept frozen experts that were trained elsewhere (sets some.training = \"full\")");
  command.add_json(flags->json);
  command.callback([flags] { import_model(*flags); });
}

}  // namespace

CommandSpec library_command() {
  return {
      .name = "library",
      .group = CommandGroup::other_programs,
      .summary = "create and show expert library files",
      .subcommands =
          {{
               .name = "import",
               .summary = "build a library from a model's blocks, for some.init = \"file:…\"",
               .examples = {{"train tiny model.ffn=dense --out runs/dense", "a dense run, whose blocks become experts"},
                            {"library import runs/dense --d-ffn 16 -o libraries", ""}},
               .json = "the result",
               .set_up = set_up_library_import,
           },
           {
               .name = "dense",
               .summary = "write the experts of a run as stored matrices, for some.init = \"file:…\"",
               .examples = {{"train tiny some.init=hadamard --out runs/transforms", ""},
                            {"library dense runs/transforms -o libraries", "the same experts with stored weights"}},
               .json = "the library",
               .set_up = set_up_library_dense,
           },
           {
               .name = "show",
               .summary = "show the contents of a library",
               .json = "it",
               .set_up = set_up_library_show,
           }},
  };
}

CommandSpec export_command() {
  return {
      .name = "export",
      .group = CommandGroup::other_programs,
      .summary = "export a trained run as a model for other programs",
      .examples = {{"export runs/tiny -o tiny-hf", "for plain PyTorch and Hugging Face's libraries"},
                   {"export runs/tiny -o tiny-seed --experts seed --control runs/top4",
                    "small; the model card compares both runs"}},
      .json = "the result",
      .set_up = set_up_export,
  };
}

CommandSpec import_command() {
  return {
      .name = "import",
      .group = CommandGroup::other_programs,
      .summary = "import an exported model as a run, also after further training elsewhere",
      .examples = {{"import tiny-hf --out runs/back", "also after further training"}},
      .json = "the result",
      .set_up = set_up_import,
  };
}

}  // namespace some
