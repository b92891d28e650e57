#include "compress/token_tree.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace some {

TokenTree::TokenTree() {
  for (int byte = 0; byte < 256; ++byte) {
    tokens_.emplace_back(1, static_cast<char>(byte));
    ids_.push_back(byte);
  }
  places_ = ids_;
}

TokenTree::TokenTree(const Tokenizer& tokenizer) {
  if (tokenizer.kind() != TokenizerKind::bytelevel)
    bad_input(Code::tokenizer_unsupported,
              "the run's tokenizer is of the kind \"{}\", which loses whitespace: use a run with data.tokenizer = "
              "\"bytelevel\", or --portable",
              tokenizer_kind_name(tokenizer.kind()));
  const auto vocabulary = static_cast<TokenId>(tokenizer.vocab_size());
  std::vector<TokenId> order;
  for (TokenId id = 0; id < vocabulary; ++id) {
    if (!tokenizer.is_special(id) && !tokenizer.token_bytes(id).empty()) order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const std::string_view first = tokenizer.token_bytes(a), second = tokenizer.token_bytes(b);
    return first != second ? first < second : a < b;
  });
  places_.assign(static_cast<std::size_t>(vocabulary), -1);
  int single = 0;
  for (const TokenId id : order) {
    const std::string bytes(tokenizer.token_bytes(id));
    if (tokens_.empty() || tokens_.back() != bytes) {
      tokens_.push_back(bytes);
      ids_.push_back(id);
      if (bytes.size() == 1) ++single;
    }
    places_[static_cast<std::size_t>(id)] = size() - 1;
  }
  if (single != 256)
    bad_input(Code::tokenizer_unsupported,
              "the run's vocabulary has tokens for {} of the 256 bytes: all of them are required; use another run, or "
              "--portable",
              single);
}

int TokenTree::place(TokenId token) const {
  return token >= 0 && token < static_cast<TokenId>(places_.size()) ? places_[static_cast<std::size_t>(token)] : -1;
}

int TokenTree::bit_split(const Node& node) const {
  const auto depth = static_cast<std::size_t>(node.depth);
  const int first_with_one = (node.partial * 2 + 1) << (node.bits_left - 1) & 255;
  const auto begin = tokens_.begin() + node.low, end = tokens_.begin() + node.high;
  return static_cast<int>(std::partition_point(begin, end,
                                               [&](const std::string& token) {
                                                 return static_cast<unsigned char>(token[depth]) < first_with_one;
                                               }) -
                          tokens_.begin());
}

}  // namespace some
