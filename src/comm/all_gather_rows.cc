#include "comm/all_gather_rows.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace some {

// Bruck's algorithm: in round d = 1, 2, 4, ... each rank, which holds the rows of the d ranks starting at itself, sends
// them to the rank d before it and receives as many from the rank d after it. The last round sends only the missing
// rows.
void all_gather_rows(const Group& group, const Tensor& mine, std::span<const std::int64_t> counts, Tensor& all) {
  const int ranks = group.size(), self = group.rank();
  const auto rows_of = [&](int first, int number) {  // of `number` ranks from `first`, modulo the number of ranks
    std::int64_t sum = 0;
    for (int i = 0; i < number; ++i) sum += counts[static_cast<std::size_t>((first + i) % ranks)];
    return sum;
  };
  const std::int64_t total = rows_of(0, ranks);
  if (static_cast<int>(counts.size()) != ranks || mine.dim(0) != rows_of(self, 1) || all.dim(0) != total)
    failed(Code::rank_transfer,
           "rows of {} ranks: this one has {} where {} are expected, and there is room for {} of {}", counts.size(),
           mine.dim(0), rows_of(self, 1), all.dim(0), total);
  if (total == 0) return;
  if (ranks == 1) return all.copy_from(mine);
  const Tensor held = Tensor::empty(all.shape(), all.dtype(), all.device());
  if (mine.dim(0) > 0) held.rows(0, mine.dim(0)).copy_from(mine);
  std::int64_t have = mine.dim(0);
  for (int d = 1; d < ranks; d *= 2) {
    const int number = std::min(d, ranks - d), to = (self - d + ranks) % ranks, from = (self + d) % ranks;
    std::vector<std::int64_t> sent(counts.size(), 0), received(counts.size(), 0);
    sent[static_cast<std::size_t>(to)] = rows_of(self, number);
    received[static_cast<std::size_t>(from)] = rows_of(from, number);
    const std::int64_t more = rows_of(from, number);
    group.all_to_all(held.rows(0, rows_of(self, number)), sent, held.rows(have, have + more), received);
    have += more;
  }
  // `held` starts with the rows of this rank: rotate them into place.
  const std::int64_t behind = rows_of(0, self), ahead = total - behind;
  if (ahead > 0) all.rows(behind, total).copy_from(held.rows(0, ahead));
  if (behind > 0) all.rows(0, behind).copy_from(held.rows(ahead, total));
}

}  // namespace some
