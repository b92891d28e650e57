// Training throughput, compared with the GEMM rate of the same machine measured in the same run.
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
  double slots_per_second = 0;  // positions including padding (rows * seq_len), as a padded trainer would compute
  double real_tokens_per_second = 0;
  double real_share = 0;           // non-padding tokens / positions
  double operations_per_step = 0;  // required FLOPs (model/operations.h)
  double operations_per_second = 0;
  double matrix_rate = 0;  // measured GEMM rate of the machine, in FLOPs/s
  double share_of_matrix_rate = 0;
  double memory_bytes = 0;     // peak memory of the program
  double predicted_bytes = 0;  // memory forecast as printed by `some info` for these batches
  // With several ranks all values above are the same on every rank, except memory, which is per rank.
  int ranks = 1;
  // Fractions of the step time spent in communication: overlapped with computation, and not overlapped.
  double hidden_communication_share = 0, communication_share = 0;
  double sent_bytes_per_step = 0, messages_per_step = 0;  // sent by this rank; data sent together counts as one message
  std::string way;                                        // transport, if messages were sent (verify/benchmark_comm.h)
};

struct BenchOptions {
  int steps = 10;
  int warmup = 3;
  Group group;          // ranks that share the micro-batches of each step
  bool overlap = true;  // all-reduce each layer's gradients as soon as they are ready
};

// Runs training steps on synthetic documents with realistic lengths (mean 215 tokens, standard deviation 85, at least
// 60).
BenchResult bench_train(const Recipe& recipe, const BenchOptions& options,
                        const std::function<void(int, int)>& progress);

Batch synthetic_batch(const ModelConfig& model, bool count_pads, int rows, std::uint64_t seed, std::int64_t number);

double median(std::vector<double> values);  // of at least one value

}  // namespace some
