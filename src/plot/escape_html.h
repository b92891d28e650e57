// Text and data of any origin made safe for a page: the only way into one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace some {

// Safe inside XML and HTML, between tags and between quotes; bytes that are not UTF-8 are replaced.
std::string escape(std::string_view text);
// JSON for the inside of a script element: no text in it can end the element or begin a comment.
std::string script_json(const nlohmann::json& value);
// The text with what is not UTF-8 replaced: a page must be valid whatever a model wrote or a file is named.
std::string valid_text(std::string_view text);
// Markdown that shows the text as it is, on one line.
std::string escape_markdown(std::string_view text);

}  // namespace some
