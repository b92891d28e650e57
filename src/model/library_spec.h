#pragma once

#include "experts/library.h"
#include "model/config.h"

namespace some {

// Returns the specification of the expert library that a model's settings define.
inline LibrarySpec library_spec(const ModelConfig& config) {
  LibrarySpec spec{config.library_seed, config.init,  config.experts,
                   config.d_model,      config.d_ffn, config.experts_have_output()};
  spec.transforms = config.hadamard_transforms;
  return spec;
}

}  // namespace some
