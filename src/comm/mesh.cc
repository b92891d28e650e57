#include "comm/mesh.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/error.h"

namespace some {

std::vector<int> RankGroups::ranks(int group) const {
  std::vector<int> out(static_cast<std::size_t>(size));
  std::iota(out.begin(), out.end(), first_rank(group));
  return out;
}

int sum_levels(std::int64_t micro_batches) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(micro_batches - 1)));
}

Mesh Mesh::of(int ranks, int expert) {
  if (!RankGroups::fit(ranks, expert))
    failed(Code::ranks_uneven, "{} ranks cannot form expert groups of {}", ranks, expert);
  return {ranks / expert, expert};
}

Block Mesh::micro_batches(int rank, std::int64_t all) const {
  const std::int64_t each = (all + size() - 1) / size();
  const auto length =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(each, 1))));
  return {std::min(all, rank * length), std::min(all, (rank + 1) * length)};
}

std::int64_t Mesh::max_micro_batches(std::int64_t all) const { return micro_batches(0, all).count(); }

std::int64_t Mesh::max_micro_batches_of_group(int rank, std::int64_t all) const {
  return micro_batches(first_of_group(rank), all).count();
}

bool Mesh::every_rank_has_work(std::int64_t all) const { return micro_batches(size() - 1, all).count() > 0; }

bool Mesh::group_has_pass(int rank, std::int64_t passes) const { return first_of_group(rank) < passes; }

Block Mesh::experts(int rank, int all) const {
  const std::int64_t number = all, place = rank % expert;
  return {number * place / expert, number * (place + 1) / expert};
}

int Mesh::max_experts(int all) const { return (all + expert - 1) / expert; }
int Mesh::min_experts(int all) const { return all / expert; }

}  // namespace some
