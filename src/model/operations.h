// Counts the FLOPs of a batch (multiply and add separately), the basis of all rates. Frozen experts have no weight
// gradient, causal attention counts only its lower triangle, and recomputation in the backward pass is not counted.
#pragma once

#include <cstdint>

#include "data/batch.h"
#include "model/config.h"

namespace some {

struct OperationCount {
  double forward = 0;
  double backward = 0;
  double experts = 0;  // part of both: GEMMs of the experts
  double total() const { return forward + backward; }
};

// tokens: rows computed; pairs: (query, key) pairs of attention, over all sequences.
OperationCount count_operations(const ModelConfig& config, double tokens, double pairs);
OperationCount count_operations(const ModelConfig& config, const Batch& batch);
double attention_pairs(const ModelConfig& config, const Batch& batch);

// Returns the bytes of device memory that a training run needs: parameters with gradients and moments, library, keys,
// and the activations of `tokens` unpadded tokens in `sequences` sequences.
struct MemoryEstimate {
  double parameters = 0, library = 0, activations = 0;
  double store = 0;    // of a memory that is built after training: what it needs more than training (runs/forecast.h)
  double program = 0;  // of the process itself on the CPU: code, libraries, tokenizer, buffers (runs/forecast.h)
  double total() const { return parameters + library + activations + store + program; }
};
MemoryEstimate estimate_memory(const ModelConfig& config, double tokens, bool bf16, bool training);

}  // namespace some
