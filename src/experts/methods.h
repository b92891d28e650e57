// The ways to draw a library: one entry of the table in methods.cc each, and one of that in library_cuda.cu.
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
  // One expert's matrix on the CPU, whose first element has this number in its stream; runs on the calling thread.
  void (*fill)(const MatrixDraw& draw, std::uint64_t first, float* out);
};

// The method of a library that can be; throws bad_input otherwise.
const LibraryMethod& check_library(const LibrarySpec& spec);

}  // namespace some
