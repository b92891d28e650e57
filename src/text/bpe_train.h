// Training of byte-pair vocabularies with the results of Hugging Face's BpeTrainer, ties included.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/log.h"
#include "text/corpus.h"
#include "text/tokenizer.h"

namespace some {

struct BpeTrainOptions {
  TokenizerKind kind = TokenizerKind::bytelevel;
  // Size of the whole vocabulary: special tokens, alphabet and merges. The special tokens and the alphabet are always
  // taken in whole, and a text may have too few pairs to fill it; a warning reports either.
  std::size_t vocab_size = 8192;
  // Pairs seen less often are not merged.
  std::uint64_t min_frequency = 0;
  // They get the first ids, in this order.
  std::vector<std::string> specials = {"[UNK]", "[PAD]", "[EOS]"};
  // Threads that count words, 0 for all usable CPUs. The result does not depend on it.
  int threads = 0;
  Log log;
};

Tokenizer train_bpe(const BpeTrainOptions& options, CorpusReader& corpus);
// `next` gives one text after another, and false at the end.
Tokenizer train_bpe(const BpeTrainOptions& options, const std::function<bool(std::string&)>& next);

}  // namespace some
