// Feed-forward blocks of other models as experts: cut into pieces, brought to another width where need be, and written
// as a library file (experts/library_file.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experts/library_file.h"
#include "runtime/host.h"

namespace some {

struct LibraryImport {
  std::vector<std::string> models;  // safetensors files of one model, its folder, or a run
  // "gpt2", "pythia", "some" (a dense run's checkpoint), or two names "UP,DOWN" with {} for the number of the block, as
  // matrices [out, in]; empty: whichever of the known ones fits.
  std::string pattern;
  std::string folder = "libraries";
  std::optional<int> layers, experts, d_ffn, d_model;  // of the library; otherwise as many and as wide as there are
  std::uint64_t seed = 0;                              // of the adapter between two widths
  Host host = {};
};

struct ImportedLibrary {
  std::string path;
  LibraryFile about;
  int blocks = 0, width = 0, hidden = 0;  // of the other model
  int pieces = 0;                         // experts that a block gives
  int left_out = 0;                       // hidden units of a block that fill no expert
  bool biases_left_out = false;
  bool adapted = false;  // the widths differ
};

ImportedLibrary import_library(const LibraryImport& options);

}  // namespace some
