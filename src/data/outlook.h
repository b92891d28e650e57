// Estimates the size of a recipe's training data, for planning: number of documents and their lengths in tokens, from
// the tokens of a sample.
#pragma once

#include <cstdint>
#include <string>

#include "data/token_data.h"

namespace some {

struct DataEstimate {
  bool known = false;
  std::string unknown_reason;
  DataUse use;                     // of the training text; all numbers except the documents are estimates
  double bytes_per_token = 0;      // of the sample
  double mean_tokens = 0;          // per sequence, estimated
  double tokens_deviation = 0;     // standard deviation of the same
  std::int64_t max_sequences = 0;  // upper bound: if every byte were a token
};

DataEstimate estimate_data(const Host& host, const DataConfig& config, int seq_len);

}  // namespace some
