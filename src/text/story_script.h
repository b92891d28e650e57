// The built-in text's sources: tables of words and the stories that are told with them, in text files (data/stories,
// embedded when the program is built; data/stories/README.md describes the format). Internal to the generator.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/embedded.h"
#include "core/random.h"
#include "text/stories_telling.h"

namespace some::telling {

using Row = std::vector<std::string>;  // cells
struct Table {
  std::vector<std::string> columns;
  std::vector<Row> rows;
};

// Text with cells of drawn rows (<row.column>) and amounts (<2 to 4>) in it. They are put in as they are before the
// text is expanded, so that slots and alternatives of a cell work as if they were written in the text.
struct Template {
  struct Piece {
    std::string literal;
    int row = -1, column = 0;  // a cell
    std::string amount;        // or an amount, where it is not empty
  };
  std::vector<Piece> pieces;
};

struct Condition {
  enum class Kind { is, is_not, in, not_in, any };
  Kind kind = Kind::any;
  Template left, right;
};

struct Statement {
  enum class Act { say, line, heading, paragraph, set, person, text, draw, choice, list, each, one_of };
  Act act = Act::paragraph;
  std::string slot, suffix;           // set, person
  Template text, gender;              // what is said or set
  int percent = 100;                  // say, choice: how often
  bool maybe = false;                 // say: less often in a short telling
  const Table* table = nullptr;       // draw: different rows of it,
  std::vector<int> rows;              // under these numbers,
  std::vector<Condition> conditions;  // until all of these hold; choice: which part is told
  Row words;                          // text: what the row with the first number is
  int list = 0;
  std::vector<Template> entries;
  std::vector<Statement> inner, otherwise;
};

class StoryScript {
 public:
  // Throws an internal error that names file and line where they do not follow the format.
  explicit StoryScript(std::span<const EmbeddedFile> files);
  const std::vector<std::string>& domains() const { return names_; }
  // `domain`: the number of one. The name of the story that was told is the tale's plot.
  Tale tell(std::size_t domain, RandomStream stream) const;

  struct Story {
    std::string name;
    std::vector<Statement> statements;
  };
  struct Domain {
    std::string name;
    std::vector<Statement> before;  // told before the story is chosen
    std::vector<Story> stories;
  };

 private:
  std::deque<Table> tables_;
  std::vector<Domain> domains_;
  std::vector<std::string> names_;
};

// What is embedded, read at the first call.
const StoryScript& built_in_stories();

}  // namespace some::telling
