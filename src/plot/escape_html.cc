#include "plot/escape_html.h"

#include "text/utf8.h"

namespace some {

std::string escape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text.data() + i, text.data() + text.size());
    switch (point.value) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      case invalid_byte: append_utf8(out, 0xFFFD); break;
      default:
        // XML does not allow control characters.
        if (point.value < 32 && point.value != '\n' && point.value != '\t')
          out += ' ';
        else
          out += text.substr(i, point.length);
    }
    i += point.length;
  }
  return out;
}

std::string script_json(const nlohmann::json& value) {
  std::string out;
  // "</script" and "<!--" both need a "<", which JSON may also write as an escape.
  for (const char c : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string valid_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text.data() + i, text.data() + text.size());
    if (point.value == invalid_byte)
      append_utf8(out, 0xFFFD);
    else
      out += text.substr(i, point.length);
    i += point.length;
  }
  return out;
}

std::string escape_markdown(std::string_view text) {
  std::string out;
  for (const char c : valid_text(text)) {
    if (c == '\n' || c == '\r') {
      out += ' ';
      continue;
    }
    if (std::string_view("\\`*_{}[]<>#|~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace some
