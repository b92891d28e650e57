// Rank arithmetic: the micro-batches of a rank, the experts of a rank, the ranks of a group. Nothing here communicates;
// comm/group.h does. A new parallel dimension is a new member of Mesh.
#pragma once

#include <cstdint>
#include <vector>

namespace some {

struct Block {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const Block&) const = default;
};

// Consecutive ranks in groups of equal size: ranks 0 to size - 1 are group 0, the next ones group 1, and so on.
struct RankGroups {
  int size = 1;

  static bool fit(int ranks, int size) { return ranks % size == 0; }
  int count(int ranks) const { return ranks / size; }
  int group_of(int rank) const { return rank / size; }
  int first_rank(int group) const { return group * size; }
  std::vector<int> ranks(int group) const;
};

// Returns the number of partial sums that a rank keeps, besides the one being computed, for this many micro-batches:
// one per level of the tree.
int sum_levels(std::int64_t micro_batches);

struct Mesh {
  int data = 1;    // expert groups, each of which holds all experts
  int expert = 1;  // ranks of an expert group, which hold every layer's experts together (train.expert_ranks)

  static Mesh of(int ranks, int expert);  // `ranks` is a multiple of `expert`
  int size() const { return data * expert; }
  RankGroups expert_groups() const { return {expert}; }
  std::vector<int> expert_group(int rank) const { return expert_groups().ranks(expert_groups().group_of(rank)); }

  // Returns the micro-batches of a step that a rank computes. Sums over micro-batches form a tree: the left half has
  // the largest power of two of them that is smaller than their number, the right half has the rest, and both are split
  // the same way. The block of a rank contains a power of two of them, except that the last block may be shorter and
  // later ranks may have none. The tree of a block is therefore a subtree of the whole tree, and the levels above it
  // form the tree over the ranks.
  Block micro_batches(int rank, std::int64_t all) const;
  std::int64_t max_micro_batches(std::int64_t all) const;  // maximum over all ranks
  // Maximum over the ranks of the expert group of `rank`.
  std::int64_t max_micro_batches_of_group(int rank, std::int64_t all) const;
  bool every_rank_has_work(std::int64_t all) const;
  // True if the expert group of `rank` computes any of `passes` passes, of which rank r computes pass r.
  bool group_has_pass(int rank, std::int64_t passes) const;

  // Returns the experts that a rank holds: a contiguous block, equal in size to those of the other ranks of its expert
  // group or smaller by one.
  Block experts(int rank, int all) const;
  int max_experts(int all) const;
  int min_experts(int all) const;

 private:
  int first_of_group(int rank) const { return expert_groups().first_rank(expert_groups().group_of(rank)); }
};

}  // namespace some
