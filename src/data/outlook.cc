#include "data/outlook.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/source.h"
#include "text/bpe_train.h"

namespace some {
namespace {

constexpr std::size_t sample_bytes = std::size_t{2} << 20;

// A sample of evenly spaced documents of a stream of unknown length, of at most about sample_bytes: when the sample is
// full, every second document is dropped. A long document is represented by its beginning.
class Sample {
 public:
  void add(const std::string& text) {
    if (seen_++ % stride_ != 0) return;
    texts_.push_back(text.substr(0, sample_bytes));
    bytes_ += texts_.back().size();
    while (bytes_ > sample_bytes && texts_.size() > 1) thin_out();
  }
  const std::vector<std::string>& texts() const { return texts_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void thin_out() {
    std::size_t kept = 0;
    bytes_ = 0;
    for (std::size_t i = 0; i < texts_.size(); i += 2) {
      bytes_ += texts_[i].size();
      if (i != kept) texts_[kept] = std::move(texts_[i]);
      ++kept;
    }
    texts_.resize(kept);
    stride_ *= 2;
  }

  std::vector<std::string> texts_;
  std::size_t bytes_ = 0, seen_ = 0, stride_ = 1;
};

// Returns the tokenizer of the configuration; one that the run would train is trained on the sample.
Tokenizer sample_tokenizer(const Host& host, const DataConfig& config, const std::vector<std::string>& texts) {
  if (config.tokenizer != "bytelevel" && config.tokenizer != "whitespace") return Tokenizer::load(config.tokenizer);
  BpeTrainOptions options;
  options.kind = tokenizer_kind(config.tokenizer);
  options.vocab_size = static_cast<std::size_t>(config.vocab);
  options.threads = host.threads->count();
  std::size_t next = 0;
  return train_bpe(options, [&](std::string& text) {
    if (next == texts.size()) return false;
    text = texts[next++];
    return true;
  });
}

double tokens_per_byte(const Host& host, const DataConfig& config, const Sample& sample) {
  if (sample.bytes() == 0) return 1;
  const Tokenizer tokenizer = sample_tokenizer(host, config, sample.texts());
  const std::vector<std::string>& texts = sample.texts();
  std::vector<std::size_t> tokens(texts.size());
  parallel_for(*host.threads, std::ssize(texts), [&](std::int64_t i) {
    const auto place = static_cast<std::size_t>(i);
    tokens[place] = tokenizer.encode(texts[place], {.specials = false}).size();
  });
  double sum = 0;
  for (const std::size_t one : tokens) sum += static_cast<double>(one);
  return sum / static_cast<double>(sample.bytes());
}

// Totals over documents of the given sizes in bytes.
struct Sum {
  double documents = 0, tokens = 0, used = 0, sequences = 0, max_sequences = 0, squares = 0;

  void add(double bytes, double ratio, const DataConfig& config, int seq_len) {
    const double length = seq_len, step = std::max(1, seq_len - 1), end = config.eos ? 1 : 0;
    const double estimated = bytes * ratio + end;
    const bool split = config.long_documents == LongDocuments::split;
    const auto pieces = [&](double count) { return split ? 1 + std::ceil(std::max(0.0, count - length) / step) : 1; };
    documents += 1;
    tokens += estimated;
    used += split ? estimated : std::min(length, estimated);
    sequences += pieces(estimated);
    const double last = std::min(length, estimated - (pieces(estimated) - 1) * step);
    squares += (pieces(estimated) - 1) * length * length + last * last;
    max_sequences += pieces(bytes + 1);
  }
};

}  // namespace

DataEstimate estimate_data(const Host& host, const DataConfig& config, int seq_len) {
  DataEstimate out;
  try {
    const bool builtin = is_builtin(config.train);
    const std::int64_t limit =
        builtin && config.train_documents == 0 ? builtin_train_documents : config.train_documents;
    const DocumentStream stream = DocumentSource(config.train, config, 0, limit).open(*host.threads);
    Sample sample;
    std::vector<double> sizes;
    // Built-in documents are sampled, since their number is known; a file must be read completely.
    for (std::string document; (!builtin || sample.bytes() < sample_bytes / 2) && stream(document);) {
      sample.add(document);
      sizes.push_back(static_cast<double>(document.size()));
    }
    const double ratio = tokens_per_byte(host, config, sample);
    out.bytes_per_token = 1 / ratio;
    Sum sum;
    for (const double size : sizes) sum.add(size, ratio, config, seq_len);
    double documents = builtin ? static_cast<double>(limit) : sum.documents, share = documents / sum.documents;
    if (config.valid.empty() && !builtin && config.train_documents == 0) {
      const auto all = static_cast<std::int64_t>(documents);
      if (must_split_documents(all, config)) {
        share = 1 - config.valid_share;
      } else {
        documents = static_cast<double>(all - held_out_documents(all, config.valid_share));
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
    out.tokens_deviation = std::sqrt(std::max(0.0, sum.squares / sum.sequences - out.mean_tokens * out.mean_tokens));
    out.known = true;
  } catch (const Error& error) {
    out.unknown_reason = error.what();
  }
  return out;
}

}  // namespace some
