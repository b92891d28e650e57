// A quick look at the data of a recipe, for planning: how many stories there will be and about how long they are.
// Nothing is tokenised.
#pragma once

#include <cstdint>
#include <string>

#include "base/rooms.h"
#include "data/token_data.h"

namespace some::data {

struct DataOutlook {
  std::int64_t train_stories = 0;  // 0: unknown
  double mean_tokens = 0;          // a story cut at seq_len, estimated; 0: unknown
  std::string why_unknown;
};

DataOutlook look_at_data(const Host& host, const DataConfig& config, int seq_len);

}  // namespace some::data
