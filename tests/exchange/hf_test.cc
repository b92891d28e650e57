// Export and import: Debian's PyTorch loads an exported model (tests/python/exported_models.py), results are compared
// number by number, and the import is bit-identical. Skipped without PyTorch.
#include "exchange/hf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/tiny_run.h"
#include "core/files/files.h"
#include "evaluation/evaluate.h"
#include "exchange/python_files.h"
#include "exchange/recipe_json.h"
#include "expect_error.h"
#include "half_file.h"
#include "inference/generate.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Case {
  std::string name;
  std::vector<std::string> settings;
};

// Every setting that affects a model's computation.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"published", {"model.norm=post", "some.router=mlp"}},
      {"pre-norm", {"model.norm=pre", "some.router=linear"}},
      {"rope", {"model.position=rope"}},
      {"grounded", {"some.ground=0.5", "some.query_dim=12"}},
      {"learned-temperature", {"some.temperature=learned", "some.key_ema=0.5"}},
      {"balance", {"some.balance_rate=0.01", "model.norm=post"}},
      {"random-routing", {"some.routing=hash", "some.top_k=3"}},
      {"input_proj", {"some.input_proj=true", "model.conv=2"}},
      {"output_proj", {"some.output_proj=linear", "some.init=sparse"}},
      {"features", {"some.output_proj=features", "some.init=orthogonal"}},
      {"lora", {"some.training=lora", "some.lora_rank=3"}},
      {"lora-features", {"some.training=lora", "some.output_proj=features"}},
      {"full", {"some.training=full", "model.norm=post"}},
      {"modulated", {"some.output_proj=modulated", "some.input_proj=true"}},
      {"modulated-listen", {"some.output_proj=modulated", "some.token_shift=3", "model.conv=2", "model.norm=post"}},
      {"modulated-inside", {"some.output_proj=modulated", "some.modulation=additive", "some.modulation_scale=0.5"}},
      {"modulated-full", {"some.output_proj=modulated", "some.training=full", "some.token_shift=2"}},
      {"hadamard", {"some.init=hadamard", "some.hadamard_transforms=2", "some.d_ffn=70"}},
      {"hadamard-features", {"some.init=hadamard", "some.output_proj=features"}},
      {"hadamard-lora", {"some.init=hadamard", "some.training=lora", "some.output_proj=linear"}},
      {"hadamard-listen", {"some.init=hadamard", "some.output_proj=modulated", "some.token_shift=3"}},
      {"hadamard-full", {"some.init=hadamard", "some.training=full"}},
      {"gains-alone", {"some.output_proj=modulated", "some.use_library=false"}},
      {"dense", {"model.ffn=dense", "model.dense_mult=1.3"}},
      {"dense-look-back", {"model.ffn=dense", "model.conv=3", "model.norm=post", "model.position=rope"}},
      {"no-ffn-pre", {"model.ffn=none"}},
      {"no-ffn-post", {"model.ffn=none", "model.norm=post"}},
      {"not-causal", {"model.causal=false"}},
      {"double", {"train.precision=f64", "some.init=orthogonal"}},
  };
  return all;
}

bool draws_a_library(const ModelConfig& model) {
  return model.ffn == Ffn::some && model.use_library && model.training != ExpertTraining::full;
}

std::string make_run(const TemporaryFolder& folder, const Case& one) {
  std::vector<std::string> settings{"train.max_steps=4",    "data.train_documents=40", "data.valid_documents=6",
                                    "data.vocab=320",       "train.device=cpu",        "some.decay_warmup=1",
                                    "train.warmup_steps=1", "some.use_alpha=true",     "some.use_beta=true",
                                    "some.use_delta=true",  "model.d_model=24",        "some.d_ffn=20",
                                    "some.experts=6"};
  settings.insert(settings.end(), one.settings.begin(), one.settings.end());
  const std::string run = folder / "runs/" + one.name;
  start_run(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml", settings), run, {});
  return run;
}

Batch batch_of(const std::vector<std::vector<std::int32_t>>& rows) {
  Batch batch;
  batch.offsets = {0};
  for (const auto& row : rows) {
    for (std::size_t t = 0; t < row.size(); ++t) {
      batch.tokens.push_back(row[t]);
      batch.targets.push_back(t + 1 < row.size() ? row[t + 1] : -1);
      batch.positions.push_back(static_cast<std::int32_t>(t));
    }
    batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.longest = std::max<std::int64_t>(batch.longest, static_cast<std::int64_t>(row.size()));
  }
  batch.predicted = batch.size() - batch.rows();
  return batch;
}

Tensor logits_of(OpenedRun& run, const std::vector<std::vector<std::int32_t>>& rows) {
  run.ctx->arena->reset();
  return run.model->logits(upload(*run.ctx, batch_of(rows)), {}).clone();
}

OpenedRun open_here(const std::string& folder) { return open_run(folder, {"latest", on_cpu, {}, {}}); }

std::string only_checkpoint(const std::string& run) {
  return find_checkpoint(run, "latest").folder + "/model.safetensors";
}

std::string digest(const std::string& path) { return SafetensorsFile::open(path).content_digest(); }

const std::vector<std::vector<std::int32_t>> rows = {{5, 90, 17, 231, 12, 80, 80, 44, 9, 300, 33, 61, 7, 18, 254, 99},
                                                     {40, 41, 42, 43, 200, 201, 14}};

// Debian's Python, not the first one on the path.
std::string python() { return SOME_PYTHON; }
bool has_torch() { return std::system((python() + " -c 'import torch, numpy' 2>/dev/null").c_str()) == 0; }

int run_python(const TemporaryFolder& folder, const std::string& words, std::string& output) {
  const int status = std::system((python() + " " + words + " >" + (folder / "output") + " 2>&1").c_str());
  output = read_file(folder / "output");
  return status;
}

void write_case(const TemporaryFolder& folder, const Case& one) {
  const std::string run_folder = make_run(folder, one), place = folder / "cases/" + one.name;
  fs::create_directories(place);
  export_hf({.run = run_folder, .out = place + "/export"});
  OpenedRun run = open_here(run_folder);
  if (draws_a_library(run.recipe.model))
    export_hf({.run = run_folder, .out = place + "/seed", .experts_from_seed = true, .shard_bytes = 20000});
  Json expected{{"rows", rows}, {"prompt", rows[1]}, {"tokens", 200}};
  if (run.recipe.model.causal) {
    const std::string prompt = run.tokenizer.decode(rows[1]);
    expected["prompt"] = run.tokenizer.encode(prompt);
    GenerateOptions how;
    how.temperature = 0;
    expected["greedy"] = generate(*run.model, run.tokenizer, {prompt}, how)[0].tokens;
    how.temperature = 0.9;
    how.top_p = 0.95;
    how.seed = 7;
    how.max_tokens = 40;
    expected["sampled"] = generate(*run.model, run.tokenizer, {prompt}, how)[0].tokens;
  }
  write_file_atomic(place + "/expected.json", expected.dump());
  write_safetensors(place + "/expected.safetensors", {{"logits", logits_of(run, rows)}}, {});
}

TEST(HuggingFace, EverySettingComputesTheSameInPyTorchAndComesBack) {
  if (!has_torch()) GTEST_SKIP() << python() << " has no torch and numpy (Debian's python3-torch)";
  const TemporaryFolder folder;
  for (const Case& one : cases()) write_case(folder, one);
  std::string output;
  const int status =
      run_python(folder, SOME_SOURCE_DIR "/tests/python/exported_models.py '" + (folder / "cases") + "'", output);
  ASSERT_EQ(status, 0) << output;
  for (const Case& one : cases()) {
    EXPECT_NE(output.find(one.name + ": logits within"), std::string::npos) << one.name << "\n" << output;
    const std::string place = folder / "cases/" + one.name, original = only_checkpoint(folder / "runs/" + one.name);
    // Imported back directly, from a library generated there, and after PyTorch saved it again: the same tensors each
    // time.
    for (const char* way : {"export", "seed", "again"}) {
      if (!fs::exists(place + "/" + way)) continue;
      const std::string run = place + "/run-" + way;
      import_hf({.folder = place + "/" + way, .out = run});
      EXPECT_EQ(digest(only_checkpoint(run)), digest(original)) << one.name << " " << way;
    }
    // Trained further in PyTorch: the imported model computes what it computed there.
    import_hf({.folder = place + "/trained", .out = place + "/run-trained"});
    OpenedRun run = open_here(place + "/run-trained");
    const std::vector<double> here = read_vector(logits_of(run, rows));
    const std::vector<double> there = read_vector(SafetensorsFile::open(place + "/trained.safetensors").load("logits"));
    double apart = 0;
    for (std::size_t i = 0; i < here.size(); ++i) apart = std::max(apart, std::abs(here[i] - there[i]));
    EXPECT_LT(apart, 1e-5) << one.name;
    EXPECT_NE(digest(only_checkpoint(place + "/run-trained")), digest(original)) << one.name;
  }
}

TEST(HuggingFace, TheLayerThatTransformersSeesWorksOnAStandIn) {
  if (!has_torch()) GTEST_SKIP() << python() << " has no torch and numpy (Debian's python3-torch)";
  const TemporaryFolder folder;
  const Case one{"modulated", {"some.output_proj=modulated", "some.token_shift=2", "model.conv=1"}};
  export_hf({.run = make_run(folder, one), .out = folder / "export"});
  setenv("PYTHONPATH", SOME_SOURCE_DIR "/tests/python/stand_in", 1);
  std::string output;
  const int status =
      run_python(folder, SOME_SOURCE_DIR "/tests/python/transformers_layer.py '" + (folder / "export") + "'", output);
  unsetenv("PYTHONPATH");
  EXPECT_EQ(status, 0) << output;
  EXPECT_NE(output.find("transformers:"), std::string::npos) << output;
}

class Damaged : public testing::Test {
 protected:
  Damaged() {
    run_ = make_run(folder_, {"small", {}});
    export_hf({.run = run_, .out = good_, .controls = {run_}});
  }
  // A copy of the export to be damaged.
  std::string copy() {
    const std::string place = folder_ / fmt::format("copy-{}", ++count_);
    fs::copy(good_, place, fs::copy_options::recursive);
    return place;
  }
  std::optional<Error> fault(const std::string& place, ImportOptions options = {}) {
    options.folder = place;
    options.out = folder_ / "back";
    const auto error = error_in([&] { import_hf(options); });
    EXPECT_FALSE(fs::exists(options.out));
    EXPECT_FALSE(fs::exists(options.out + ".writing"));
    return error;
  }
  std::optional<Error> with_config(const std::function<void(Json&)>& change) {
    const std::string place = copy();
    Json config = Json::parse(read_file(place + "/config.json"));
    change(config);
    write_file_atomic(place + "/config.json", config.dump());
    return fault(place);
  }
  std::optional<Error> with_tensors(const std::function<void(std::vector<std::pair<std::string, Tensor>>&)>& change,
                                    ImportOptions options = {}) {
    const std::string place = copy(), path = place + "/model.safetensors";
    std::vector<std::pair<std::string, Tensor>> tensors;
    {
      const SafetensorsFile file = SafetensorsFile::open(path);
      for (const std::string& name : file.names()) tensors.emplace_back(name, file.load(name));
    }
    change(tensors);
    write_safetensors(path, tensors, {});
    return fault(place, options);
  }
  TemporaryFolder folder_;
  std::string run_, good_ = folder_ / "export";
  int count_ = 0;
};

TEST_F(Damaged, FilesAreRefusedByNamingWhatIsWrong) {
  const auto has = [](const std::optional<Error>& error, Code code, const std::vector<std::string>& values) {
    EXPECT_TRUE(is_bad_input(error, code, values));
  };
  has(fault(folder_ / "nowhere"), Code::folder_not_found, {folder_ / "nowhere"});
  has(fault(run_), Code::import_invalid, {run_});
  has(with_config([](Json& config) { config["model_type"] = "gpt2"; }), Code::import_invalid, {"gpt2"});
  has(with_config([](Json& config) { config.erase("recipe"); }), Code::json_missing, {"recipe"});
  has(with_config([](Json& config) { config["recipe"]["model"]["d_model"] = 25; }), Code::setting_out_of_range,
      {"model.heads"});
  has(with_config([](Json& config) { config["recipe"]["some"]["colour"] = "red"; }), Code::setting_unknown,
      {"some.colour"});
  has(with_config([](Json& config) { config["recipe"]["some"]["top_k"] = "two"; }), Code::setting_type, {"some.top_k"});
  has(with_config([](Json& config) { config["hidden_size"] = 32; }), Code::import_mismatch,
      {"hidden_size", "32", "24"});
  has(with_config([](Json& config) { config["vocab_size"] = 321; }), Code::tokenizer_mismatch, {"320", "321"});
  has(with_config([](Json& config) { config["key_steps"] = {1}; }), Code::import_mismatch, {"1", "2"});
  has(with_config([](Json& config) { config["recipe"]["some"]["library_seed"] = 9; }), Code::library_mismatch, {"0"});
  has(with_config([](Json& config) { config["recipe"]["some"]["query_dim"] = 5; }), Code::tensor_shape,
      {"layers.0.router.1.weight"});
  // Does not allocate memory for tensors that the files do not hold.
  has(with_config([](Json& config) { config["recipe"]["some"]["experts"] = 1000000; }), Code::tensor_shape, {});

  const auto find = [](auto& tensors, const std::string& name) -> Tensor& {
    return std::find_if(tensors.begin(), tensors.end(), [&](auto& one) { return one.first == name; })->second;
  };
  has(with_tensors([](auto& tensors) { std::erase_if(tensors, [](auto& one) { return one.first == "head.bias"; }); }),
      Code::tensor_not_found, {"head.bias"});
  has(with_tensors([](auto& tensors) { tensors.emplace_back("wte.weight", tensors[0].second); }),
      Code::tensor_unexpected, {"wte.weight"});
  has(with_tensors([&](auto& tensors) { find(tensors, "head.bias") = Tensor::zeros({3}, DType::f32); }),
      Code::tensor_shape, {"head.bias", "[3]"});
  has(with_tensors([&](auto& tensors) { find(tensors, "layers.0.key_counts") = Tensor::zeros({4}, DType::f32); }),
      Code::tensor_type, {"layers.0.key_counts", "f32", "i64"});
  const auto learnt = [&](auto& tensors) {
    find(tensors, "layers.1.experts.w2") = find(tensors, "layers.1.experts.w2").clone();
    find(tensors, "layers.1.experts.w2").template data<float>()[7] += 0.25f;
  };
  has(with_tensors(learnt), Code::library_mismatch, {"layers.1.experts.w2"});
  has(with_tensors([&](auto& tensors) {
        find(tensors, "head.bias") = find(tensors, "head.bias").clone();
        find(tensors, "head.bias").template data<float>()[2] = NAN;
      }),
      Code::tensor_value, {"head.bias"});

  std::string place = copy(), bytes = read_file(place + "/model.safetensors");
  write_file_atomic(place + "/model.safetensors", bytes.substr(0, bytes.size() - 5));
  has(fault(place), Code::safetensors_layout, {place + "/model.safetensors"});
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  write_file_atomic(place + "/model.safetensors", bytes);
  has(fault(place), Code::tensor_damaged, {place + "/model.safetensors"});
  fs::remove(place + "/model.safetensors");
  has(fault(place), Code::import_invalid, {place});
  write_file_atomic(place + "/model.safetensors.index.json", R"({"weight_map": {"head.bias": "../elsewhere"}})");
  has(fault(place), Code::import_invalid, {"../elsewhere"});
  place = copy();
  fs::remove(place + "/tokenizer.json");
  has(fault(place), Code::tokenizer_unknown, {place});
}

TEST_F(Damaged, WeightsOfAnotherExportAreRefused) {
  const std::string place = copy(), path = place + "/model.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.load(name));
  const std::string own = file.require_metadata("model_id");
  EXPECT_EQ(JsonObject(parse_json(read_file(place + "/config.json"), "config"), "config").need<std::string>("model_id"),
            own);
  write_safetensors(path, tensors, {{"format", "pt"}, {"model_id", "0123456789abcdef-7"}});
  EXPECT_TRUE(is_bad_input(fault(place), Code::checkpoint_mixed, {path, "0123456789abcdef-7", place, own}));
  // Other programs name no model.
  write_safetensors(path, tensors, {{"format", "pt"}});
  import_hf({.folder = place, .out = folder_ / "elsewhere"});
  // The settings of another export.
  EXPECT_TRUE(is_bad_input(with_config([](Json& config) { config["model_id"] = "another"; }), Code::checkpoint_mixed,
                           {"another"}));
}

TEST_F(Damaged, ExpertsTrainedElsewhereAreKeptIfRequested) {
  const std::string place = copy(), path = place + "/model.safetensors";
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const std::string& name : file.names()) tensors.emplace_back(name, file.load(name));
  }
  for (auto& [name, tensor] : tensors) {
    if (name == "layers.1.experts.w2") tensor.data<float>()[7] += 0.25f;
  }
  write_safetensors(path, tensors, {});
  import_hf({.folder = place, .out = folder_ / "back", .trained_experts = true});
  OpenedRun before = open_here(run_), after = open_here(folder_ / "back");
  EXPECT_EQ(after.recipe.model.training, ExpertTraining::full);
  const std::vector<double> frozen = read_vector(before.model->layers()[1].experts.w2.compute),
                            learnt = read_vector(after.model->layers()[1].experts.w2.compute);
  EXPECT_DOUBLE_EQ(learnt[7], static_cast<double>(static_cast<float>(frozen[7]) + 0.25f));
  EXPECT_EQ(read_vector(before.model->layers()[0].experts.w1.compute),
            read_vector(after.model->layers()[0].experts.w1.compute));
}

TEST_F(Damaged, WeightsInHalfPrecisionComeBackRounded) {
  const std::string place = copy(), path = place + "/model.safetensors";
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const std::string& name : file.names()) tensors.emplace_back(name, file.load(name));
  }
  write_half_file(path, tensors);
  import_hf({.folder = place, .out = folder_ / "back"});
  OpenedRun before = open_here(run_), after = open_here(folder_ / "back");
  // Frozen experts are regenerated, not rounded; trained parameters are rounded.
  EXPECT_EQ(read_vector(before.model->layers()[1].experts.w2.compute),
            read_vector(after.model->layers()[1].experts.w2.compute));
  const Tensor own = before.model->parameters().value, back = after.model->parameters().value;
  for (std::int64_t i = 0; i < own.elements(); ++i)
    ASSERT_EQ(back.data<float>()[i], half_value(half_bits(own.data<float>()[i]))) << i;
}

TEST_F(Damaged, TheFolderIsWholeAndTheCardTellsTheNumbers) {
  for (const EmbeddedFile& file : python_files()) {
    EXPECT_EQ(read_file(good_ + "/" + std::string(file.name)),
              read_file(SOME_SOURCE_DIR "/python/hf/" + std::string(file.name)));
  }
  const std::string card = read_file(good_ + "/README.md");
  const RunHistory history = read_history(*find_run(run_));
  ASSERT_NE(history.last(), nullptr);
  EXPECT_NE(card.find(fmt::format("{:.4f}", history.last()->loss)), std::string::npos) << card;
  EXPECT_NE(card.find("what differs"), std::string::npos);
  const Json generation = Json::parse(read_file(good_ + "/generation_config.json"));
  EXPECT_EQ(generation["eos_token_id"], open_here(run_).tokenizer.eos_id());
  // Nothing is overwritten, and settings are preserved.
  EXPECT_ERROR((export_hf({.run = run_, .out = good_})), Code::path_exists, good_);
  const Recipe recipe = read_run_recipe(run_);
  EXPECT_EQ(recipe_settings(recipe_from_json(recipe_to_json(recipe), "here")), recipe_settings([&] {
              Recipe without_machine = recipe;
              without_machine.train.device = TrainConfig{}.device;
              without_machine.train.threads = TrainConfig{}.threads;
              without_machine.train.precision = TrainConfig{}.precision;
              return without_machine;
            }()));
}

TEST(HuggingFace, WhatHasNoSeedIsRefused) {
  const TemporaryFolder folder;
  const std::string dense = make_run(folder, {"dense", {"model.ffn=dense"}}),
                    full = make_run(folder, {"full", {"some.training=full"}});
  EXPECT_ERROR((export_hf({.run = dense, .out = folder / "a", .experts_from_seed = true})), Code::export_unsupported,
               dense);
  EXPECT_ERROR((export_hf({.run = full, .out = folder / "a", .experts_from_seed = true})), Code::export_unsupported,
               full);
}

}  // namespace
}  // namespace some
