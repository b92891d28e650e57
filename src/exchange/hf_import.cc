#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "exchange/hf.h"
#include "exchange/recipe_json.h"
#include "model/parts.h"
#include "runs/checkpoint.h"
#include "runs/forecast.h"
#include "runs/new_folder.h"
#include "tensor/finite.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

constexpr std::size_t longest_name = 255;  // limit of file names on the supported systems
const std::vector<std::string> files_of_import = {"tokenizer.json", "checkpoints", "keys", "config.toml", "latest"};

JsonObject read_config(const std::string& folder) {
  if (!folder_exists(folder)) bad_input(Code::folder_not_found, "folder {} not found", folder);
  const std::string path = folder + "/config.json";
  if (!exists_path(path)) bad_input(Code::import_invalid, "{} is not an exported model: config.json not found", folder);
  const JsonObject config(parse_json(read_file(path), path), path);
  const auto kind = config.get<std::string>("model_type", "none");
  if (kind != "some")
    bad_input(Code::import_invalid,
              "{}: model_type is \"{}\"; only models written by 'some export' (\"some\") can be imported", path,
              escaped(shortened(kind, 40)));
  return config;
}

// Rounds to the nearest fp16 value, ties to even: 11 significant bits, none below 2^-24.
double to_half(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int last = std::max(exponent - 11, -24);
  return std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
}

// Reader of the weights in one or several files.
class Weights {
 public:
  explicit Weights(const std::string& folder) : folder_(folder) {
    const std::string index = folder + "/model.safetensors.index.json";
    if (!exists_path(index)) {
      if (!exists_path(folder + "/model.safetensors"))
        bad_input(Code::import_invalid, "{}: model.safetensors not found", folder);
      add("model.safetensors");
      return;
    }
    const JsonObject places = JsonObject(parse_json(read_file(index), index), index).object("weight_map");
    std::vector<std::string> names;
    for (const auto& [tensor, file] : places.json().items()) names.push_back(places.need<std::string>(tensor));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names) {
      if (!is_plain_name(name) || name.size() > longest_name)
        bad_input(Code::import_invalid, "{}: \"{}\" is not the name of a file in the same folder", index,
                  escaped(shortened(name, 80)));
      add(name);
    }
    for (const auto& [tensor, file] : places.json().items()) {
      if (!files_.contains(tensor))
        bad_input(Code::tensor_not_found, "{}: {} is not in {}", index, escaped(shortened(tensor, 80)), describe(file));
    }
  }

  bool has(const std::string& name) const { return files_.contains(name); }
  const std::string& folder() const { return folder_; }

  void check_shape(const std::string& name, const Shape& shape) const {
    const SafetensorsFile& file = file_of(name);
    if (file.shape(name) != shape)
      bad_input(Code::tensor_shape, "{}: {} has shape {}, but the recipe in config.json requires {}", file.path(), name,
                file.shape(name).text(), shape.text());
  }

  Tensor load(const std::string& name, const Shape& shape, DType type) {
    check_shape(name, shape);
    const SafetensorsFile& file = file_of(name);
    const auto whole = [](DType one) { return one == DType::i64 || one == DType::i32; };
    if (whole(file.dtype(name)) != whole(type))
      bad_input(Code::tensor_type, "{}: {} has element type {}; must be {}", file.path(), name,
                name_of(file.dtype(name)), name_of(type));
    taken_.push_back(name);
    const Tensor stored = file.load(name);
    const Tensor typed = stored.dtype() == type ? stored : stored.to(type);
    if (!whole(type) && !all_finite(typed))
      bad_input(Code::tensor_value, "{}: {} contains a number that is not finite", file.path(), name);
    return typed;
  }

  // Rounds a tensor to the file's narrower type, if it has one.
  Tensor rounded_as(const std::string& name, const Tensor& values) const {
    const SafetensorsFile& file = file_of(name);
    if (file.dtype(name) == DType::bf16) return values.to(DType::bf16).to(values.dtype());
    if (!file.is_half(name)) return values;
    const Tensor out = values.to(DType::f64);
    for (double* one = out.data<double>(); one != out.data<double>() + out.elements(); ++one) *one = to_half(*one);
    return out.to(values.dtype());
  }

  // Throws if a file is of another model than config.json. Files that other programs wrote name none.
  void check_model(const JsonObject& config) const {
    const auto wanted = config.get<std::string>("model_id", "");
    for (const auto& [name, file] : files_) {
      const auto found = file->metadata().find("model_id");
      if (found == file->metadata().end() || found->second == wanted) continue;
      bad_input(Code::checkpoint_mixed, "{}: belongs to model {}, but config.json of {} to model {}; export it again",
                file->path(), escaped(shortened(found->second, 60)), folder_,
                wanted.empty() ? "(none)" : escaped(shortened(wanted, 60)));
    }
  }

  void check_nothing_left() const {
    for (const auto& [name, file] : files_) {
      if (std::find(taken_.begin(), taken_.end(), name) == taken_.end())
        bad_input(Code::tensor_unexpected, "{}: unexpected tensor {}", file->path(), escaped(shortened(name, 80)));
    }
  }

 private:
  const SafetensorsFile& file_of(const std::string& name) const {
    const auto found = files_.find(name);
    if (found == files_.end()) bad_input(Code::tensor_not_found, "{}: tensor {} not found", folder_, name);
    return *found->second;
  }
  void add(const std::string& name) {
    const auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(folder_ + "/" + name));
    for (const std::string& tensor : file->names()) {
      if (!files_.emplace(tensor, file).second)
        bad_input(Code::tensor_unexpected, "{}: tensor {} is also in another file", file->path(),
                  escaped(shortened(tensor, 80)));
    }
  }
  std::string folder_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<std::string> taken_;
};

Tokenizer read_tokenizer(const ImportOptions& options, const JsonObject& config, int vocab) {
  const std::string path = options.tokenizer.empty() ? options.folder + "/tokenizer.json" : options.tokenizer;
  if (!exists_path(path))
    bad_input(Code::tokenizer_unknown,
              "{}: tokenizer.json not found; use --tokenizer FILE (the exported folder had it)", options.folder);
  const Tokenizer tokenizer = Tokenizer::load(path);
  if (tokenizer.vocab_size() != static_cast<std::size_t>(vocab))
    bad_input(Code::tokenizer_mismatch, "{} has {} tokens, but the model has {}; use the tokenizer of this model", path,
              tokenizer.vocab_size(), vocab);
  // Missing in folders of older versions.
  const auto own = config.get<std::string>("tokenizer_hash", "");
  if (!own.empty() && own != hex(tokenizer.hash()))
    bad_input(
        Code::tokenizer_mismatch,
        "{}: has hash {}, but the model was exported with a tokenizer of hash {}; restore tokenizer.json (or remove "
        "tokenizer_hash from {} if the model was trained further with this one)",
        path, hex(tokenizer.hash()), shortened(own, 40), config.origin());
  return tokenizer;
}

// Throws if sizes read by other programs differ from the recipe: one of the two was changed.
void check_sizes(const JsonObject& config, const ModelConfig& model) {
  const std::pair<const char*, int> sizes[] = {
      {"hidden_size", model.d_model}, {"num_hidden_layers", model.layers}, {"num_attention_heads", model.heads}};
  for (const auto& [name, wanted] : sizes) {
    if (config.has(name) && config.need<std::int64_t>(name) != wanted)
      bad_input(Code::import_mismatch, "{}: {} is {}, but its recipe requires {}", config.origin(), name,
                config.need<std::int64_t>(name), wanted);
  }
}

// Checks shapes before the model is created: a recipe that requires more memory than the files hold must not allocate
// it.
void check_shapes(const Weights& weights, const ModelConfig& model) {
  ModelParameters parts(model);
  for (const Parameter& one : declare_parameters(parts)) {
    const std::string name = exported_name(one.name);
    if (one.trained() || (one.kind == Parameter::Kind::library && weights.has(name)))
      weights.check_shape(name, one.shape);
  }
  if (model.ffn != Ffn::some) return;
  for (int layer = 0; layer < model.layers; ++layer)
    weights.check_shape(fmt::format("layers.{}.keys", layer), {model.experts, model.query_size()});
}

// Checks that frozen experts are the ones that the recipe generates. They are not stored, as in every run.
void check_experts(Weights& weights, const Model& model, const Layer& layer) {
  const auto check = [&](const char* which, const Param& matrix) {
    if (matrix.value || !matrix.compute) return;
    const std::string name = fmt::format("layers.{}.experts.{}", layer.index, which);
    if (!weights.has(name)) return;
    const Tensor stored = weights.load(name, matrix.compute.shape(), matrix.compute.dtype());
    if (std::memcmp(stored.raw(), weights.rounded_as(name, matrix.compute).raw(), stored.bytes()) == 0) return;
    if (model.config().training == ExpertTraining::lora)
      bad_input(Code::library_mismatch,
                "{}: {} differs from the library of the recipe, and experts with LoRA cannot be replaced",
                weights.folder(), name);
    bad_input(
        Code::library_mismatch,
        "{}: {} differs from the library of the recipe (some.init, some.library_seed); if the experts were trained, "
        "use --trained-experts (sets some.training = \"full\"); otherwise the file is damaged",
        weights.folder(), name);
  };
  check("w1", layer.experts.w1);
  check("w2", layer.experts.w2);
}

void load_weights(Weights& weights, const JsonObject& config, Model& model) {
  for (auto& [name, tensor] : model_tensors(model))
    tensor.copy_from(weights.load(exported_name(name), tensor.shape(), tensor.dtype()));
  for (const Layer& layer : model.layers()) check_experts(weights, model, layer);
  weights.check_nothing_left();
  model.parameters().refresh_compute(model.context());
  const auto steps = config.need<std::vector<std::int64_t>>("key_steps");
  if (steps.size() != model.layers().size())
    bad_input(Code::import_mismatch, "{}: key_steps has {} numbers for {} layers", config.origin(), steps.size(),
              model.layers().size());
  for (Layer& layer : model.layers()) layer.keys.steps = steps[static_cast<std::size_t>(layer.index)];
}

void check_library(const JsonObject& config, const Model& model, const std::vector<Layer>& layers) {
  if (model.config().ffn != Ffn::some) return;
  const auto hashes = config.object("library").need<std::vector<std::string>>("hashes");
  for (const Layer& layer : layers) {
    const auto i = static_cast<std::size_t>(layer.index);
    if (i >= hashes.size() || hashes[i] != hex(layer.experts.library_hash))
      bad_input(Code::library_mismatch,
                "{}: the library of layer {} generated from its recipe has hash {}, but the model was trained with {}",
                config.origin(), i, hex(layer.experts.library_hash),
                i < hashes.size() ? escaped(shortened(hashes[i], 40)) : "none");
  }
}

}  // namespace

ImportResult import_hf(const ImportOptions& options) {
  const JsonObject config = read_config(options.folder);
  std::vector<std::string> changes;
  if (options.trained_experts) changes.push_back("some.training=full");
  if (config.get<std::string>("torch_dtype", "") == "float64") changes.push_back("train.precision=f64");
  Recipe recipe = recipe_from_json(config.object("recipe").json(), config.origin() + ": recipe", changes);
  const auto step = config.get<std::int64_t>("step", 0, 0, std::int64_t{1} << 53);
  recipe.model.vocab = config.need<int>("vocab_size", 4, 1048576);
  check_sizes(config, recipe.model);
  const Tokenizer tokenizer = read_tokenizer(options, config, recipe.model.vocab);
  Weights weights(options.folder);
  weights.check_model(config);

  const std::shared_ptr<Context> ctx = make_context(
      DeviceName{}, recipe.train.precision == PrecisionChoice::f64 ? Precision::f64 : Precision::fp32, options.host);
  check_shapes(weights, recipe.model);
  try {
    check_memory(recipe.model, *ctx);
  } catch (const Error& error) {
    throw error.within(config.origin(), config.origin() + ": " + error.what());
  }
  Model model(ctx, recipe.model, false);
  check_library(config, model, model.layers());
  load_weights(weights, config, model);

  AtomicFolder out("--out", options.out, files_of_import);
  const RunPaths paths{out.folder()};
  tokenizer.save(paths.tokenizer());
  // "finished": there are no optimizer moments from which training could resume.
  recipe.run_id = new_run_id("import", model, tokenizer);
  save_checkpoint(out.folder(), identity_of(recipe, tokenizer), step, model,
                  {{"finished", true}, {"imported_from", options.folder}, {"step", step}});
  save_key_positions(out.folder(), recipe.run_id, step, model);
  mark_latest(out.folder(), step);
  write_file_atomic(paths.config(), write_recipe(recipe));
  out.finish();
  return {options.out, step};
}

}  // namespace some
