// All-gather of rows.
#pragma once

#include <span>

#include "comm/group.h"

namespace some {

// Gathers the rows of all ranks into `all`, in the order of the ranks; rank r contributes counts[r] rows (along the
// first dimension), and every rank passes the same counts. Collective. Each rank receives the missing rows in log2(R)
// messages.
void all_gather_rows(const Group& group, const Tensor& mine, std::span<const std::int64_t> counts, Tensor& all);

}  // namespace some
