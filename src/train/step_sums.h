// What a step adds up over its micro-batches, in one fixed binary tree (base/group.h, Block): on one rank or on many,
// so that the sums are the same to the bit. A rank adds up the micro-batches of its block; then the ranks' sums are
// added, which are the upper levels of the same tree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/group.h"
#include "base/rooms.h"
#include "model/model.h"

namespace some::train {

struct StepSums {
  Tensor gradients, loss, auxiliary_loss;
  std::vector<KeySums> keys;  // empty in a step without a key update
};

// Sums of complete subtrees, at most one of each size: as the digits of a binary number that counts micro-batches. So
// there are as many of them as that number has digits, and none with one micro-batch.
class SumTree {
 public:
  // `sums` holds what the micro-batch just computed gave. With more to come it is put away; the caller clears it for
  // the next. With the last one it becomes the sum of all.
  void add(Context& ctx, StepSums& sums, bool more_to_come);
  // The same for the last one, in pieces: first some parts of the gradients (elements of them), each once, as soon as
  // they are complete; then everything else.
  void add_last_gradients(Context& ctx, StepSums& sums, std::span<const Block> parts);
  void add_last_rest(Context& ctx, StepSums& sums, std::span<const Block> other_gradients);
  // Forgets everything, also the memory where the sums have other shapes now.
  void restart(const StepSums& sums);

 private:
  struct Level {
    StepSums sums;
    bool full = false;
  };
  std::vector<Level> levels_;
};

// From every rank's sums to the sums of all, on every rank. Of the gradients only these parts, where some are named.
void add_over_ranks(Context& ctx, StepSums& sums, std::span<const Block> gradients = {});
std::vector<Tensor> parts_of(const Tensor& flat, std::span<const Block> parts);

// How many sums a rank keeps beside those it computes, with so many micro-batches of its own.
int sum_levels(std::int64_t micro_batches);

}  // namespace some::train
