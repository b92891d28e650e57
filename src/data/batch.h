// A batch as the model sees it: unpadded (variable-length) sequences, stored one after another with their offsets (spec
// 5). Padded rows are the special case in which every sequence has seq_len tokens; with count_pads = false there is no
// padding at all.
#pragma once

#include <cstdint>
#include <vector>

namespace some {

struct Batch {
  std::vector<std::int32_t> tokens;     // [T]; tokens, targets and positions are empty if the batch is only counted
  std::vector<std::int32_t> targets;    // [T]: the next id, or -1 if nothing is predicted
  std::vector<std::int32_t> positions;  // [T]: position in the sequence, from 0
  std::vector<std::int32_t> offsets;    // [B+1]: first token of each sequence, and T
  std::int64_t longest = 0;
  std::int64_t predicted = 0;              // number of targets >= 0
  std::int64_t predicted_non_padding = 0;  // of these, targets that are not padding
  std::int64_t real_tokens = 0;            // non-padding tokens
  std::int64_t real_bytes = 0;             // bytes of text of the predicted non-padding targets
  std::int64_t slots = 0;                  // rows * seq_len: positions of the padded batch, incl. padding
  std::vector<std::int64_t> documents;     // document of each row

  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t size() const {  // T
    return tokens.empty() && !offsets.empty() ? offsets.back() : static_cast<std::int64_t>(tokens.size());
  }
};

}  // namespace some
