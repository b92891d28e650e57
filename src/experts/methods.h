// Methods that generate a library: each has one entry in the table in methods.cc, and one in that of library_cuda.cu.
#pragma once

#include "experts/elements.h"
#include "experts/library.h"

namespace some {

struct MatrixDraw {
  LibraryMatrix matrix;
  RandomStream stream, drops;
  int rows, cols;
};

struct LibraryMethod {
  const char* name;
  // Fills one expert's matrix on the CPU; `first` is the position of its first element in the stream. Runs on the
  // calling thread.
  void (*fill)(const MatrixDraw& draw, std::uint64_t first, float* out);
};

// Returns the method of a valid specification; throws bad_input for an invalid one.
const LibraryMethod& check_library(const LibrarySpec& spec);

}  // namespace some
