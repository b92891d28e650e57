#include "train/step_sums.h"

#include <bit>

#include "ops/elementwise.h"

namespace some {
namespace {

Tensor empty_like(const Tensor& tensor) {
  return tensor ? Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device()) : Tensor();
}

std::vector<Tensor> tensors_of(const KeySums& keys) {
  std::vector<Tensor> out = additive_sums(keys);
  if (keys.sample_priority) out.insert(out.end(), {keys.sample_priority, keys.sample_queries});
  return out;
}

std::vector<Tensor> tensors_of(const StepSums& sums) {
  std::vector<Tensor> out{sums.gradients, sums.loss, sums.auxiliary_loss};
  for (const KeySums& keys : sums.keys) {
    for (const Tensor& one : tensors_of(keys)) out.push_back(one);
  }
  return out;
}

// True if `kept` has room for `sums`. It may also have room for key sums that a step without a key update leaves
// unused.
bool has_room(const StepSums& kept, const StepSums& sums) {
  const std::vector<Tensor> room = tensors_of(kept), wanted = tensors_of(sums);
  if (room.size() < wanted.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (room[i].shape() != wanted[i].shape() || room[i].dtype() != wanted[i].dtype()) return false;
  }
  return true;
}

StepSums make_like(const StepSums& sums) {
  StepSums out{empty_like(sums.gradients), empty_like(sums.loss), empty_like(sums.auxiliary_loss), {}};
  for (const KeySums& keys : sums.keys)
    out.keys.push_back({empty_like(keys.slot_counts), empty_like(keys.gate_sums), empty_like(keys.positions),
                        empty_like(keys.query_sums), empty_like(keys.together), empty_like(keys.sample_priority),
                        empty_like(keys.sample_queries)});
  return out;
}

void copy_sums(const StepSums& from, StepSums& to) {
  std::vector<Tensor> source = tensors_of(from), target = tensors_of(to);
  for (std::size_t i = 0; i < source.size(); ++i) target[i].copy_from(source[i]);
}

void merge_gradients(Context& ctx, const StepSums& earlier, StepSums& sums, std::span<const Block> parts) {
  for (const Block& part : parts) {
    Tensor target = sums.gradients.view(part.begin, {part.count()});
    add_into(ctx, earlier.gradients.view(part.begin, {part.count()}), target);
  }
}

void merge_all_but_gradients(Context& ctx, const StepSums& earlier, StepSums& sums) {
  add_into(ctx, earlier.loss, sums.loss);
  add_into(ctx, earlier.auxiliary_loss, sums.auxiliary_loss);
  merge_key_sums(ctx, earlier.keys, sums.keys);
}

void merge_sums(Context& ctx, const StepSums& earlier, StepSums& sums) {
  add_into(ctx, earlier.gradients, sums.gradients);
  merge_all_but_gradients(ctx, earlier, sums);
}

}  // namespace

void SumTree::restart(const StepSums& sums) {
  for (Level& level : levels_) level.full = false;
  if (!levels_.empty() && !has_room(levels_[0].sums, sums)) levels_.clear();
}

void SumTree::add(Context& ctx, StepSums& sums, bool more_to_come) {
  std::size_t level = 0;
  for (; level < levels_.size(); ++level) {
    if (!levels_[level].full) {
      if (more_to_come) break;
      continue;  // the last one is added to all remaining sums, the smallest first
    }
    merge_sums(ctx, levels_[level].sums, sums);
    levels_[level].full = false;
  }
  if (!more_to_come) return;
  if (level == levels_.size()) levels_.push_back({make_like(sums)});
  copy_sums(sums, levels_[level].sums);
  levels_[level].full = true;
}

void SumTree::add_last_gradients(Context& ctx, StepSums& sums, std::span<const Block> parts) {
  for (const Level& level : levels_) {
    if (level.full) merge_gradients(ctx, level.sums, sums, parts);
  }
}

void SumTree::add_last_rest(Context& ctx, StepSums& sums, std::span<const Block> other_gradients) {
  for (Level& level : levels_) {
    if (!level.full) continue;
    merge_gradients(ctx, level.sums, sums, other_gradients);
    merge_all_but_gradients(ctx, level.sums, sums);
    level.full = false;
  }
}

std::vector<Tensor> parts_of(const Tensor& flat, std::span<const Block> parts) {
  std::vector<Tensor> out;
  for (const Block& part : parts) out.push_back(flat.view(part.begin, {part.count()}));
  return out;
}

void sum_over_ranks(Context& ctx, StepSums& sums, std::span<const Block> gradients) {
  std::vector<Tensor> added{sums.loss, sums.auxiliary_loss};
  for (const Tensor& one : gradients.empty() ? std::vector{sums.gradients} : parts_of(sums.gradients, gradients))
    added.push_back(one);
  for (const KeySums& keys : sums.keys) {
    for (const Tensor& one : additive_sums(keys)) added.push_back(one);
  }
  ctx.group.all_reduce_sum(*ctx.threads, added);
  for (KeySums& keys : sums.keys) {
    if (!keys.sample_priority) continue;
    const std::vector<Tensor> sample{keys.sample_priority, keys.sample_queries};
    ctx.group.all_reduce_with(sample, [&](std::span<const Tensor> later) {
      // merge_samples overwrites the later sample with the merged sample, so copy that one.
      KeySums theirs;
      theirs.sample_priority = later[0];
      theirs.sample_queries = later[1];
      merge_samples(ctx, keys, theirs);
      keys.sample_priority.copy_from(theirs.sample_priority);
      keys.sample_queries.copy_from(theirs.sample_queries);
    });
  }
}

}  // namespace some
