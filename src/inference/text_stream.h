// Turns new tokens into pieces of text as they are drawn, and finds stop strings across the borders of tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace some {

class TextStream {
 public:
  // first: the new tokens follow no other token (whitespace tokenizers put a space between tokens).
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop, bool first = false);

  // Adds a token. Returns the text that became certain: whole UTF-8 characters that cannot be part of a stop string.
  std::string add(TokenId token);
  // Number of the stop string that was found. Tokens after it are ignored.
  std::optional<std::size_t> stopped() const { return stopped_; }
  std::string finish();  // the rest; nothing after a stop string
  // The whole text so far, without the stop string; its end may not be certain yet.
  const std::string& text() const { return text_; }

 private:
  std::size_t certain() const;  // how much of the text can be given out

  Tokenizer tokenizer_;
  std::vector<std::string> stop_;
  std::size_t longest_ = 0;  // stop string
  bool first_;
  std::string text_;
  std::size_t given_ = 0;
  std::optional<std::size_t> stopped_;
};

}  // namespace some
