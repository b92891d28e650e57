// Rows that every rank has some of, and every rank wants all of.
#pragma once

#include <span>

#include "comm/group.h"

namespace some {

// `all` becomes the rows of every rank, in the order of the ranks; rank r has counts[r] of them (along the first
// dimension), which everyone knows. Collective. Each rank receives what it lacks in log2(R) messages.
void all_gather_rows(const Group& group, const Tensor& mine, std::span<const std::int64_t> counts, Tensor& all);

}  // namespace some
