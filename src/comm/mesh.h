// The arithmetic of ranks: which micro-batches a rank computes, which experts it holds, which ranks form a group.
// Nothing here communicates; comm/group.h does. A new parallel dimension is a new member of Mesh.
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

// How many sums a rank keeps, besides the one it is computing, for so many micro-batches: one per level of the tree.
int sum_levels(std::int64_t micro_batches);

struct Mesh {
  int data = 1;    // expert groups, each of which holds all experts
  int expert = 1;  // ranks of an expert group, which hold every layer's experts together (train.expert_ranks)

  static Mesh of(int ranks, int expert);  // `ranks` is a multiple of `expert`
  int size() const { return data * expert; }
  RankGroups expert_groups() const { return {expert}; }
  std::vector<int> expert_group(int rank) const { return expert_groups().ranks(expert_groups().group_of(rank)); }

  // The micro-batches of a step that a rank computes. Sums over micro-batches form a tree: the largest power of two
  // that is smaller than their number is the left half, the rest the right half, and each half is such a tree again.
  // A rank's block has a power of two of them, except that the last block may be shorter and later ranks may have none.
  // So the tree of a block is a subtree of the whole one, and the levels above are the tree over the ranks.
  Block micro_batches(int rank, std::int64_t all) const;
  std::int64_t max_micro_batches(std::int64_t all) const;                     // of any rank
  std::int64_t max_micro_batches_of_group(int rank, std::int64_t all) const;  // of any rank in its expert group
  bool every_rank_has_some(std::int64_t all) const;
  // Whether a rank's expert group computes one of `passes` passes, of which rank r computes pass r.
  bool group_has_pass(int rank, std::int64_t passes) const;

  // The experts that a rank holds: consecutive ones, as many as any other rank of its expert group holds or one less.
  Block experts(int rank, int all) const;
  int max_experts(int all) const;
  int min_experts(int all) const;

 private:
  int first_of_group(int rank) const { return expert_groups().first_rank(expert_groups().group_of(rank)); }
};

}  // namespace some
