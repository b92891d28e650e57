#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace some {
namespace {

TEST(Mesh, MicroBatchesOfARankAreASubtree) {
  // Sums of strings show the shape of the tree.
  const std::function<std::string(std::int64_t, std::int64_t)> tree = [&](std::int64_t begin, std::int64_t end) {
    if (end - begin == 1) return std::to_string(begin);
    std::int64_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return "(" + tree(begin, begin + half) + " " + tree(begin + half, end) + ")";
  };
  for (std::int64_t items = 1; items <= 40; ++items) {
    for (int ranks = 1; ranks <= items; ++ranks) {
      std::vector<std::string> parts;
      std::int64_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const Block block = Mesh{ranks}.micro_batches(r, items);
        EXPECT_EQ(block.begin, next);
        next = block.end;
        if (block.count() > 0) parts.push_back(tree(block.begin, block.end));
      }
      EXPECT_EQ(next, items);
      EXPECT_EQ(Mesh{ranks}.every_rank_has_work(items), static_cast<int>(parts.size()) == ranks);
      const std::function<std::string(std::size_t, std::size_t)> over = [&](std::size_t begin, std::size_t end) {
        if (end - begin == 1) return parts[begin];
        std::size_t half = 1;
        while (2 * half < end - begin) half *= 2;
        return "(" + over(begin, begin + half) + " " + over(begin + half, end) + ")";
      };
      EXPECT_EQ(over(0, parts.size()), tree(0, items)) << items << " on " << ranks;
    }
  }
}

TEST(Mesh, TheRanksOfAnExpertGroupHoldEachExpertOnce) {
  for (const int experts : {1, 5, 8, 64}) {
    for (const int together : {1, 2, 3, 4, 8}) {
      const Mesh mesh{3, together};
      std::int64_t next = 0, least = experts, most = 0;
      for (int r = 0; r < together; ++r) {
        const Block part = mesh.experts(r, experts);
        EXPECT_EQ(part.begin, next);
        next = part.end;
        least = std::min(least, part.count());
        most = std::max(most, part.count());
        for (int group = 1; group < 3; ++group) EXPECT_EQ(mesh.experts(group * together + r, experts), part);
      }
      EXPECT_EQ(next, experts);
      EXPECT_LE(most, least + 1);
      EXPECT_EQ(mesh.min_experts(experts), least);
      EXPECT_EQ(mesh.max_experts(experts), most);
    }
  }
}

TEST(Mesh, ConsecutiveRanksFormGroups) {
  const Mesh mesh = Mesh::of(6, 2);
  EXPECT_EQ(mesh.data, 3);
  EXPECT_EQ(mesh.size(), 6);
  for (const int rank : {2, 3}) EXPECT_EQ(mesh.expert_group(rank), (std::vector<int>{2, 3}));
  EXPECT_THROW(Mesh::of(6, 4), Error);
  const RankGroups groups{3};
  EXPECT_EQ(groups.count(6), 2);
  EXPECT_EQ(groups.group_of(2), 0);
  EXPECT_EQ(groups.group_of(3), 1);
  EXPECT_EQ(groups.first_rank(1), 3);
  EXPECT_EQ(groups.ranks(1), (std::vector<int>{3, 4, 5}));
}

// All ranks of an expert group make as many passes as the rank with the most.
TEST(Mesh, AnExpertGroupWorksAsLongAsAnyOfItsRanks) {
  for (const int expert : {1, 2, 4}) {
    const Mesh mesh = Mesh::of(8, expert);
    for (std::int64_t all = 0; all <= 20; ++all) {
      std::int64_t largest = 0;
      for (int rank = 0; rank < 8; ++rank) {
        std::int64_t most = 0;
        bool has_pass = false;
        for (const int one : mesh.expert_group(rank)) {
          most = std::max(most, mesh.micro_batches(one, all).count());
          has_pass = has_pass || one < all;
        }
        EXPECT_EQ(mesh.max_micro_batches_of_group(rank, all), most);
        EXPECT_EQ(mesh.group_has_pass(rank, all), has_pass);
        largest = std::max(largest, most);
      }
      EXPECT_EQ(mesh.max_micro_batches(all), largest);
    }
  }
}

}  // namespace
}  // namespace some
