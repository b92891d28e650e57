// The numbers of a JSON line, one after the other, without making objects of them: a run has ten thousand such lines,
// and fifty runs are to be seen within a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace some {

// Where in an object a value stands: names of members, and places in lists as numbers.
struct JsonStep {
  std::string_view name;  // as it stands in the line, quotes aside; empty in a list
  std::size_t place = 0;  // in a list
};
using JsonPath = std::vector<JsonStep>;

class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void number(const JsonPath& path, double value) = 0;
  virtual void text(const JsonPath& path, std::string_view value) = 0;  // as it stands, escapes and all
};

// False when the line is damaged, exactly where for_each_json_line (base/json_lines.h) finds it damaged: it is not a
// JSON object, or nests deeper than deepest_json. What was visited by then is to be forgotten.
bool walk_json(std::string_view line, JsonVisitor& visitor);

}  // namespace some
