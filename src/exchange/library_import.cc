#include "exchange/library_import.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/threads.h"
#include "experts/elements.h"
#include "experts/orthogonal.h"
#include "runs/checkpoint.h"
#include "runs/run.h"
#include "tensor/finite.h"
#include "tensor/safetensors.h"

namespace some {
using namespace some;
namespace {

// Names of the two matrices of a model's feed-forward blocks; {} is the block number.
struct Naming {
  std::string name, up, down, up_bias, down_bias;
  bool inputs_first = false;  // matrices [in, out], as in GPT-2
};

const std::vector<Naming>& namings() {
  static const std::vector<Naming> all = {
      {"gpt2", "h.{}.mlp.c_fc.weight", "h.{}.mlp.c_proj.weight", "h.{}.mlp.c_fc.bias", "h.{}.mlp.c_proj.bias", true},
      {"gpt2", "transformer.h.{}.mlp.c_fc.weight", "transformer.h.{}.mlp.c_proj.weight",
       "transformer.h.{}.mlp.c_fc.bias", "transformer.h.{}.mlp.c_proj.bias", true},
      {"pythia", "gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", "gpt_neox.layers.{}.mlp.dense_4h_to_h.weight",
       "gpt_neox.layers.{}.mlp.dense_h_to_4h.bias", "gpt_neox.layers.{}.mlp.dense_4h_to_h.bias", false},
      {"some", "layers.{}.ffn.0.weight", "layers.{}.ffn.1.weight", "layers.{}.ffn.0.bias", "layers.{}.ffn.1.bias",
       false},
  };
  return all;
}

std::string numbered(std::string pattern, int block) {
  const std::size_t at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.replace(at, 2, std::to_string(block));
}

// Returns the weight files: for a run those of its last checkpoint, for another folder the files in it.
std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    if (!folder_exists(path)) {
      out.push_back(path);
    } else if (exists_path(RunPaths{path}.config())) {
      const CheckpointName checkpoint = find_checkpoint(path, "latest");
      check_checkpoint(checkpoint, identity_of(read_run_recipe(path), Tokenizer::load(RunPaths{path}.tokenizer())));
      out.push_back(checkpoint.folder + "/model.safetensors");
    } else {
      const std::size_t before = out.size();
      for (const std::string& name : list_folder(path)) {
        if (name.ends_with(".safetensors")) out.push_back(path + "/" + name);
      }
      if (out.size() == before) bad_input(Code::import_invalid, "{}: is not a run and has no safetensors file", path);
    }
  }
  return out;
}

// All files of a model.
class OtherModel {
 public:
  explicit OtherModel(const std::vector<std::string>& paths) {
    if (paths.empty()) bad_input(Code::argument_missing, "no model; pass its safetensors files or its folder");
    for (const std::string& path : files_of(paths)) {
      const auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path));
      for (const std::string& name : file->names()) {
        if (!files_.emplace(name, file).second)
          bad_input(Code::tensor_unexpected, "{}: tensor {} is also in another file", path,
                    escaped(shortened(name, 80)));
      }
    }
    words_ = paths.size() == 1 ? paths[0] : fmt::format("{} and {} more", paths[0], paths.size() - 1);
  }
  bool has(const std::string& name) const { return files_.contains(name); }
  const std::string& words() const { return words_; }
  // Returns a matrix [out, in] in float32.
  Tensor matrix(const std::string& name, bool inputs_first) const {
    const auto found = files_.find(name);
    if (found == files_.end()) bad_input(Code::tensor_not_found, "{}: tensor {} not found", words_, name);
    const Tensor stored = found->second->load(name).to(DType::f32);
    if (stored.shape().rank() != 2)
      bad_input(Code::tensor_shape, "{}: {} has shape {}; must be a matrix", words_, name, stored.shape().text());
    if (!inputs_first) return stored;
    const std::int64_t inputs = stored.dim(0), outputs = stored.dim(1);
    const Tensor turned = Tensor::empty({outputs, inputs}, DType::f32);
    for (std::int64_t i = 0; i < inputs; ++i)
      for (std::int64_t o = 0; o < outputs; ++o)
        turned.data<float>()[o * inputs + i] = stored.data<float>()[i * outputs + o];
    return turned;
  }
  std::string some_names() const {
    std::string out;
    int count = 0;
    for (const auto& [name, file] : files_) {
      if (++count > 4) return out + ", …";
      out += (out.empty() ? "" : ", ") + escaped(shortened(name, 60));
    }
    return out;
  }
  bool is_gated() const {
    return std::any_of(files_.begin(), files_.end(), [](const auto& one) {
      return one.first.find("gate_proj") != std::string::npos || one.first.find(".mlp.w3") != std::string::npos ||
             one.first.find("feed_forward.w3") != std::string::npos;
    });
  }

 private:
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files_;
  std::string words_;
};

Naming find_naming(const OtherModel& model, const std::string& pattern) {
  if (const std::size_t comma = pattern.find(','); comma != std::string::npos) {
    const Naming own{"own", pattern.substr(0, comma), pattern.substr(comma + 1), "", "", false};
    for (const std::string& one : {own.up, own.down}) {
      if (one.find("{}") == std::string::npos)
        bad_input(Code::option_invalid, "{} {}: \"{}\" must contain {{}} for the number of the block", "--pattern",
                  pattern, one);
    }
    if (!model.has(numbered(own.up, 0)))
      bad_input(Code::tensor_not_found, "{}: tensor {} not found", model.words(), numbered(own.up, 0));
    return own;
  }
  bool known = pattern.empty();
  for (const Naming& one : namings()) {
    known = known || one.name == pattern;
    if ((pattern.empty() || one.name == pattern) && model.has(numbered(one.up, 0))) return one;
  }
  if (!known)
    bad_input(Code::option_invalid, "{} {}: must be gpt2, pythia, some, or two names UP,DOWN with {{}} for the block",
              "--pattern", pattern);
  if (model.is_gated())
    bad_input(Code::model_unsuitable,
              "{}: its blocks are gated (gate_proj), which experts do not support (they have two matrices with a GELU "
              "between)",
              model.words());
  bad_input(Code::import_invalid,
            "{}: has no feed-forward blocks with the names of {} (it has {}); set them with --pattern UP,DOWN",
            model.words(), pattern.empty() ? "gpt2, pythia or some" : pattern, model.some_names());
}

constexpr int widest = 1048576;

struct FfnBlock {
  Tensor up, down;  // [m, d], [d, m]
};

std::vector<FfnBlock> read_blocks(const OtherModel& model, const Naming& naming) {
  std::vector<FfnBlock> blocks;
  for (int i = 0; model.has(numbered(naming.up, i)); ++i) {
    blocks.push_back({model.matrix(numbered(naming.up, i), naming.inputs_first),
                      model.matrix(numbered(naming.down, i), naming.inputs_first)});
    const FfnBlock& own = blocks.back();
    for (const std::int64_t size : own.up.shape().dims()) {
      if (size < 1 || size > widest)
        bad_input(Code::tensor_shape, "{}: {} has shape {}; sizes must be from 1 to {}", model.words(),
                  numbered(naming.up, i), own.up.shape().text(), widest);
    }
    if (own.up.dim(0) != own.down.dim(1) || own.up.dim(1) != own.down.dim(0))
      bad_input(Code::tensor_shape, "{}: {} [out, in] is {} and {} is {}, which do not form a block", model.words(),
                numbered(naming.up, i), own.up.shape().text(), numbered(naming.down, i), own.down.shape().text());
    if (own.up.shape() != blocks[0].up.shape())
      bad_input(Code::tensor_shape, "{}: {} is {}, but block 0 has {}; all blocks must have the same size",
                model.words(), numbered(naming.up, i), own.up.shape().text(), blocks[0].up.shape().text());
    for (const Tensor& one : {own.up, own.down}) {
      if (!all_finite(one))
        bad_input(Code::tensor_value, "{}: block {} contains a number that is not finite", model.words(), i);
    }
  }
  return blocks;
}

// Returns an adapter [theirs, ours] between two widths: orthonormal along the shorter side and shared by all experts,
// so that they use the same space.
std::vector<float> make_adapter(int theirs, int ours, std::uint64_t seed) {
  std::vector<float> adapter(static_cast<std::size_t>(theirs) * static_cast<std::size_t>(ours));
  const RandomStream stream = random_stream(seed, "library.adapter");
  for (std::size_t j = 0; j < adapter.size(); ++j) adapter[j] = gaussian_element(stream, j);
  cpu::orthogonalize(adapter.data(), theirs, ours);
  return adapter;
}

// out[rows, cols] = a[rows, inner] * b[inner, cols], with a separate sum per row.
void multiply(const float* a, const float* b, int rows, int inner, int cols, float* out) {
  std::vector<double> sum(static_cast<std::size_t>(cols));
  for (int r = 0; r < rows; ++r) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (int i = 0; i < inner; ++i) {
      const double factor = a[static_cast<std::int64_t>(r) * inner + i];
      const float* row = b + static_cast<std::int64_t>(i) * cols;
      for (int c = 0; c < cols; ++c) sum[static_cast<std::size_t>(c)] += factor * row[c];
    }
    for (int c = 0; c < cols; ++c)
      out[static_cast<std::int64_t>(r) * cols + c] = static_cast<float>(sum[static_cast<std::size_t>(c)]);
  }
}

}  // namespace

ImportedLibrary import_library(const LibraryImport& options) {
  const OtherModel model(options.models);
  const Naming naming = find_naming(model, options.pattern);
  const std::vector<FfnBlock> blocks = read_blocks(model, naming);
  ImportedLibrary result;
  result.blocks = static_cast<int>(blocks.size());
  result.hidden = static_cast<int>(blocks[0].up.dim(0));
  result.width = static_cast<int>(blocks[0].up.dim(1));
  result.biases_left_out = !naming.up_bias.empty() && model.has(numbered(naming.up_bias, 0));

  LibraryFile& about = result.about;
  about.d_model = options.d_model.value_or(result.width);
  about.d_ffn = options.d_ffn.value_or(result.hidden);
  about.layers = options.layers.value_or(result.blocks);
  for (const auto& [flag, value] : {std::pair("--d-model", about.d_model), std::pair("--d-ffn", about.d_ffn),
                                    std::pair("--layers", about.layers)}) {
    if (value < 1 || value > widest)
      bad_input(Code::option_invalid, "{} {}: must be an integer from 1 to {}", flag, value, widest);
  }
  result.pieces = result.hidden / about.d_ffn;
  if (result.pieces == 0)
    bad_input(Code::option_invalid, "{} {}: a block of {} has only {} hidden units, too few for one expert", "--d-ffn",
              about.d_ffn, model.words(), result.hidden);
  result.left_out = result.hidden % about.d_ffn;
  const int most = result.pieces * result.blocks;
  about.experts = options.experts.value_or(most);
  if (about.experts < 1 || about.experts > most)
    bad_input(Code::option_invalid,
              "{} {}: {} blocks of {} units give {} experts of {}; must be from 1 to that, or a smaller --d-ffn",
              "--experts", about.experts, result.blocks, result.hidden, most, about.d_ffn);
  result.adapted = about.d_model != result.width;
  const std::vector<float> adapter =
      result.adapted ? make_adapter(result.width, about.d_model, options.seed) : std::vector<float>();
  std::vector<float> back(adapter.size());  // transpose of the adapter
  for (int i = 0; i < result.width && result.adapted; ++i)
    for (int j = 0; j < about.d_model; ++j)
      back[static_cast<std::size_t>(j) * result.width + i] = adapter[static_cast<std::size_t>(i) * about.d_model + j];

  const int f = about.d_ffn, d = about.d_model, m = result.hidden, width = result.width;
  std::vector<LayerMatrices> layers;
  for (int l = 0; l < about.layers; ++l) {
    layers.push_back(
        {Tensor::empty({about.experts, f, d}, DType::f32), Tensor::empty({about.experts, d, f}, DType::f32)});
    // Each layer starts at the block of the same relative depth in the other model and continues with the following
    // blocks.
    const int first = static_cast<int>(static_cast<std::int64_t>(l) * result.blocks / about.layers);
    parallel_for(*options.host.threads, about.experts, [&](std::int64_t e) {
      const FfnBlock& block = blocks[static_cast<std::size_t>((first + e / result.pieces) % result.blocks)];
      const std::int64_t unit = e % result.pieces * f;
      const float* up = block.up.data<float>() + unit * width;  // f rows of the block
      std::vector<float> down(static_cast<std::size_t>(width) * f);
      for (int row = 0; row < width; ++row)
        std::copy_n(block.down.data<float>() + static_cast<std::int64_t>(row) * m + unit, f,
                    down.data() + static_cast<std::size_t>(row) * f);
      float* w1 = layers.back().w1.data<float>() + e * f * d;
      float* w2 = layers.back().w2.data<float>() + e * f * d;
      if (!result.adapted) {
        std::copy_n(up, static_cast<std::size_t>(f) * d, w1);
        std::copy(down.begin(), down.end(), w2);
      } else {
        multiply(up, adapter.data(), f, width, d, w1);
        multiply(back.data(), down.data(), d, width, f, w2);
      }
    });
  }
  about.source =
      fmt::format("{} ({}), {} blocks of {} x {}", std::filesystem::path(options.models[0]).filename().string(),
                  naming.name, result.blocks, result.hidden, result.width);
  result.path = write_library_file(options.folder, layers, about.source);
  about.hash = std::filesystem::path(result.path).stem().string();
  return result;
}

}  // namespace some
