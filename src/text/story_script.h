// Sources of the built-in text: word tables, and stories that use them. They are text files in data/stories, embedded
// at build time; data/stories/README.md describes the format. Internal to the generator.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/embedded.h"
#include "core/random.h"
#include "text/stories_telling.h"

namespace some::telling {

using Row = std::vector<std::string>;  // cells
struct Table {
  std::vector<std::string> columns;
  std::vector<Row> rows;
};

// Text that contains cells of drawn rows (<row.column>) and amounts (<2 to 4>). These are inserted before the text is
// expanded, so that slots and alternatives in a cell work as in the text itself.
struct Template {
  struct Piece {
    std::string literal;
    int row = -1, column = 0;  // a cell, if row >= 0
    std::string amount;        // an amount, if not empty
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
  Template text, gender;              // text to add, or value to set
  int percent = 100;                  // say, choice: probability
  bool maybe = false;                 // say: less likely in a short document
  const Table* table = nullptr;       // draw: different rows of this table,
  std::vector<int> rows;              // stored under these numbers,
  std::vector<Condition> conditions;  // until all of these hold; choice: condition of the branch
  Row words;                          // text: the row stored under the first number
  int list = 0;
  std::vector<Template> entries;
  std::vector<Statement> inner, otherwise;
};

class StoryScript {
 public:
  // Throws an internal error that names file and line if the files do not follow the format.
  explicit StoryScript(std::span<const EmbeddedFile> files);
  const std::vector<std::string>& domains() const { return names_; }
  // Generates a document of the domain with this index. Its plot is the name of the story.
  GeneratedStory tell(std::size_t domain, RandomStream stream) const;

  struct Story {
    std::string name;
    std::vector<Statement> statements;
  };
  struct Domain {
    std::string name;
    std::vector<Statement> before;  // executed before the story is chosen
    std::vector<Story> stories;
  };

 private:
  std::deque<Table> tables_;
  std::vector<Domain> domains_;
  std::vector<std::string> names_;
};

// Returns the embedded script, parsed at the first call.
const StoryScript& built_in_stories();

}  // namespace some::telling
