// Files of other programs: an exported model to be imported, blocks of other models, libraries of experts.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "exchange/hf.h"
#include "exchange/library_import.h"
#include "experts/library_file.h"
#include "fuzz/fuzz.h"
#include "recipe/recipe.h"
#include "runs/checkpoint.h"
#include "runs/run.h"
#include "tensor/safetensors.h"

namespace some::fuzz {
namespace {

namespace fs = std::filesystem;

// An exported model in both layouts: all weights in one file, and several files with an index. Input: number of the
// damaged file, then its bytes.
class ImportTarget : public Target {
 public:
  explicit ImportTarget(const std::string& scratch) : folder_(scratch + "/import") {}
  std::string name() const override { return "import"; }
  std::string origin() const override { return folder_; }

  std::string make(Dice& dice) override {
    prepare();
    const std::size_t which = dice.below(files_.size());
    const File& file = files_[which];
    std::string bytes = file.whole;
    if (file.name.ends_with(".safetensors")) {
      bytes = damage_safetensors(bytes, dice);
    } else if (dice.one_in(4)) {
      damage_text(bytes, dice, {"{", "}", "[", "null", "-1", "1e300", "\"recipe\":", "\"some\":", "\"weight_map\":"});
    } else {
      nlohmann::json tree = file.tree;
      for (std::size_t strikes = 1 + dice.below(2); strikes > 0; --strikes) {
        // Half of the mutations change the few settings that define the model, not the many that record its training.
        nlohmann::json* part = &tree;
        if (dice.one_in(2) && tree.is_object() && tree.contains("recipe") && tree["recipe"].is_object()) {
          part = &tree["recipe"];
          const char* table = dice.one_in(2) ? "model" : "some";
          if (part->contains(table)) part = &(*part)[table];
        }
        damage_json(*part, dice);
      }
      bytes = written(tree);
    }
    return static_cast<char>('0' + which) + bytes;
  }

  void read(const std::string& input) override {
    prepare();
    const std::size_t which = input.empty() ? 0 : static_cast<unsigned char>(input[0] - '0') % files_.size();
    const File& file = files_[which];
    file.place->set(std::string_view(input).substr(std::min<std::size_t>(1, input.size())));
    // Writing and opening the run takes most of the time. Most inputs end earlier, at a folder that is not empty.
    const bool writes = input.size() % 16 == 0;
    const std::string out = writes ? folder_ + "/out" : folder_ + "/taken";
    const auto clean = [&] {
      file.place->set(file.whole);
      if (writes) fs::remove_all(out);
    };
    try {
      ImportOptions options;
      options.folder = file.folder;
      options.out = out;
      options.host = host_;
      import_hf(options);
      open_run(out, {"latest", on_cpu, {}, host_});  // an imported model must open
    } catch (const Error& error) {
      clean();
      if (!writes && std::string(error.what()).find(out) != std::string::npos) return;
      throw;
    } catch (...) {
      clean();
      throw;
    }
    clean();
  }

 private:
  struct File {
    std::string folder, name, whole;
    nlohmann::json tree;  // of a JSON file
    std::unique_ptr<MemoryFile> place;
  };

  // Created on demand only: a model is created, saved and exported twice.
  void prepare() {
    if (!files_.empty()) return;
    const RunPaths run{folder_ + "/run"};
    fs::create_directories(run.folder);
    fs::create_directories(folder_ + "/taken");
    std::ofstream(folder_ + "/taken/file") << "something";
    std::ofstream(run.tokenizer()) << small_tokenizer().dump();
    const Tokenizer tokenizer = Tokenizer::load(run.tokenizer());
    Recipe recipe = load_recipe(source_folder() + "/recipes/tiny.toml",
                                {"model.d_model=8", "model.heads=2", "model.layers=2", "some.experts=4", "some.d_ffn=6",
                                 "some.top_k=2", "some.query_dim=5", "some.input_proj=true", "train.device=cpu"});
    recipe.model.vocab = static_cast<int>(tokenizer.vocab_size());
    std::ofstream(run.config()) << write_recipe(recipe);
    const std::shared_ptr<Context> ctx = make_context("cpu", "fp32");
    Model model(ctx, recipe.model, true);
    save_checkpoint(run.folder, identity_of(recipe, tokenizer), 7, model, {{"finished", true}, {"step", 7}});
    ExportOptions options;
    options.run = run.folder;
    options.out = folder_ + "/one";
    export_hf(options);
    options.out = folder_ + "/many";
    options.experts_from_seed = true;
    options.shard_bytes = 6000;
    export_hf(options);
    take("one", "config.json");
    take("one", "model.safetensors");
    take("one", "tokenizer.json");
    take("many", "config.json");
    take("many", "model.safetensors.index.json");
    for (const auto& entry : fs::directory_iterator(folder_ + "/many")) {
      if (entry.path().extension() == ".safetensors" && entry.path().filename().string().starts_with("model-00002"))
        take("many", entry.path().filename().string());
    }
    if (files_.size() != 6) throw std::logic_error("the model was not exported in several files");
  }

  // From now on the file is read from memory.
  void take(const std::string& layout, const std::string& name) {
    File file{folder_ + "/" + layout,
              name,
              read_whole(folder_ + "/" + layout + "/" + name),
              {},
              std::make_unique<MemoryFile>()};
    if (name == "config.json") {
      // Each setting is read like one on the command line, and those of training make no difference here.
      nlohmann::json config = nlohmann::json::parse(file.whole);
      for (const char* table : {"train", "data", "memory"}) config["recipe"].erase(table);
      file.whole = config.dump();
    }
    if (!name.ends_with(".safetensors")) file.tree = nlohmann::json::parse(file.whole);
    file.place->set(file.whole);
    fs::remove(file.folder + "/" + name);
    fs::create_symlink(file.place->path(), file.folder + "/" + name);
    files_.push_back(std::move(file));
  }

  const std::string folder_;
  const Host host_ = make_host(1);  // starting threads would take longer than what they do
  std::vector<File> files_;
};

Tensor small_matrix(const Shape& shape) {
  Tensor out = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < out.elements(); ++i) out.data<float>()[i] = 0.01f * static_cast<float>(i % 89) - 0.4f;
  return out;
}

// A library of experts (some.init = "file:...").
class LibraryTarget : public Target {
 public:
  explicit LibraryTarget(const std::string& scratch) : ctx_(make_context("cpu", "fp32")) {
    std::vector<LayerMatrices> layers;
    for (int i = 0; i < 2; ++i) layers.push_back({small_matrix({3, 4, 5}), small_matrix({3, 5, 4})});
    seed_ = read_whole(write_library_file(scratch + "/libraries", layers, "a model"));
  }
  std::string name() const override { return "library"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override { return damage_safetensors(seed_, dice); }
  void read(const std::string& input) override {
    file_.set(input);
    const LibraryFile about = read_library_file(file_.path());
    if (about.layers < 1) throw std::logic_error("a library without a layer was taken");
    LibrarySpec spec;
    spec.method = "file:" + file_.path();
    spec.experts = 3;
    spec.d_model = 5;
    spec.d_ffn = 4;
    for (int layer = 0; layer < 2; ++layer) {
      const LayerLibrary library = load_layer_library(*ctx_, spec, layer);
      for (const Tensor& one : {library.weights.w1, library.weights.w2}) {
        for (std::int64_t i = 0; i < one.elements(); ++i) {
          if (!std::isfinite(one.data<float>()[i])) throw std::logic_error("an expert with a number that is none");
        }
      }
    }
  }

 private:
  std::unique_ptr<Context> ctx_;
  std::string seed_;
  MemoryFile file_;
};

// Feed-forward blocks of other models, with these models' names.
class BlocksTarget : public Target {
 public:
  explicit BlocksTarget(const std::string& scratch) : folder_(scratch + "/blocks") {
    fs::create_directories(folder_);
    constexpr int width = 6, hidden = 8;
    const auto add = [&](const std::string& up, const std::string& down, DType type, bool inputs_first) {
      std::vector<std::pair<std::string, Tensor>> tensors;
      for (const char* block : {"0", "1"}) {
        const auto name = [&](const std::string& one) { return std::string(one).replace(one.find('#'), 1, block); };
        const Shape wide{hidden, width}, narrow{width, hidden};
        tensors.emplace_back(name(up) + ".weight", small_matrix(inputs_first ? narrow : wide).to(type));
        tensors.emplace_back(name(down) + ".weight", small_matrix(inputs_first ? wide : narrow).to(type));
        tensors.emplace_back(name(up) + ".bias", small_matrix({hidden}).to(type));
      }
      write_safetensors(folder_ + "/seed", tensors, {});
      seeds_.push_back(read_whole(folder_ + "/seed"));
    };
    add("h.#.mlp.c_fc", "h.#.mlp.c_proj", DType::f32, true);
    add("gpt_neox.layers.#.mlp.dense_h_to_4h", "gpt_neox.layers.#.mlp.dense_4h_to_h", DType::bf16, false);
    add("layers.#.ffn.0", "layers.#.ffn.1", DType::f64, false);
  }
  std::string name() const override { return "blocks"; }
  std::string origin() const override { return file_.path(); }
  std::string make(Dice& dice) override {
    return static_cast<char>('0' + dice.below(4)) + damage_safetensors(dice.of(seeds_), dice);
  }
  void read(const std::string& input) override {
    const int way = input.empty() ? 0 : input[0] - '0';
    file_.set(std::string_view(input).substr(std::min<std::size_t>(1, input.size())));
    LibraryImport options;
    options.models = {file_.path()};
    options.folder = folder_ + "/out";
    if (way == 1) options.d_ffn = 3;
    if (way == 2) options.d_model = 5;
    if (way == 3) options.pattern = "layers.{}.ffn.0.weight,layers.{}.ffn.1.weight";
    const ImportedLibrary made = import_library(options);
    const LibraryFile about = read_library_file(made.path);
    fs::remove_all(options.folder);
    if (about.hash != made.about.hash || about.experts != made.about.experts)
      throw std::logic_error("the library that was written is another one");
  }

 private:
  const std::string folder_;
  std::vector<std::string> seeds_;
  MemoryFile file_;
};

}  // namespace

void add_exchange_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string& scratch_folder) {
  targets.push_back(std::make_unique<ImportTarget>(scratch_folder));
  targets.push_back(std::make_unique<LibraryTarget>(scratch_folder));
  targets.push_back(std::make_unique<BlocksTarget>(scratch_folder));
}

}  // namespace some::fuzz
