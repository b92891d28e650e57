// Partitions of a large store (IVF cells; spec 8, "Partitions"). A partition is a contiguous range of slots with a
// centroid: the sum of the queries that were inserted or matched in it. A query searches the partitions with the
// nearest centroids (nprobe) and is inserted into one of them, so that later queries search where it is. The first
// partition is active from the start. A full partition is split into itself and the next inactive one, as long as there
// is one. Keys, centroids and the choice of partitions are on the device. Splitting is rare and runs on the host, with
// the same code for both devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/store.h"

namespace some {

// True if a partition of this size with `used` non-empty slots is to be split.
inline bool is_full(std::int64_t used, std::int64_t size) { return 4 * used > 3 * size; }

// The slots that stay in a partition when it is split and the slots that move to the new one, each in their order.
// Empty slots are in neither. keys: [counts.size(), d]; centroid: centroid of the partition.
struct PartitionSplit {
  std::vector<std::int64_t> stay, go;
  std::vector<double> centroid_of_stay, centroid_of_go;
};
PartitionSplit plan_partition_split(Threads& threads, std::span<const double> keys, std::span<const double> counts,
                                    std::span<const double> centroid);

// Splits every full partition, as long as one is inactive. used: the number of non-empty slots of each active
// partition.
void split_full_partitions(Context& ctx, std::span<const std::int32_t> used, Store& store);

// Returns the number of partitions that a query searches (nprobe). searches_some_partitions() is true if these are not
// all active partitions; otherwise no choice is needed.
inline std::int64_t partitions_to_search(const Store& store, const MemorySettings& settings) {
  return std::min(settings.nprobe, store.partitions_active());
}
inline bool searches_some_partitions(const Store& store, const MemorySettings& settings) {
  return store.partitions() > 1 && partitions_to_search(store, settings) < store.partitions_active();
}

// Returns how many slots of each partition have scores in memory at the same time, for this many (row, partition)
// pairs.
std::int64_t partition_slots_at_once(std::int64_t partition_size, std::int64_t visits);

}  // namespace some
