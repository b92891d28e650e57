// Experts from blocks of other models: their layout, rejected inputs, and a run that trains with them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/tiny_run.h"
#include "core/files/files.h"
#include "exchange/hf.h"
#include "exchange/library_dense.h"
#include "exchange/library_import.h"
#include "expect_error.h"
#include "half_file.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Named = std::vector<std::pair<std::string, Tensor>>;

Tensor numbers(const Shape& shape, float first) {
  Tensor out = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < out.elements(); ++i) out.data<float>()[i] = first + 0.01f * static_cast<float>(i % 97);
  return out;
}

float at(const Tensor& tensor, std::int64_t row, std::int64_t col) {
  return tensor.data<float>()[row * tensor.dim(1) + col];
}
float at(const Tensor& tensor, std::int64_t e, std::int64_t row, std::int64_t col) {
  return tensor.data<float>()[(e * tensor.dim(1) + row) * tensor.dim(2) + col];
}

// Blocks of 10 hidden units and a width of 6, [out, in].
constexpr int width = 6, hidden = 10, blocks = 3;
Named pythia_model() {
  Named out;
  for (int i = 0; i < blocks; ++i) {
    const std::string prefix = fmt::format("gpt_neox.layers.{}.mlp.", i);
    out.emplace_back(prefix + "dense_h_to_4h.weight", numbers({hidden, width}, static_cast<float>(i)));
    out.emplace_back(prefix + "dense_h_to_4h.bias", numbers({hidden}, 0));
    out.emplace_back(prefix + "dense_4h_to_h.weight", numbers({width, hidden}, static_cast<float>(-i)));
  }
  out.emplace_back("gpt_neox.embed_in.weight", numbers({4, width}, 0));
  return out;
}

class LibraryTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const Named& tensors) {
    write_safetensors(folder_ / name, tensors, {});
    return folder_ / name;
  }
  LibraryImport options(const std::string& model) {
    LibraryImport out;
    out.models = {model};
    out.folder = folder_ / "libraries";
    return out;
  }
  std::optional<Error> fault(const LibraryImport& how) {
    return error_in([&] { import_library(how); });
  }
  TemporaryFolder folder_;
};

void has(const std::optional<Error>& error, Code code, const std::vector<std::string>& values) {
  EXPECT_TRUE(is_bad_input(error, code, values));
}

TEST_F(LibraryTest, BlocksAreCutIntoExpertsThatTogetherAreTheBlocks) {
  const Named tensors = pythia_model();
  LibraryImport how = options(write("pythia.safetensors", tensors));
  how.d_ffn = 4;
  how.layers = 2;
  const ImportedLibrary made = import_library(how);
  EXPECT_EQ(made.about.experts, 6);  // two pieces of three blocks
  EXPECT_EQ(made.left_out, 2);
  EXPECT_TRUE(made.biases_left_out);
  EXPECT_FALSE(made.adapted);
  const SafetensorsFile file = SafetensorsFile::open(made.path);
  for (int l = 0; l < 2; ++l) {
    const Tensor w1 = file.load(fmt::format("layers.{}.w1", l)), w2 = file.load(fmt::format("layers.{}.w2", l));
    for (int e = 0; e < 6; ++e) {
      const int block = (l * blocks / 2 + e / 2) % blocks, unit = e % 2 * 4;
      const Tensor &up = tensors[static_cast<std::size_t>(3 * block)].second,
                   &down = tensors[static_cast<std::size_t>(3 * block + 2)].second;
      for (int u = 0; u < 4; ++u) {
        for (int c = 0; c < width; ++c) {
          ASSERT_EQ(at(w1, e, u, c), at(up, unit + u, c)) << l << " " << e;
          ASSERT_EQ(at(w2, e, c, u), at(down, c, unit + u)) << l << " " << e;
        }
      }
    }
  }
  // The file name is a hash of the contents, so it is written once.
  const LibraryFile about = read_library_file(made.path);
  EXPECT_EQ(about.hash, fs::path(made.path).stem().string());
  EXPECT_EQ(import_library(how).path, made.path);
  EXPECT_EQ(std::distance(fs::directory_iterator(how.folder), fs::directory_iterator()), 1);
}

TEST_F(LibraryTest, NamesOfGpt2AreKnownAndItsMatricesTurned) {
  Named turned;
  for (const auto& [name, tensor] : pythia_model()) {
    if (tensor.shape().rank() != 2 || name.find("mlp") == std::string::npos) continue;
    Tensor other = Tensor::empty({tensor.dim(1), tensor.dim(0)}, DType::f32);
    for (std::int64_t r = 0; r < tensor.dim(0); ++r)
      for (std::int64_t c = 0; c < tensor.dim(1); ++c) other.data<float>()[c * tensor.dim(0) + r] = at(tensor, r, c);
    const std::string block = name.substr(16, 1);
    turned.emplace_back(fmt::format("transformer.h.{}.mlp.{}.weight", block,
                                    name.find("h_to_4h") != std::string::npos ? "c_fc" : "c_proj"),
                        other);
  }
  const ImportedLibrary pythia = import_library(options(write("pythia.safetensors", pythia_model()))),
                        gpt2 = import_library(options(write("gpt2.safetensors", turned)));
  EXPECT_EQ(gpt2.about.hash, pythia.about.hash);
  LibraryImport own = options(folder_ / "pythia.safetensors");
  own.pattern = "gpt_neox.layers.{}.mlp.dense_h_to_4h.weight,gpt_neox.layers.{}.mlp.dense_4h_to_h.weight";
  EXPECT_EQ(import_library(own).about.hash, pythia.about.hash);
}

TEST_F(LibraryTest, ModelsInHalfPrecisionAreTaken) {
  write_half_file(folder_ / "half.safetensors", pythia_model());
  const ImportedLibrary made = import_library(options(folder_ / "half.safetensors"));
  const Tensor w1 = SafetensorsFile::open(made.path).load("layers.0.w1"), up = pythia_model()[0].second;
  ASSERT_EQ(w1.dtype(), DType::f32);
  for (int u = 0; u < hidden; ++u)
    for (int c = 0; c < width; ++c) ASSERT_EQ(at(w1, 0, u, c), half_value(half_bits(at(up, u, c))));
}

TEST_F(LibraryTest, AnotherWidthIsMetThroughAnOrthonormalMap) {
  LibraryImport how = options(write("pythia.safetensors", pythia_model()));
  how.d_model = 9;  // wider: lengths and inner products are preserved
  const ImportedLibrary made = import_library(how), plain = import_library(options(how.models[0]));
  EXPECT_TRUE(made.adapted);
  const Tensor wide = SafetensorsFile::open(made.path).load("layers.0.w1"),
               own = SafetensorsFile::open(plain.path).load("layers.0.w1");
  ASSERT_EQ(wide.shape(), Shape({3, hidden, 9}));
  for (int a = 0; a < hidden; ++a) {
    for (int b = 0; b < hidden; ++b) {
      double here = 0, there = 0;
      for (int c = 0; c < 9; ++c) here += static_cast<double>(at(wide, 0, a, c)) * at(wide, 0, b, c);
      for (int c = 0; c < width; ++c) there += static_cast<double>(at(own, 0, a, c)) * at(own, 0, b, c);
      EXPECT_NEAR(here, there, 1e-5);
    }
  }
  how.seed = 1;
  EXPECT_NE(import_library(how).about.hash, made.about.hash);
  how.d_model = 4;
  EXPECT_EQ(import_library(how).about.d_model, 4);
}

TEST_F(LibraryTest, WhatMakesNoLibraryIsRefusedByName) {
  LibraryImport how = options(write("pythia.safetensors", pythia_model()));
  how.pattern = "bert";
  has(fault(how), Code::option_invalid, {"--pattern", "bert"});
  how.pattern = "gpt2";
  has(fault(how), Code::import_invalid, {"gpt2"});
  how.pattern = "one,two";
  has(fault(how), Code::option_invalid, {"--pattern", "one,two", "one"});
  how.pattern = "x.{}.up,x.{}.down";
  has(fault(how), Code::tensor_not_found, {"x.0.up"});
  how.pattern.clear();
  how.d_ffn = 11;
  has(fault(how), Code::option_invalid, {"--d-ffn", "11"});
  how.d_ffn = 5;
  how.experts = 7;
  has(fault(how), Code::option_invalid, {"--experts", "7", "6", "5"});
  Named gated{{"model.layers.0.mlp.gate_proj.weight", numbers({4, 4}, 0)}};
  has(fault(options(write("gated.safetensors", gated))), Code::model_unsuitable, {});
  Named uneven = pythia_model();
  uneven[5].second = numbers({width, hidden + 1}, 0);
  has(fault(options(write("uneven.safetensors", uneven))), Code::tensor_shape, {});
  uneven = pythia_model();
  uneven[0].second = uneven[0].second.clone();
  uneven[0].second.data<float>()[3] = NAN;
  has(fault(options(write("nan.safetensors", uneven))), Code::tensor_value, {});
  Named empty{{"layers.0.ffn.0.weight", numbers({0, 4}, 0)}, {"layers.0.ffn.1.weight", numbers({4, 0}, 0)}};
  has(fault(options(write("empty.safetensors", empty))), Code::tensor_shape,
      {folder_ / "empty.safetensors", "layers.0.ffn.0.weight"});
  folder_.write("text.safetensors", "hello");
  has(fault(options(folder_ / "text.safetensors")), Code::safetensors_header, {folder_ / "text.safetensors"});
}

TEST_F(LibraryTest, ARunTrainsWithThemAndKnowsThemAgain) {
  const std::vector<std::string> small{"train.max_steps=3", "data.train_documents=40", "data.valid_documents=6",
                                       "data.vocab=320",    "train.device=cpu",        "train.warmup_steps=1"};
  const auto train = [&](std::vector<std::string> settings, const std::string& name) {
    settings.insert(settings.begin(), small.begin(), small.end());
    start_run(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml", settings), folder_ / name, {});
    return folder_ / name;
  };
  const std::string dense = train({"model.ffn=dense", "model.dense_mult=2"}, "dense");
  LibraryImport how = options(find_checkpoint(dense, "latest").folder + "/model.safetensors");
  how.d_ffn = 16;
  const ImportedLibrary made = import_library(how);
  EXPECT_EQ(made.about.experts, 8);  // two blocks of 64
  const std::vector<std::string> uses{"some.init=file:" + made.path, "some.experts=8", "some.d_ffn=16"};
  const std::string run = train(uses, "run");
  OpenedRun opened = open_run(run, {"latest", on_cpu, {}, {}});
  const Tensor stored = SafetensorsFile::open(made.path).load("layers.1.w2");
  EXPECT_EQ(read_vector(opened.model->layers()[1].experts.w2.compute), read_vector(stored));
  // Fewer experts, in double precision.
  const OpenedRun fewer = open_run(train({uses[0], "some.experts=5", "some.d_ffn=16", "train.precision=f64"}, "fewer"),
                                   {"latest", on_cpu, PrecisionChoice::f64, {}});
  EXPECT_EQ(fewer.model->layers()[0].experts.w1.compute.dim(0), 5);

  export_hf({.run = run, .out = folder_ / "exported"});
  import_hf({.folder = folder_ / "exported", .out = folder_ / "back"});
  const auto weights = [](const std::string& of) {
    return SafetensorsFile::open(find_checkpoint(of, "latest").folder + "/model.safetensors").content_digest();
  };
  EXPECT_EQ(weights(folder_ / "back"), weights(run));
  has(error_in([&] { export_hf({.run = run, .out = folder_ / "seed", .experts_from_seed = true}); }),
      Code::export_unsupported, {run});

  has(error_in([&] { train({uses[0], "some.experts=9", "some.d_ffn=16"}, "a"); }), Code::library_mismatch, {"8", "9"});
  has(error_in([&] {
        train({uses[0], "some.experts=8", "some.d_ffn=20"}, "a");
      }),
      Code::library_mismatch, {"16", "32"});
  has(error_in([&] {
        train({uses[0], "some.experts=8", "some.d_ffn=16", "model.layers=3"}, "a");
      }),
      Code::library_mismatch, {made.path, "2"});
  has(error_in([&] { train({"some.init=file:" + how.models[0]}, "a"); }), Code::library_invalid, {how.models[0]});
  has(error_in([&] { train({"some.init=file:"}, "a"); }), Code::setting_out_of_range, {"some.init"});
  // Another library of the same size under the same name: the checkpoint's hash detects it.
  const std::string other =
      import_library([&] {
        LibraryImport twice = how;
        twice.d_model = 32;
        twice.models = {
            find_checkpoint(train({"model.ffn=dense", "model.dense_mult=2", "seed=5"}, "dense-5"), "latest").folder +
            "/model.safetensors"};
        return twice;
      }())
          .path;
  fs::rename(made.path, made.path + ".aside");
  has(error_in([&] { open_run(run, {"latest", on_cpu, {}, {}}); }), Code::file_not_found, {"some.init", made.path});
  fs::copy(other, made.path);
  has(error_in([&] { open_run(run, {"latest", on_cpu, {}, {}}); }), Code::checkpoint_mismatch, {});
}

// Losses and gradient norms of all steps, and the losses of evaluations.
std::vector<double> numbers_of(const std::string& run) {
  std::vector<double> out;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json one = nlohmann::json::parse(line);
    for (const char* key : {"loss", "gradient_norm"}) {
      if (one.contains(key)) out.push_back(one[key].get<double>());
    }
  }
  return out;
}

// Largest relative difference.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t n = 0; n < std::min(a.size(), b.size()); ++n)
    largest = std::max(largest, std::abs(a[n] - b[n]) / std::abs(a[n]));
  return largest;
}

// Transform experts, and the same experts as stored matrices.
TEST_F(LibraryTest, WrittenOutTransformsTrainTheSame) {
  const std::vector<std::string> small{"train.max_steps=3",     "data.train_documents=40", "data.valid_documents=6",
                                       "data.vocab=320",        "train.device=cpu",        "train.warmup_steps=1",
                                       "train.measure_every=1", "train.eval_every=1",      "some.init=hadamard"};
  const auto train = [&](std::vector<std::string> settings, const std::string& name) {
    settings.insert(settings.begin(), small.begin(), small.end());
    start_run(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml", settings), folder_ / name, {});
    return folder_ / name;
  };
  const std::vector<std::vector<std::string>> cases{
      {"model.d_model=24", "some.d_ffn=20", "some.library_seed=3", "train.precision=f64"},
      {"model.d_model=36", "some.d_ffn=130", "some.hadamard_transforms=2", "some.output_proj=linear", "seed=4"},
      {"model.d_model=32", "some.d_ffn=48", "some.output_proj=features", "train.precision=f64"},
      {"model.d_model=68", "some.d_ffn=50", "some.output_proj=modulated", "some.token_shift=3", "some.library_seed=11"},
      {"model.d_model=20", "some.d_ffn=33", "some.output_proj=modulated", "some.hadamard_transforms=3",
       "some.modulation=additive", "train.precision=f64"},
      {"model.d_model=28", "some.d_ffn=40", "some.training=lora", "some.lora_rank=3"},
      {"model.d_model=24", "some.d_ffn=30", "some.training=full", "some.library_seed=5"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string run = train(cases[i], fmt::format("transforms-{}", i));
    const WrittenLibrary made = write_dense_library({run, folder_ / "dense", {}});
    EXPECT_EQ(made.about.layers, 2);
    EXPECT_EQ(made.about.experts, 8);
    std::vector<std::string> settings = cases[i];
    settings.push_back("some.init=file:" + made.path);
    const std::vector<double> here = numbers_of(run), there = numbers_of(train(settings, fmt::format("dense-{}", i)));
    ASSERT_GE(here.size(), 7u);
    const bool wide = cases[i].back() == "train.precision=f64";
    // The file stores single precision.
    EXPECT_LT(apart(here, there), wide ? 1e-6 : 2e-5) << i;
    // Another seed generates another library.
    settings.pop_back();
    settings.emplace_back("some.library_seed=77");
    EXPECT_GT(apart(here, numbers_of(train(settings, fmt::format("other-{}", i)))), 1e-4) << i;
  }
  const std::string dense = train({"model.ffn=dense", "some.init=default"}, "no-experts");
  has(error_in([&] { write_dense_library({dense, folder_ / "dense", {}}); }), Code::export_unsupported, {dense});
}

// A checkpoint identifies its experts by their specification.
TEST_F(LibraryTest, TransformsAreKnownByTheirSpecification) {
  const std::string run = folder_ / "run";
  start_run(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml",
                        {"train.max_steps=2", "data.train_documents=40", "data.valid_documents=6", "data.vocab=320",
                         "train.device=cpu", "train.warmup_steps=1", "some.init=hadamard"}),
            run, {});
  EXPECT_FALSE(open_run(run, {"latest", on_cpu, {}, {}}).model->layers()[0].experts.w1.compute);
  const std::string path = run + "/config.toml", text = read_file(path);
  for (const auto& [from, to] : {std::pair{"library_seed = 0", "library_seed = 1"},
                                 std::pair{"hadamard_transforms = 1", "hadamard_transforms = 2"},
                                 std::pair{"init = \"hadamard\"", "init = \"default\""}}) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    write_file_atomic(path, changed);
    has(error_in([&] { open_run(run, {"latest", on_cpu, {}, {}}); }), Code::checkpoint_mismatch, {});
  }
}

}  // namespace
}  // namespace some
