// Text we did not write (names, titles, stories, paths) in messages and on terminals. Whatever would move the cursor,
// hide itself or change the direction of writing is written out as \x1b, \u202e and the like, so that what you see is
// what is there.
#pragma once

#include <string>
#include <string_view>

namespace some {

enum class Lines { escaped, kept };  // what happens to line ends and tabs

std::string escaped(std::string_view text, Lines lines = Lines::escaped);
// The same for text that comes piece by piece and may be cut inside a character: the rest is kept for the next piece.
class StreamEscape {
 public:
  std::string add(std::string_view piece);  // line ends and tabs are kept
  std::string finish();                     // what is left of a character that never came to its end

 private:
  std::string waiting_;
};
// At most `most` bytes of it, cut between characters, with "..." where something is left out.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace some
