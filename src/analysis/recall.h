// Recall of a partitioned memory (IVF) that searches only some partitions (spec 8, "Partitions"). Reads the same text
// several times with a store that does not learn, each time with a different nprobe, and compares with exact search.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "memory/memory.h"

namespace some {

struct RecallRow {
  std::int64_t nprobe = 0;
  // recall: fraction of positions at which the nearest slot of the target token by exact search was found
  double found = 0;
  double loss = 0;  // nats/token
  double seconds = 0;
};
struct RecallReport {
  std::int64_t tokens = 0, slots = 0, slots_in_use = 0, partitions = 0, partitions_active = 0;
  RecallRow alone, exact;  // the model without the memory; search over all slots
  std::vector<RecallRow> searches;
};
// Throws (bad_input) if the store has only one partition. searches: values of nprobe; values beyond the number of
// active partitions give exact search.
RecallReport measure_recall(Model& model, Memory memory, const std::vector<std::int32_t>& tokens,
                            const std::vector<std::int32_t>& searches);
nlohmann::json to_json(const RecallReport& report);

}  // namespace some
