// Streaming (SAX) parser for a JSON line that creates no objects: a run has ten thousand such lines, and fifty runs
// must be displayed within a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace some {

// One component of a value's path in a JSON document: a member name, or an index in an array.
struct JsonStep {
  std::string_view name;  // as written in the line, without quotes; empty in an array
  std::size_t place = 0;  // index in an array
};
using JsonPath = std::vector<JsonStep>;

class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void number(const JsonPath& path, double value) = 0;
  virtual void text(const JsonPath& path, std::string_view value) = 0;  // as written, with escapes
};

// Returns false if the line is damaged, by the same rules as for_each_json_line (core/files/json_lines.h): it is not a
// JSON object, or nests deeper than max_json_depth. The values visited until then must be discarded.
bool walk_json(std::string_view line, JsonVisitor& visitor);

}  // namespace some
