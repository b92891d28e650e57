#include "inference/text_stream.h"

#include <algorithm>

namespace some {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop, bool first)
    : tokenizer_(tokenizer), stop_(std::move(stop)), first_(first) {
  for (const std::string& one : stop_) longest_ = std::max(longest_, one.size());
}

std::string TextStream::add(TokenId token) {
  if (stopped_ || tokenizer_.is_special(token)) return {};
  const std::size_t before = text_.size();
  if (tokenizer_.kind() == TokenizerKind::whitespace && !first_) text_ += ' ';
  first_ = false;
  text_ += tokenizer_.token_bytes(token);
  // A stop string can begin in an earlier token. If this token completes several, the one that begins first ends the
  // text.
  const std::size_t from = before + 1 > longest_ ? before + 1 - longest_ : 0;
  std::size_t cut = std::string::npos;
  for (std::size_t i = 0; i < stop_.size(); ++i) {
    const std::size_t at = text_.find(stop_[i], from);
    if (at >= cut) continue;
    cut = at;
    stopped_ = i;
  }
  if (stopped_) text_.resize(cut);
  const std::size_t end = certain();
  std::string piece = text_.substr(given_, end - given_);
  given_ = end;
  return piece;
}

std::size_t TextStream::certain() const {
  if (stopped_) return text_.size();
  std::size_t end = text_.size();
  for (const std::string& one : stop_) {
    for (std::size_t length = std::min(one.size() - 1, text_.size() - given_); length > 0; --length) {
      if (text_.compare(text_.size() - length, length, one, 0, length) != 0) continue;
      end = std::min(end, text_.size() - length);
      break;
    }
  }
  // At most three bytes of an incomplete character are held back. Bytes that cannot begin a character are passed on
  // unchanged.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, end - given_); ++back) {
    const auto byte = static_cast<unsigned char>(text_[end - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 && byte < 0xF8 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    if (length > back && byte < 0xF8) end -= back;
    break;
  }
  return end;
}

std::string TextStream::finish() {
  std::string rest = text_.substr(given_);
  given_ = text_.size();
  return rest;
}

}  // namespace some
