// What a memory in parts loses by looking into some of them only (spec 8, parts): the same text read several times with
// a store that does not learn, each time with another number of parts looked into, beside the exact search.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "memory/memory.h"

namespace some {

struct RecallRow {
  std::int64_t look = 0;
  double found = 0;  // share of the positions whose nearest slot of their token, by the exact search, was found
  double loss = 0;   // nats a token
  double seconds = 0;
};
struct RecallReport {
  std::int64_t tokens = 0, slots = 0, slots_in_use = 0, parts = 0, partitions_active = 0;
  RecallRow alone, exact;  // the model without the memory; every slot met
  std::vector<RecallRow> looks;
};
// bad_input where the store is one part. looks: numbers of parts; those beyond what has begun are exact.
RecallReport measure_recall(Model& model, Memory memory, const std::vector<std::int32_t>& tokens,
                            const std::vector<std::int32_t>& looks);
nlohmann::json to_json(const RecallReport& report);

}  // namespace some
