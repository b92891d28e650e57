// Libraries of experts that were not drawn but brought: some.init = "file:PATH". The file is safetensors, with
// "layers.<l>.w1" [E, f, d] and "layers.<l>.w2" [E, d, f] in float32 (spec 3, "Expert libraries"). It is mapped where
// it lies and copied into no run: a checkpoint holds its hash, as it does of a drawn library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experts/library.h"
#include "runtime/context.h"

namespace some {

inline constexpr const char* library_file_format = "some-library-1";

// "file:PATH".
bool is_library_file(const std::string& method);

// The experts of one layer. bad_input names the file and what is wrong with it: not there, damaged, no library, too few
// layers or experts, other widths.
LayerLibrary load_layer_library(Context& ctx, const LibrarySpec& spec, int layer);

// What a file holds.
struct LibraryFile {
  int layers = 0, experts = 0, d_model = 0, d_ffn = 0;
  std::string source;  // where the experts came from, in words
  std::string hash;    // of the matrices of all layers: its name
};
LibraryFile read_library_file(const std::string& path);

struct LayerMatrices {
  Tensor w1, w2;  // float32, on the CPU
};
// Writes FOLDER/HASH.safetensors, unless it is there already; returns its path.
std::string write_library_file(const std::string& folder, const std::vector<LayerMatrices>& layers,
                               const std::string& source);

}  // namespace some
