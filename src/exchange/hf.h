// Export to and import from the Hugging Face format (docs/exchange.md). The folder holds config.json with every setting
// of the recipe, weights and key stores as safetensors, tokenizer and generation settings, a model card, and the
// model's Python code (python/hf).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runs/history.h"
#include "runs/run.h"
#include "runtime/host.h"

namespace some {

struct ExportOptions {
  std::string run, checkpoint = "latest";
  std::string out;                 // a new folder
  bool experts_from_seed = false;  // the Python files regenerate the frozen library from its seed instead of storing it
  double shard_bytes = 5e9;        // weights beyond this size are split into several files
  std::vector<std::string> controls = {};  // runs that the model card compares with this one
  Host host = {};
};

struct ExportResult {
  std::string folder;
  std::int64_t step = 0;
  std::vector<std::string> weights;  // file names
  double bytes = 0;                  // size of the weights
  bool experts_stored = false;
};

ExportResult export_hf(const ExportOptions& options);

struct ImportOptions {
  std::string folder, out;       // an exported model; a new run folder
  std::string tokenizer = "";    // used if the folder has none
  bool trained_experts = false;  // frozen experts were trained elsewhere: the run gets some.training = "full"
  Host host = {};
};

struct ImportResult {
  std::string run;
  std::int64_t step = 0;
};

// Throws (bad_input), naming the problem, if anything is missing, does not match or was not written by export_hf.
ImportResult import_hf(const ImportOptions& options);

// Returns the model card in Markdown.
std::string model_card(const OpenedRun& run, const RunHistory& history, const std::vector<RunHistory>& controls,
                       const ExportOptions& options);

// Returns the name of a checkpoint tensor in an exported model. Some names change because PyTorch does not allow one
// name for both a tensor and a module.
std::string exported_name(const std::string& name);

}  // namespace some
