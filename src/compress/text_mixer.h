// Codes the tokens of a text as binary decisions. The probability of each decision is a mixture of contexts of bytes,
// words and tokens, the longest earlier match, and distributions over the next token that the caller provides (those of
// the model). Encoder and decoder run the same code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/context_mixer.h"
#include "compress/token_tree.h"

namespace some {

// Codes each decision: an encoder writes the given outcome, a decoder reads it.
class DecisionCoder {
 public:
  virtual ~DecisionCoder() = default;
  virtual bool code(std::uint32_t probability, int split) = 0;  // the outcome is 1 for places >= split
};

// A distribution over the places of a token tree: sums[i] is the total weight of the places below i. Every weight is at
// least 1 and their sum is below 2^40.
using WeightSums = std::vector<std::uint64_t>;

class TextMixer {
 public:
  // A text is coded in parts that advance side by side, each with its own range of the text and its own history. parts:
  // their borders, from 0 to the length of the text. distributions: number of distributions per token from the caller.
  TextMixer(const TokenTree& tree, std::vector<std::uint64_t> parts, int distributions);

  // Codes the next token of a part, appends its bytes to the text and returns its place in the tree. Throws bad_input
  // (compressed_invalid) if the token would exceed the part, which only damaged data can cause.
  int code_token(std::size_t part, std::span<const WeightSums> distributions, DecisionCoder& coder);
  bool done(std::size_t part) const { return parts_[part].at == parts_[part].end; }
  std::uint64_t coded_bytes() const;
  const std::string& text() const { return text_; }
  std::string& text() { return text_; }

  std::vector<StateField> state();
  // Returns whether a restored state is one that this text and these parts can have: every position is in its range.
  // parts: the borders given to the constructor.
  bool state_valid(const std::vector<std::uint64_t>& parts) const;
  // Number of bytes coded in a part.
  std::uint64_t coded_bytes(std::size_t part) const { return parts_[part].at - parts_[part].begin; }

 private:
  static constexpr int max_contexts = 16;
  // History of one part: the bytes and tokens before a decision.
  struct Part {
    std::uint64_t begin = 0, end = 0, at = 0;
    std::uint64_t word = 0, previous_word = 0;
    std::int32_t tokens[3] = {-1, -1, -1};
    std::uint64_t match = 0, match_end = 0;  // position of the expected byte; none if match == match_end
    std::uint32_t match_length = 0;
    std::uint32_t match_part = 0;
  };
  struct Calibration {
    std::uint16_t probability = 0;
    std::uint16_t seen = 0;
  };
  void append(Part& part, unsigned char byte);
  void find_match(Part& part);
  void begin_byte(const Part& part);
  void set_contexts(const Part& part, const TokenTree::Node& node, TokenTree::Question question);
  unsigned char byte_before(const Part& part, std::uint64_t back) const {
    return part.at >= part.begin + back ? static_cast<unsigned char>(text_[part.at - back]) : 0;
  }

  const TokenTree& tree_;
  int distributions_;
  bool byte_tree_;
  std::string text_;
  std::vector<std::uint8_t> ends_;  // true for the decision whether a token ends after a byte
  std::vector<Part> parts_;
  std::vector<std::uint32_t> match_table_;  // 1 + last position after a given hash of bytes
  std::vector<Calibration> match_history_;  // by length of the match and kind of decision
  std::vector<Calibration> calibrations_;   // of the distributions
  ContextMixer mixer_;
  std::uint64_t byte_context_[max_contexts] = {};
  std::uint64_t context_[max_contexts] = {};
};

}  // namespace some
