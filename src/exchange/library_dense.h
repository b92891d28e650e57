// Writes the experts of a run out as a library file (experts/library_file.h): the matrices that some.init and
// some.library_seed define. A run with that file computes the same, within rounding if the experts are transforms.
#pragma once

#include <string>

#include "experts/library_file.h"
#include "runtime/host.h"

namespace some {

struct DenseLibrary {
  std::string run;  // folder
  std::string folder = "libraries";
  Host host = {};
};

struct WrittenLibrary {
  std::string path;
  LibraryFile about;
};

WrittenLibrary write_dense_library(const DenseLibrary& options);

}  // namespace some
