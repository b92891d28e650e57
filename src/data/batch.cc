#include "data/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "data/token_data.h"

namespace some {

Batch make_batch(const TokenData& data, std::span<const std::int64_t> documents, const BatchOptions& options) {
  std::vector<Sequence> sequences;
  for (const std::int64_t document : documents) {
    const auto tokens = data.document_tokens(document);
    sequences.push_back({document, 0, std::min<std::int64_t>(tokens, options.seq_len), 1});
  }
  return make_batch(data, sequences, options);
}

Batch make_batch(const TokenData& data, std::span<const Sequence> sequences, const BatchOptions& options) {
  if (options.seq_len < 1)
    bad_input(Code::setting_out_of_range, "{} is {}; it must be at least 1", "model.seq_len", options.seq_len);
  const std::int64_t width = options.seq_len;
  const bool padded = options.count_pads || options.padded_rows;
  const auto rows = static_cast<std::int64_t>(sequences.size());
  if (rows > std::numeric_limits<std::int32_t>::max() / width)
    bad_input(Code::size_unsupported, "a batch of {} rows of {} tokens is too large", rows, width);

  Batch batch;
  batch.slots = rows * width;
  batch.offsets.reserve(sequences.size() + 1);
  batch.offsets.push_back(0);
  std::int64_t size = 0;
  for (const Sequence& one : sequences) {
    size += padded ? width : one.end - one.begin;
    batch.documents.push_back(one.document);
  }
  const bool laid_out = !options.counts_only;
  if (laid_out) {
    batch.tokens.reserve(static_cast<std::size_t>(size));
    batch.targets.reserve(static_cast<std::size_t>(size));
    batch.positions.reserve(static_cast<std::size_t>(size));
  }

  for (const Sequence& one : sequences) {
    const std::int64_t real = one.end - one.begin;
    const std::vector<std::int32_t> ids = data.ids(one.document, one.begin, one.end);
    const std::vector<std::uint16_t> bytes = data.bytes(one.document, one.begin, one.end);
    const std::int64_t length = padded ? width : real;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      // Spec 5: the last position of a row has no target. Padding is predicted only if it is counted; if not, nothing
      // is predicted from EOS. Tokens predicted by another sequence are only context here.
      std::int32_t target = -1;
      if (i + 1 < real && (options.count_pads || ids[at] != options.eos_id)) {
        if (one.begin + i + 1 >= one.first_target) {
          target = ids[at + 1];
          batch.predicted_non_padding += 1;
          batch.real_bytes += bytes[at + 1];
        }
      } else if (i + 1 >= real && i + 1 < length && options.count_pads) {
        target = options.pad_id;
      }
      if (target >= 0) batch.predicted += 1;
      if (!laid_out) continue;
      batch.tokens.push_back(i < real ? ids[at] : options.pad_id);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.targets.push_back(target);
    }
    batch.real_tokens += real;
    batch.longest = std::max(batch.longest, length);
    batch.offsets.push_back(batch.offsets.back() + static_cast<std::int32_t>(length));
  }
  return batch;
}

std::vector<std::int64_t> epoch_order(std::int64_t sequences, std::uint64_t seed, std::int64_t epoch) {
  if (sequences > std::numeric_limits<std::uint32_t>::max())
    failed(Code::size_unsupported, "{} sequences exceed the maximum that can be shuffled", sequences);
  std::vector<std::int64_t> order(static_cast<std::size_t>(sequences));
  for (std::int64_t i = 0; i < sequences; ++i) order[static_cast<std::size_t>(i)] = i;
  const RandomStream stream = random_stream(seed, fmt::format("order.{}", epoch));
  for (std::int64_t i = sequences - 1; i > 0; --i) {  // Fisher-Yates
    const std::uint32_t other = stream.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(i + 1));
    std::swap(order[static_cast<std::size_t>(i)], order[other]);
  }
  return order;
}

}  // namespace some
