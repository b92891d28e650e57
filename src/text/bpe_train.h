// BPE training with the same results as Hugging Face's BpeTrainer, including ties.
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
  // included completely, and the text may have too few pairs to reach the size; a warning reports both cases.
  std::size_t vocab_size = 8192;
  // Pairs that occur less often are not merged.
  std::uint64_t min_frequency = 0;
  // They receive the first ids, in this order.
  std::vector<std::string> specials = {"[UNK]", "[PAD]", "[EOS]"};
  // Threads that count words; 0 = all usable CPUs. The result does not depend on it.
  int threads = 0;
  Log log;
};

Tokenizer train_bpe(const BpeTrainOptions& options, CorpusReader& corpus);
// `next` stores the next text and returns true; false at the end.
Tokenizer train_bpe(const BpeTrainOptions& options, const std::function<bool(std::string&)>& next);

}  // namespace some
