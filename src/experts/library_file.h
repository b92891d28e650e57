// Expert libraries that are imported from a file instead of generated: some.init = "file:PATH". The file is
// safetensors, with "layers.<l>.w1" [E, f, d] and "layers.<l>.w2" [E, d, f] in float32 (spec 3, "Expert libraries"). It
// is memory-mapped in place and never copied into a run: a checkpoint holds its hash, as for a generated library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experts/library.h"
#include "runtime/context.h"

namespace some {

inline constexpr const char* library_file_format = "some-library-1";

// True if `method` has the form "file:PATH".
bool is_library_file(const std::string& method);

// Loads the experts of one layer. Throws bad_input, which names the file and the problem: not found, damaged, not a
// library, too few layers or experts, other widths.
LayerLibrary load_layer_library(Context& ctx, const LibrarySpec& spec, int layer);

// Contents of a library file.
struct LibraryFile {
  int layers = 0, experts = 0, d_model = 0, d_ffn = 0;
  std::string source;  // origin of the experts, for display
  std::string hash;    // hash of the matrices of all layers; also the file's name
};
LibraryFile read_library_file(const std::string& path);

struct LayerMatrices {
  Tensor w1, w2;  // float32, on the CPU
};
// Writes FOLDER/HASH.safetensors unless it already exists; returns its path.
std::string write_library_file(const std::string& folder, const std::vector<LayerMatrices>& layers,
                               const std::string& source);

}  // namespace some
