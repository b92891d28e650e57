// The frozen expert library (spec 3, "Expert libraries"): a pure function of (seed, method, layer, E, d, f), with the
// same bits on every device, thread count and run. It is never stored: a checkpoint records this specification and the
// hash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/experts.h"
#include "runtime/context.h"

namespace some {

struct LibrarySpec {
  std::uint64_t seed = 0;
  std::string method = "default";  // one of library_methods()
  int experts = 64;
  int d_model = 512;
  int d_ffn = 1024;
  bool has_w2 = true;  // false for output_proj = "features"
  // If set, only these experts are generated, with the same values as in the whole library. The hashes of parts add up
  // (modulo 2^64) to the hash of the whole.
  std::optional<Block> part{};
  int transforms = 1;  // of each block, if the method is "hadamard" (experts/hadamard.h)
  Block wanted() const { return part.value_or(Block{0, experts}); }
};

struct LayerLibrary {
  ExpertWeights weights;   // compute precision: the float values, widened to double or rounded to bf16
  std::uint64_t hash = 0;  // hash of the float values before conversion, so equal on every device and precision
};

// Returns the names of the methods that generate stored matrices (experts/methods.cc). some.init has more choices.
std::vector<std::string> library_methods();

// Generates the library of one layer on the context's device. Element j of a matrix of expert e comes from position
// e*rows*cols + j of the matrix's stream (experts/elements.h).
SOME_OP(LayerLibrary, make_layer_library, (Context & ctx, const LibrarySpec& spec, int layer), (ctx, spec, layer))

}  // namespace some
