// Imports feed-forward blocks of other models as experts: splits them into pieces, adapts their width if needed, and
// writes a library file (experts/library_file.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experts/library_file.h"
#include "runtime/host.h"

namespace some {

struct LibraryImport {
  std::vector<std::string> models;  // safetensors files of one model, its folder, or a run
  // "gpt2", "pythia", "some" (checkpoint of a dense run), or two names "UP,DOWN" with {} for the block number and
  // matrices [out, in]; empty: detected among the known patterns.
  std::string pattern;
  std::string folder = "libraries";
  // size of the library; by default as large as the other model allows
  std::optional<int> layers, experts, d_ffn, d_model;
  std::uint64_t seed = 0;  // for the adapter between two widths
  Host host = {};
};

struct ImportedLibrary {
  std::string path;
  LibraryFile about;
  int blocks = 0, width = 0, hidden = 0;  // of the other model
  int pieces = 0;                         // experts per block
  int left_out = 0;                       // hidden units per block left over after filling the experts
  bool biases_left_out = false;
  bool adapted = false;  // an adapter was used because the widths differ
};

ImportedLibrary import_library(const LibraryImport& options);

}  // namespace some
