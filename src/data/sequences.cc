// Splits documents into the sequences that a model reads.
#include <algorithm>

#include "core/error.h"
#include "data/token_data.h"

namespace some {
namespace {

std::int64_t document_length(const TokenData& data, std::int64_t document) { return data.document_tokens(document); }

std::int64_t limited_documents(const TokenData& data, std::int64_t max_documents) {
  return max_documents > 0 ? std::min(max_documents, data.documents()) : data.documents();
}

}  // namespace

SequenceList::SequenceList(const TokenData& data, int seq_len, LongDocuments long_documents, Reading reading,
                           std::int64_t max_documents)
    : data_(data), seq_len_(seq_len), step_(reading == Reading::training ? seq_len - 1 : seq_len / 2) {
  if (seq_len < 1) bad_input(Code::setting_out_of_range, "{} is {}; it must be at least 1", "model.seq_len", seq_len);
  step_ = std::max<std::int64_t>(1, step_);
  const std::int64_t count = limited_documents(data, max_documents);
  size_ = count;
  if (long_documents == LongDocuments::cut) return;
  bool any = false;
  for (std::int64_t i = 0; i < count && !any; ++i) any = document_length(data, i) > seq_len_;
  if (!any) return;
  size_ = 0;
  first_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    first_.push_back(size_);
    size_ += 1 + (std::max<std::int64_t>(0, document_length(data, i) - seq_len_) + step_ - 1) / step_;
  }
}

Sequence SequenceList::operator[](std::int64_t number) const {
  if (number < 0 || number >= size_)
    failed(Code::index_out_of_range, "sequence {} not found; there are {}", number, size_);
  Sequence one;
  one.document = number;
  if (!first_.empty()) {
    one.document = std::upper_bound(first_.begin(), first_.end(), number) - first_.begin() - 1;
    const std::int64_t place = number - first_[static_cast<std::size_t>(one.document)];
    one.begin = place * step_;
    if (place > 0) one.first_target = one.begin - step_ + seq_len_;
  }
  one.end = std::min(document_length(data_, one.document), one.begin + seq_len_);
  return one;
}

DataUse data_use(const TokenData& data, int seq_len, LongDocuments long_documents, std::int64_t max_documents) {
  DataUse use;
  use.documents = limited_documents(data, max_documents);
  use.sequences = SequenceList(data, seq_len, long_documents, Reading::training, max_documents).size();
  for (std::int64_t i = 0; i < use.documents; ++i) {
    const std::int64_t tokens = document_length(data, i);
    use.tokens += tokens;
    use.used += long_documents == LongDocuments::split ? tokens : std::min<std::int64_t>(tokens, seq_len);
  }
  return use;
}

std::string describe(const DataUse& use, int seq_len) {
  const auto plural = [](std::int64_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  const std::string taken = use.cut() == 0
                                ? fmt::format("none cut: {} of at most {}", plural(use.sequences, "sequence"), seq_len)
                                : fmt::format(
                                      "{} used, {} cut, because documents end after model.seq_len = {} "
                                      "(data.long = \"split\" would use all)",
                                      use.used, use.cut(), seq_len);
  return fmt::format("{}, {}: {}", plural(use.documents, "document"), plural(use.tokens, "token"), taken);
}

}  // namespace some
