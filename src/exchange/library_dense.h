// Writes the experts of a run to a library file (experts/library_file.h): the matrices that some.init and
// some.library_seed define. A run that uses this file gives the same results, within rounding if the experts are
// Hadamard transforms.
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
