// Escaping of untrusted text and data for pages; all text enters a page through these functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace some {

// Escapes text for XML and HTML, between tags and inside quoted attributes; invalid UTF-8 is replaced.
std::string escape(std::string_view text);
// Serializes JSON for a script element: no text in it can end the element or start a comment.
std::string script_json(const nlohmann::json& value);
// Replaces invalid UTF-8: a page must be valid whatever a model generated and however a file is named.
std::string valid_text(std::string_view text);
// Escapes text for Markdown so that it is displayed unchanged, on one line.
std::string escape_markdown(std::string_view text);

}  // namespace some
