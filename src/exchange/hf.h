// A trained model as Hugging Face's libraries read it, and back (docs/exchange.md). The folder holds config.json with
// every setting of the recipe, the weights and key stores as safetensors, tokenizer and generation settings, a model
// card, and the model itself in Python (python/hf).
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
  std::string out;                         // a new folder
  bool experts_from_seed = false;          // the frozen library is drawn by the Python files instead of being stored
  double shard_bytes = 5e9;                // weights beyond that are cut into several files
  std::vector<std::string> controls = {};  // runs that the model card sets beside this one
  Host host = {};
};

struct ExportResult {
  std::string folder;
  std::int64_t step = 0;
  std::vector<std::string> weights;  // file names
  double bytes = 0;                  // of the weights
  bool experts_stored = false;
};

ExportResult export_hf(const ExportOptions& options);

struct ImportOptions {
  std::string folder, out;       // an exported model; a new run folder
  std::string tokenizer = "";    // where the folder has none
  bool trained_experts = false;  // experts that were frozen have learnt elsewhere: the run gets some.training = "full"
  Host host = {};
};

struct ImportResult {
  std::string run;
  std::int64_t step = 0;
};

// bad_input names whatever is missing, does not fit or was not written by export_hf.
ImportResult import_hf(const ImportOptions& options);

// The model card, in Markdown.
std::string model_card(const OpenedRun& run, const RunHistory& history, const std::vector<RunHistory>& controls,
                       const ExportOptions& options);

// What a tensor of a checkpoint is called in an exported model: PyTorch has no room for a tensor and a part of it under
// one name.
std::string exported_name(const std::string& name);

}  // namespace some
