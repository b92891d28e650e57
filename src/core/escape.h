// Escapes untrusted text (names, titles, stories, paths) for messages and terminals. Characters that would move the
// cursor, hide themselves or change the writing direction are written as \x1b, \u202e and so on, so that a terminal
// shows exactly what the text contains.
#pragma once

#include <string>
#include <string_view>

namespace some {

enum class Lines { escaped, kept };  // whether line ends and tabs are escaped too

std::string escaped(std::string_view text, Lines lines = Lines::escaped);
// Escapes text that arrives in pieces, which may be cut inside a character: the incomplete bytes are kept for the next
// piece.
class StreamEscape {
 public:
  std::string add(std::string_view piece);  // line ends and tabs are kept
  std::string finish();                     // escapes the bytes of a character that was never completed

 private:
  std::string waiting_;
};
// Returns at most `most` bytes of `text`, cut between characters; "..." marks the omitted rest.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace some
