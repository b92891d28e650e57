// Speed of training, beside the machine's own rate of matrix products measured in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "comm/group.h"
#include "data/batch.h"
#include "recipe/recipe.h"

namespace some {

struct BenchResult {
  std::string device, matrix_library;
  double step_seconds = 0;      // median
  double step_spread = 0;       // (90th - 10th percentile) / median
  double slots_per_second = 0;  // rows * seq_len: what a padded trainer would have computed
  double real_tokens_per_second = 0;
  double real_share = 0;           // real tokens of all slots
  double operations_per_step = 0;  // needed ones (model/operations.h)
  double operations_per_second = 0;
  double matrix_rate = 0;  // operations a second of the machine's matrix product
  double share_of_matrix_rate = 0;
  double memory_bytes = 0;     // held by the program at most
  double predicted_bytes = 0;  // what `some info` says for these batches
  // Of several ranks all of the above is the same, but for the memory, which is this rank's.
  int ranks = 1;
  // Of the time: adding up over the ranks while something else was computed, and while nothing was.
  double hidden_communication_share = 0, communication_share = 0;
  double sent_bytes_per_step = 0, messages_per_step = 0;  // by this rank; what leaves together is one message
  std::string way;                                        // they take, where there are some (verify/benchmark_comm.h)
};

struct BenchOptions {
  int steps = 10;
  int warmup = 3;
  Group group;          // ranks that share each step's micro-batches
  bool overlap = true;  // gradients leave as soon as their layer is done
};

// One training step after another on made-up stories with the lengths of real ones (mean 215 tokens, deviation 85, at
// least 60).
BenchResult bench_train(const Recipe& recipe, const BenchOptions& options,
                        const std::function<void(int, int)>& progress);

Batch synthetic_batch(const ModelConfig& model, bool count_pads, int rows, std::uint64_t seed, std::int64_t number);

}  // namespace some
