#pragma once

#include "experts/library.h"
#include "model/config.h"

namespace some {

// Returns the library that a model's settings specify.
inline LibrarySpec library_spec(const ModelConfig& config) {
  LibrarySpec spec{config.library_seed, config.init,  config.experts,
                   config.d_model,      config.d_ffn, config.experts_have_output()};
  spec.transforms = config.hadamard_transforms;
  return spec;
}

}  // namespace some
