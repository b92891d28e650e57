// How fast numbers travel between the ranks of a group: what a forecast of larger groups is made of (docs/scale.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "runtime/machine.h"

namespace some {

struct RanksBench {
  std::string device, way;
  int ranks = 1;
  struct Measure {
    std::int64_t bytes = 0;  // of the tensor on each rank
    double seconds = 0;      // the least of several
  };
  std::vector<Measure> sums;       // of a tensor over the ranks
  std::vector<Measure> exchanges;  // an equal part of the rows to every rank
  // Of sums, fitted: what a message costs before its first byte, and bytes a second behind it, with what is done to
  // them on the way (copies from and to a GPU, additions).
  double message_seconds = 0, bytes_per_second = 0;
};

// Collective.
RanksBench bench_ranks(const Group& group, const DeviceChoice& device, std::int64_t max_bytes, int repeats);

// How numbers of this device travel between the ranks: "host", "host, staged" or "gpu to gpu".
std::string way_of_messages(const Group& group, const Device& device);
// The bytes each rank sends for a sum; a single rank sends all of them to itself.
double bytes_of_sum(int ranks, double bytes);

}  // namespace some
