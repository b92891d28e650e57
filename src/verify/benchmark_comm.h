// Communication speed between the ranks of a group, the input of forecasts for larger groups (docs/scale.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "runtime/machine.h"

namespace some {

struct CommBenchmark {
  std::string device, way;
  int ranks = 1;
  struct Measure {
    std::int64_t bytes = 0;  // size of the tensor on each rank
    double seconds = 0;      // minimum over the repeats
  };
  std::vector<Measure> sums;       // all-reduce of a tensor
  std::vector<Measure> exchanges;  // all-to-all with an equal part of the rows for every rank
  // Fitted to `sums`: latency per message, and bandwidth including the work per byte (copies from and to a GPU,
  // additions).
  double message_seconds = 0, bytes_per_second = 0;
};

// Measures `sums` and `exchanges`. Collective.
CommBenchmark bench_comm(const Group& group, const DeviceChoice& device, std::int64_t max_bytes, int repeats);

// Returns the transport for tensors of this device: "host", "host, staged" or "gpu to gpu".
std::string transport_name(const Group& group, const Device& device);
// Returns the number of bytes each rank sends for an all-reduce; a single rank sends all of them to itself.
double all_reduce_bytes_sent(int ranks, double bytes);

}  // namespace some
