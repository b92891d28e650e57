// A quick look at the data of a recipe, for planning: how many documents there will be and about how long they are.
// Nothing is tokenised.
#pragma once

#include <cstdint>
#include <string>

#include "data/token_data.h"

namespace some {

struct DataOutlook {
  bool known = false;
  std::string unknown_reason;
  DataUse use;                     // of the training text; all but the documents estimated
  double mean_tokens = 0;          // of a sequence, estimated
  std::int64_t max_sequences = 0;  // as many as there could be if every byte were a token
};

DataOutlook look_at_data(const Host& host, const DataConfig& config, int seq_len);

}  // namespace some
