#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/pages/run_header.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/version.h"
#include "exchange/hf.h"
#include "exchange/python_files.h"
#include "exchange/recipe_json.h"
#include "experts/library_file.h"
#include "runs/checkpoint.h"
#include "runs/new_folder.h"
#include "runs/run_list.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> files_of_export = {
    "config.json",     "generation_config.json",  "tokenizer.json", "tokenizer_config.json",
    "model*",          "special_tokens_map.json", "README.md",      "configuration_some.py",
    "library_some.py", "tensors_some.py"};

void write_json(const std::string& path, const Json& value) {
  write_file_atomic(path, value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

// Returns the id of an exported model: its run and step. Every file of weights names it. Other programs that train the
// model further write files without it.
std::string model_id(const OpenedRun& run) {
  return run.recipe.run_id.empty() ? "" : fmt::format("{}-{}", run.recipe.run_id, run.step);
}

Json config_json(const OpenedRun& run, const ExportOptions& options, bool experts_stored) {
  const ModelConfig& model = run.recipe.model;
  Json hashes = Json::array(), key_steps = Json::array();
  for (const Layer& layer : run.model->layers()) {
    hashes.push_back(hex(layer.experts.library_hash));
    key_steps.push_back(layer.keys.steps);
  }
  return {
      {"architectures", {"SomeForCausalLM"}},
      {"auto_map",
       {{"AutoConfig", "configuration_some.SomeConfig"}, {"AutoModelForCausalLM", "modeling_some.SomeForCausalLM"}}},
      {"model_type", "some"},
      {"torch_dtype", run.ctx->master == DType::f64 ? "float64" : "float32"},
      {"vocab_size", model.vocab},
      {"hidden_size", model.d_model},
      {"num_hidden_layers", model.layers},
      {"num_attention_heads", model.heads},
      {"max_position_embeddings", model.seq_len},
      {"tie_word_embeddings", false},
      {"eos_token_id", run.tokenizer.eos_id()},
      {"pad_token_id", run.tokenizer.pad_id()},
      {"bos_token_id", nullptr},
      {"tokenizer_hash", hex(run.tokenizer.hash())},
      {"written_by", program_version()},
      {"run", run_name(run)},
      {"checkpoint", options.checkpoint},
      {"step", run.step},
      {"model_id", model_id(run)},
      {"key_steps", key_steps},
      {"library", {{"stored", experts_stored}, {"hashes", hashes}}},
      {"recipe", recipe_to_json(run.recipe)}};
}

void write_tokenizer(const std::string& folder, const OpenedRun& run) {
  const Tokenizer& tokenizer = run.tokenizer;
  write_file_atomic(folder + "/tokenizer.json", tokenizer.to_json());
  const std::string eos = tokenizer.token(tokenizer.eos_id()), pad = tokenizer.token(tokenizer.pad_id()),
                    unk = tokenizer.token(tokenizer.unk_id());
  write_json(folder + "/tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                 {"model_max_length", run.recipe.model.seq_len},
                                                 {"eos_token", eos},
                                                 {"pad_token", pad},
                                                 {"unk_token", unk},
                                                 {"clean_up_tokenization_spaces", false},
                                                 {"padding_side", "left"}});
  write_json(folder + "/special_tokens_map.json", {{"eos_token", eos}, {"pad_token", pad}, {"unk_token", unk}});
}

// Returns all tensors of the model by their exported names.
NamedTensors exported_tensors(OpenedRun& run, bool experts_stored) {
  NamedTensors tensors;
  for (auto& [name, tensor] : model_tensors(*run.model)) tensors.emplace_back(exported_name(name), tensor);
  if (!experts_stored) return tensors;
  for (const Layer& layer : run.model->layers()) {
    const auto add = [&](const char* name, const Param& matrix) {
      if (!matrix.value && matrix.compute)
        tensors.emplace_back(fmt::format("layers.{}.experts.{}", layer.index, name), matrix.compute);
    };
    add("w1", layer.experts.w1);
    add("w2", layer.experts.w2);
  }
  return tensors;
}

std::vector<std::string> write_weights(const std::string& folder, const NamedTensors& tensors, double shard_bytes,
                                       const std::string& id) {
  std::vector<NamedTensors> shards(1);
  double size = 0, total = 0;
  for (const auto& named : tensors) {
    const auto bytes = static_cast<double>(named.second.bytes());
    if (size > 0 && size + bytes > shard_bytes) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(named);
    size += bytes;
    total += bytes;
  }
  std::vector<std::string> names;
  Json places = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shards.size() == 1 ? "model.safetensors"
                                       : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    // transformers requires "format": "pt" in the metadata.
    std::map<std::string, std::string> metadata{{"format", "pt"}};
    if (!id.empty()) metadata["model_id"] = id;
    write_safetensors(folder + "/" + names.back(), shards[i], metadata);
    for (const auto& [name, tensor] : shards[i]) places[name] = names.back();
  }
  if (shards.size() > 1)
    write_json(folder + "/model.safetensors.index.json",
               {{"metadata", {{"total_size", static_cast<std::int64_t>(total)}}}, {"weight_map", places}});
  return names;
}

RunHistory history_of(const std::string& folder, const Log& log) {
  read_run_recipe(folder);  // reports what is wrong if the folder is not a run
  return read_history(*find_run(folder, log), log);
}

}  // namespace

std::string exported_name(const std::string& name) {
  const std::size_t at = name.find(".lora_");
  return at == std::string::npos ? name : std::string(name).replace(at, 1, "_");
}

ExportResult export_hf(const ExportOptions& options) {
  if (!(options.shard_bytes >= 1))
    bad_input(Code::option_invalid, "the size of a weight file must be at least one byte");
  // fp32 represents every weight exactly as trained; a run in double precision keeps it.
  const bool wide = read_run_recipe(options.run).train.precision == PrecisionChoice::f64;
  const PrecisionChoice precision = wide ? PrecisionChoice::f64 : PrecisionChoice::fp32;
  OpenedRun run = open_run(options.run, {options.checkpoint, on_cpu, precision, options.host});
  const ModelConfig& model = run.recipe.model;
  const bool library = model.ffn == Ffn::some && model.use_library;
  if (options.experts_from_seed && !library)
    bad_input(Code::export_unsupported, "{}: has no library generated from a seed; omit --experts seed", options.run);
  if (options.experts_from_seed && model.training == ExpertTraining::full)
    bad_input(Code::export_unsupported,
              "{}: its experts were trained (some.training = \"full\"), so they cannot be regenerated from a seed; "
              "omit --experts seed",
              options.run);
  if (options.experts_from_seed && is_library_file(model.init))
    bad_input(Code::export_unsupported,
              "{}: its experts were imported (some.init = \"{}\"), so no seed regenerates them; omit --experts seed",
              options.run, model.init);
  if (options.experts_from_seed && model.init == "orthogonal")
    options.host.log.warning(
        Code::library_slow,
        "the Python files regenerate an orthogonal library slowly: about ten seconds per matrix of 1024 x 512");
  const RunHistory history = history_of(options.run, options.host.log);
  std::vector<RunHistory> controls;
  for (const std::string& control : options.controls) controls.push_back(history_of(control, options.host.log));

  ExportResult result{options.out, run.step, {}, 0, library && !options.experts_from_seed && !model.has_transforms()};
  AtomicFolder out("--out", options.out, files_of_export);
  const NamedTensors tensors = exported_tensors(run, result.experts_stored);
  for (const auto& named : tensors) result.bytes += static_cast<double>(named.second.bytes());
  result.weights = write_weights(out.folder(), tensors, options.shard_bytes, model_id(run));
  write_tokenizer(out.folder(), run);
  write_json(out.folder() + "/generation_config.json", {{"eos_token_id", run.tokenizer.eos_id()},
                                                        {"pad_token_id", run.tokenizer.pad_id()},
                                                        {"suppress_tokens", {run.tokenizer.pad_id()}},
                                                        {"do_sample", true},
                                                        {"temperature", 0.8},
                                                        {"max_new_tokens", 200}});
  for (const EmbeddedFile& file : python_files())
    write_file_atomic(out.folder() + "/" + std::string(file.name), file.text);
  write_file_atomic(out.folder() + "/README.md", model_card(run, history, controls, options));
  write_json(out.folder() + "/config.json", config_json(run, options, library ? result.experts_stored : true));
  out.finish();
  return result;
}

}  // namespace some
