#include "core/files/json.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/escape.h"

namespace some {
namespace {

using Json = nlohmann::json;

struct Place {
  std::size_t line = 1, column = 1;
};

Place place_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t newline = before.rfind('\n');
  return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
          before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1};
}

// Returns the offset at which the text first nests too deep. After a syntax error the count may be wrong, which is
// harmless because the parser stops at the error.
std::optional<std::size_t> find_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_json_depth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

// Strips a message of nlohmann::json of its number, its own line count, and the text read, which may be arbitrary:
// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing value - invalid
// literal; last read: 'x'; expected ..." becomes "invalid literal".
std::string plain_reason(const std::string& message) {
  std::string_view rest = message;
  if (const std::size_t dash = rest.find(" - "); dash != std::string_view::npos) rest.remove_prefix(dash + 3);
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find("] ");
    rest.remove_prefix(end == std::string_view::npos ? 0 : end + 2);
  }
  rest = rest.substr(0, rest.find("; last read"));
  return escaped(shortened(rest, 120));
}

}  // namespace

Json parse_json(std::string_view text, const std::string& origin, const Json::parser_callback_t& watch) {
  if (const auto deep = find_too_deep(text)) {
    const Place place = place_of(text, *deep);
    bad_input(Code::json_syntax, "{}: line {}, column {}: JSON nested deeper than the supported {} levels", origin,
              place.line, place.column, max_json_depth);
  }
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    // nlohmann::json counts bytes from 1, and reports one more at the end of the text.
    const Place place = place_of(text, error.byte > 0 ? error.byte - 1 : 0);
    bad_input(Code::json_syntax, "{}: line {}, column {}: not JSON: {}", origin, place.line, place.column,
              plain_reason(error.what()));
  } catch (const Json::exception& error) {
    bad_input(Code::json_syntax, "{}: not JSON: {}", origin, plain_reason(error.what()));
  }
}

std::optional<Json> parse_json_line(std::string_view line) {
  if (find_too_deep(line)) return std::nullopt;
  Json value = Json::parse(line.begin(), line.end(), nullptr, false);
  if (value.is_discarded()) return std::nullopt;
  return value;
}

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array())
    return value.size() == 1 ? "a list of 1 value" : fmt::format("a list of {} values", value.size());
  if (value.is_discarded()) return "nothing";
  return escaped(shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60));
}

Json json_of(const Error& error) {
  return {{"code", name_of(error.code())}, {"message", error.what()}, {"values", error.values()}};
}

JsonObject::JsonObject(Json object, std::string origin) : object_(std::move(object)), origin_(std::move(origin)) {
  if (!object_.is_object()) bad_input(Code::json_type, "{}: must be a JSON object, not {}", origin_, describe(object_));
}

JsonObject JsonObject::object(const std::string& key) const {
  const Json& value = find(key);
  if (!value.is_object()) wrong(value, key, "an object");
  return {value, origin_ + ": " + key};
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) const {
  const Json& list = find(key);
  if (!list.is_array()) wrong(list, key, "a list");
  std::vector<JsonObject> out;
  for (const Json& item : list) {
    if (!item.is_object()) wrong(item, key, "a list of objects");
    out.emplace_back(item, fmt::format("{}: {} {}", origin_, key, out.size()));
  }
  return out;
}

const Json& JsonObject::find(const std::string& key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) bad_input(Code::json_missing, "{}: {} is missing", origin_, key);
  return *found;
}

void JsonObject::wrong(const std::string& key, const std::string& wanted) const { wrong(find(key), key, wanted); }

void JsonObject::wrong(const Json& value, const std::string& key, const std::string& wanted) const {
  bad_input(Code::json_type, "{}: {}: must be {}, not {}", origin_, key, wanted, describe(value));
}

void JsonObject::wrong_range(const Json& value, const std::string& key, const std::string& low,
                             const std::string& high) const {
  bad_input(Code::json_out_of_range, "{}: {}: must be a number from {} to {}, not {}", origin_, key, low, high,
            describe(value));
}

}  // namespace some
