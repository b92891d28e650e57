// Sums over the micro-batches of a step. The additions form one fixed binary tree (comm/mesh.h), on one rank or on
// many, so that results are bit-identical. Each rank sums the micro-batches of its block; the all-reduce over the ranks
// forms the upper levels of the same tree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "model/model.h"

namespace some {

struct StepSums {
  Tensor gradients, loss, auxiliary_loss;
  std::vector<KeySums> keys;  // empty in a step without a key update
};

// Sums of complete subtrees, at most one per size, like the digits of a binary counter of micro-batches. There are as
// many as that number has digits, and none for a single micro-batch.
class SumTree {
 public:
  // `sums` holds the result of the micro-batch just computed. If more follow, it is stored, and the caller clears
  // `sums` for the next one; after the last, `sums` becomes the sum of all.
  void add(Context& ctx, StepSums& sums, bool more_to_come);
  // The same for the last micro-batch, in pieces: first parts of the gradients (as ranges of elements), each once, as
  // soon as they are complete; then everything else.
  void add_last_gradients(Context& ctx, StepSums& sums, std::span<const Block> parts);
  void add_last_rest(Context& ctx, StepSums& sums, std::span<const Block> other_gradients);
  // Discards all sums, and releases their memory if shapes have changed.
  void restart(const StepSums& sums);

 private:
  struct Level {
    StepSums sums;
    bool full = false;
  };
  std::vector<Level> levels_;
};

// All-reduce: replaces the sums on every rank by those over all ranks; only the given parts of the gradients, if any
// are given.
void sum_over_ranks(Context& ctx, StepSums& sums, std::span<const Block> gradients = {});
std::vector<Tensor> parts_of(const Tensor& flat, std::span<const Block> parts);

}  // namespace some
