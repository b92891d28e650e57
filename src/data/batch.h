// A batch as the model sees it: packed tokens with sequence borders (spec 5). Padded rows are the special case where
// every sequence has seq_len tokens; with count_pads = false padding does not exist at all.
#pragma once

#include <cstdint>
#include <vector>

namespace some {

struct Batch {
  std::vector<std::int32_t> tokens;     // [T]; it, targets and positions are empty where a batch is only counted
  std::vector<std::int32_t> targets;    // [T]: the next id, or -1 where nothing is predicted
  std::vector<std::int32_t> positions;  // [T]: place in the sequence, from 0
  std::vector<std::int32_t> offsets;    // [B+1]
  std::int64_t longest = 0;
  std::int64_t predicted = 0;         // targets >= 0
  std::int64_t predicted_real = 0;    // of these, targets that are not padding (predicted from real tokens)
  std::int64_t real_tokens = 0;       // tokens that are not padding
  std::int64_t real_bytes = 0;        // bytes of text that the predicted real targets stand for
  std::int64_t slots = 0;             // rows * seq_len: what a padded batch would hold
  std::vector<std::int64_t> stories;  // which document each row is of

  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t size() const {  // T
    return tokens.empty() && !offsets.empty() ? offsets.back() : static_cast<std::int64_t>(tokens.size());
  }
};

}  // namespace some
