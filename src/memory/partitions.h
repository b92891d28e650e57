// A large store in parts (spec 8, parts). A part is a stretch of slots of its own, with a centre: the sum of the
// queries that were born or hit in it. A query looks into the parts whose centres are nearest to it and is born in one
// of them, so what it leaves lies where it will be looked for. All begins in the first part; a part that has become
// full is divided into itself and the next one that has not begun, as long as there is one. Keys, centres and who looks
// where are on the device; dividing is rare and done on the host, by the same code for both devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/store.h"

namespace some {

// Whether a part of this size that holds so many slots is to be divided.
inline bool is_full(std::int64_t used, std::int64_t size) { return 4 * used > 3 * size; }

// Which slots of a part stay in it when it is divided and which go to the new one, each in its order. Empty slots are
// in neither. keys: [counts.size(), d]; centre: the part's own.
struct Division {
  std::vector<std::int64_t> stay, go;
  std::vector<double> centre_of_stay, centre_of_go;
};
Division plan_division(Threads& threads, std::span<const double> keys, std::span<const double> counts,
                       std::span<const double> centre);

// Divides every part that is full, while one is left that has not begun. used: of each part that has begun, how many of
// its slots hold something.
void divide_full_parts(Context& ctx, std::span<const std::int32_t> used, Store& store);

// How many parts a query looks into; and whether that is less than everything, which needs no choice.
inline std::int64_t parts_to_look_into(const Store& store, const MemorySettings& settings) {
  return std::min(settings.look, store.partitions_active());
}
inline bool looks_into_some(const Store& store, const MemorySettings& settings) {
  return store.parts() > 1 && parts_to_look_into(store, settings) < store.partitions_active();
}

// How many slots of each part at once have scores in memory, if so many rows look into parts.
std::int64_t slots_of_part_at_once(std::int64_t partition_size, std::int64_t visits);

}  // namespace some
