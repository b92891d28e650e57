#include "experts/library_file.h"

#include <cstring>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/threads.h"
#include "experts/elements.h"
#include "tensor/finite.h"
#include "tensor/safetensors.h"

namespace some {
namespace {

constexpr std::string_view prefix = "file:";

std::string tensor_name(int layer, LibraryMatrix matrix) {
  return fmt::format("layers.{}.{}", layer, matrix == LibraryMatrix::w1 ? "w1" : "w2");
}

SafetensorsFile open_library(const std::string& path) {
  if (!file_exists(path))
    bad_input(Code::file_not_found, "{} = \"file:{}\": file not found; 'some library import' creates one", "some.init",
              path);
  SafetensorsFile file = SafetensorsFile::open(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != library_file_format)
    bad_input(Code::library_invalid,
              "{} is not an expert library; 'some library import' creates one from the feed-forward blocks of a model",
              path);
  return file;
}

// Returns the hash of the matrices of a library file, defined like that of a generated library (experts/elements.h).
std::uint64_t hash_of(Context& ctx, LibraryMatrix matrix, const Tensor& values, std::int64_t first_expert) {
  const float* data = values.data<float>();
  const std::int64_t experts = values.dim(0), count = values.elements() / std::max<std::int64_t>(1, experts);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(experts), 0);
  parallel_for(*ctx.threads, experts, [&](std::int64_t e) {
    std::uint64_t hash = 0;
    for (std::int64_t j = e * count; j < (e + 1) * count; ++j)
      hash += hash_element(matrix, static_cast<std::uint64_t>(first_expert * count + j), data[j]);
    hashes[static_cast<std::size_t>(e)] = hash;
  });
  std::uint64_t total = 0;
  for (const std::uint64_t one : hashes) total += one;
  return total;
}

}  // namespace

bool is_library_file(const std::string& method) { return method.starts_with(prefix) && method.size() > prefix.size(); }

LayerLibrary load_layer_library(Context& ctx, const LibrarySpec& spec, int layer) {
  const std::string path = spec.method.substr(prefix.size());
  const SafetensorsFile file = open_library(path);
  LayerLibrary library;
  const auto take = [&](LibraryMatrix matrix, std::int64_t rows, std::int64_t cols) {
    const std::string name = tensor_name(layer, matrix);
    if (!file.has(name))
      bad_input(Code::library_mismatch,
                "{}: layer {} not found; model.layers must not exceed the layers of the library", path, layer);
    const Shape shape = file.shape(name);
    if (file.dtype(name) != DType::f32 || shape.rank() != 3)
      bad_input(Code::library_invalid, "{}: {} must be float32 [E, out, in]", path, name);
    if (shape[1] != rows || shape[2] != cols)
      bad_input(Code::library_mismatch, "{}: its experts are {} x {}, but model.d_model and some.d_ffn require {} x {}",
                path, shape[1], shape[2], rows, cols);
    if (shape[0] < spec.experts)
      bad_input(Code::library_mismatch, "{}: layer {} has {} experts, but some.experts = {}", path, layer, shape[0],
                spec.experts);
    const Block wanted = spec.wanted();
    const Tensor here = file.map(name).rows(wanted.begin, wanted.end);
    if (!all_finite(here)) bad_input(Code::tensor_value, "{}: {} contains a number that is not finite", path, name);
    library.hash += hash_of(ctx, matrix, here, wanted.begin);
    const Tensor typed = ctx.compute == DType::f32 ? here : here.to(ctx.compute);
    return ctx.device.is_cpu() ? typed : typed.to(ctx.device);
  };
  library.weights.w1 = take(LibraryMatrix::w1, spec.d_ffn, spec.d_model);
  if (spec.has_w2) library.weights.w2 = take(LibraryMatrix::w2, spec.d_model, spec.d_ffn);
  return library;
}

LibraryFile read_library_file(const std::string& path) {
  const SafetensorsFile file = open_library(path);
  LibraryFile about;
  about.source = file.require_metadata("source");
  about.hash = file.require_metadata("hash");
  while (file.has(tensor_name(about.layers, LibraryMatrix::w1))) ++about.layers;
  if (about.layers == 0 || !file.has(tensor_name(0, LibraryMatrix::w2)))
    bad_input(Code::library_invalid, "{}: contains no layer", path);
  const Shape shape = file.shape(tensor_name(0, LibraryMatrix::w1));
  if (shape.rank() != 3) bad_input(Code::library_invalid, "{}: layers.0.w1 must be [E, f, d]", path);
  about.experts = static_cast<int>(shape[0]);
  about.d_ffn = static_cast<int>(shape[1]);
  about.d_model = static_cast<int>(shape[2]);
  return about;
}

std::string write_library_file(const std::string& folder, const std::vector<LayerMatrices>& layers,
                               const std::string& source) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::uint64_t hash = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (const auto matrix : {LibraryMatrix::w1, LibraryMatrix::w2}) {
      const Tensor& values = matrix == LibraryMatrix::w1 ? layers[l].w1 : layers[l].w2;
      hash = hash_bytes(values.raw(), values.bytes(), hash);
      tensors.emplace_back(tensor_name(static_cast<int>(l), matrix), values);
    }
  }
  make_folder(folder);
  remove_temporary_files(folder);
  const std::string path = folder + "/" + hex(hash) + ".safetensors";
  if (!exists_path(path))
    write_safetensors(path, tensors, {{"format", library_file_format}, {"source", source}, {"hash", hex(hash)}});
  return path;
}

}  // namespace some
