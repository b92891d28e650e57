// The tokens of a lossless vocabulary as a binary tree, so that coding a token is a series of binary decisions: the
// bits of its bytes, and after every byte whether the token ends there. Decisions with only one possible outcome are
// skipped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace some {

class TokenTree {
 public:
  TokenTree();  // one per byte value
  // Throws bad_input if the tokenizer is not lossless: not of the bytelevel kind, or without a token for some byte.
  explicit TokenTree(const Tokenizer& tokenizer);

  int size() const { return static_cast<int>(tokens_.size()); }
  // Tokens sorted by their bytes: a place is an index into this order.
  TokenId token(int place) const { return ids_[static_cast<std::size_t>(place)]; }
  const std::string& bytes(int place) const { return tokens_[static_cast<std::size_t>(place)]; }
  int place(TokenId token) const;  // -1: special tokens have none

  // A node: the places [low, high) that share the first `depth` bytes and the first 8 - bits_left bits of the next one.
  struct Node {
    int low = 0, high = 0, depth = 0, bits_left = 8;
    int partial = 1;       // bits of the unfinished byte, after a leading 1
    bool asks_end = true;  // true if the end is decided first, because a token ends at this depth
  };
  Node root() const { return {0, size(), 0, 8, 1, false}; }
  enum class Question { none, end, bit };
  struct Decision {
    Question question = Question::none;  // none if only one place is left
    int split = 0;                       // the outcome is 1 for places >= split
  };
  // Advances to the next decision. Calls `byte(value)` for each byte completed on the way.
  template <typename Byte>
  Decision next(Node& node, Byte&& byte) const {
    for (;;) {
      if (node.bits_left == 0) {
        byte(static_cast<unsigned char>(node.partial));
        ++node.depth;
        node.bits_left = 8;
        node.partial = 1;
        node.asks_end = true;
      }
      const bool ends = node.bits_left == 8 && node.asks_end && ends_at(node.low, node.depth);
      if (node.high - node.low == 1 && ends) return {};
      if (ends) return {Question::end, node.low + 1};
      const int split = bit_split(node);
      if (split > node.low && split < node.high) return {Question::bit, split};
      take_bit(node, split == node.low);
    }
  }
  static void take(Node& node, const Decision& decision, bool one) {
    if (one)
      node.low = decision.split;
    else
      node.high = decision.split;
    if (decision.question == Question::bit) take_bit(node, one);
    if (decision.question == Question::end && one) node.asks_end = false;
  }

 private:
  void finish();
  bool ends_at(int place, int depth) const { return static_cast<int>(bytes(place).size()) == depth; }
  int bit_split(const Node& node) const;
  static void take_bit(Node& node, bool one) {
    node.partial = node.partial * 2 + (one ? 1 : 0);
    --node.bits_left;
  }

  std::vector<std::string> tokens_;
  std::vector<TokenId> ids_;
  std::vector<int> places_;  // by id
};

}  // namespace some
