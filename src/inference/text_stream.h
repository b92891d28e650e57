// Converts new tokens to pieces of text as they are sampled, and finds stop strings across token boundaries.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace some {

class TextStream {
 public:
  // first: true if no token precedes the new tokens (whitespace tokenizers put a space between tokens).
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop, bool first = false);

  // Adds a token. Returns the newly completed text: whole UTF-8 characters that cannot be part of a stop string.
  std::string add(TokenId token);
  // Index of the stop string that was found. Tokens after it are ignored.
  std::optional<std::size_t> stopped() const { return stopped_; }
  std::string finish();  // the rest; nothing after a stop string
  // Returns the whole text so far, without the stop string; its end may still change.
  const std::string& text() const { return text_; }

 private:
  std::size_t certain() const;  // number of bytes that may be passed on

  Tokenizer tokenizer_;
  std::vector<std::string> stop_;
  std::size_t longest_ = 0;  // index of the stop string
  bool first_;
  std::string text_;
  std::size_t given_ = 0;
  std::optional<std::size_t> stopped_;
};

}  // namespace some
