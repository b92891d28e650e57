// Experts that are Hadamard transforms with random signs: some.init = "hadamard" (spec 3, "Hadamard experts"). They
// have no stored weights; ops/hadamard.h applies them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experts/library.h"
#include "ops/hadamard_experts.h"
#include "runtime/context.h"

namespace some {

inline constexpr const char* hadamard_method = "hadamard";

// Returns the choices of some.init that need nothing but a seed: library_methods() and "hadamard".
std::vector<std::string> seeded_libraries();

// The experts of one layer. Takes the same time for any number of experts: at most hadamard_cache_bytes of signs are
// drawn in advance.
HadamardExperts make_hadamard_experts(Context& ctx, const LibrarySpec& spec, int layer);

// Hash of the specification of one layer; there are no weights to hash.
std::uint64_t hadamard_hash(const LibrarySpec& spec, int layer);

// Writes out the matrices: w1 [E, f, d] and w2 [E, d, f] (empty without w2), float32, on the CPU.
ExpertWeights write_out_hadamard(const Host& host, const LibrarySpec& spec, int layer);

}  // namespace some
