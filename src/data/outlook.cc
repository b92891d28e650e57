#include "data/outlook.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/source.h"

namespace some {
namespace {

// BPE vocabularies of a few thousand tokens average about four bytes of English per token.
constexpr double bytes_per_token = 4.0;

// Totals over the documents seen so far.
struct Sum {
  double documents = 0, tokens = 0, used = 0, sequences = 0, max_sequences = 0;

  void add(double bytes, const DataConfig& config, int seq_len) {
    const double length = seq_len, step = std::max(1, seq_len - 1), estimated = bytes / bytes_per_token + 1;
    const bool split = config.long_documents == LongDocuments::split;
    const auto pieces = [&](double count) { return split ? 1 + std::ceil(std::max(0.0, count - length) / step) : 1; };
    documents += 1;
    tokens += estimated;
    used += split ? estimated : std::min(length, estimated);
    sequences += pieces(estimated);
    max_sequences += pieces(bytes + 1);
  }
};

}  // namespace

DataEstimate estimate_data(const Host& host, const DataConfig& config, int seq_len) {
  DataEstimate out;
  constexpr std::int64_t sample = 500;
  try {
    const bool builtin = is_builtin(config.train);
    const std::int64_t limit =
        builtin && config.train_documents == 0 ? builtin_train_documents : config.train_documents;
    const DocumentStream stream = DocumentSource(config.train, config, 0, limit).open(*host.threads);
    Sum sum;
    // Built-in documents are sampled, since their number is known; a file must be read completely.
    for (std::string document; (!builtin || sum.documents < sample) && stream(document);)
      sum.add(static_cast<double>(document.size()), config, seq_len);
    double documents = builtin ? static_cast<double>(limit) : sum.documents, share = documents / sum.documents;
    if (config.valid.empty() && !builtin && config.train_documents == 0) {
      const auto all = static_cast<std::int64_t>(documents);
      if (must_split_documents(all, config)) {
        share = 1 - config.valid_share;
      } else {
        const std::int64_t held_out = std::max<std::int64_t>(1, std::llround(config.valid_share * documents));
        documents = static_cast<double>(all - held_out);
        share = documents / sum.documents;
      }
    }
    const auto rounded = [&](double value) { return std::max<std::int64_t>(1, std::llround(value * share)); };
    out.use.documents = std::llround(documents);
    out.use.tokens = rounded(sum.tokens);
    out.use.used = rounded(sum.used);
    out.use.sequences = rounded(sum.sequences);
    out.max_sequences = rounded(sum.max_sequences);
    out.mean_tokens = sum.used / sum.sequences;
    out.known = true;
  } catch (const Error& error) {
    out.unknown_reason = error.what();
  }
  return out;
}

}  // namespace some
