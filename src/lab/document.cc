#include "lab/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "study/svg.h"

namespace some::lab {
namespace {

using Kind = Block::Kind;

// A page must be valid UTF-8 whatever a model wrote or a file is named.
std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string valid_text(std::string_view text) {
  return nlohmann::json::parse(dump(nlohmann::json(std::string(text)))).get<std::string>();
}

// JSON inside a script element: "<" cannot begin a tag, whatever text the data holds.
std::string script_json(const nlohmann::json& value) {
  std::string out;
  for (const char c : dump(value)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string html_text(const Text& text) {
  std::string out;
  for (const Span& span : text.spans) {
    const std::string inner = xml_escape(span.text);
    switch (span.style) {
      case Span::Style::plain: out += inner; break;
      case Span::Style::strong: out += "<strong>" + inner + "</strong>"; break;
      case Span::Style::code: out += "<code>" + inner + "</code>"; break;
      case Span::Style::link: out += fmt::format("<a href=\"#{}\">{}</a>", xml_escape(span.target), inner); break;
    }
  }
  return out;
}

// The marks must touch the words: a space before the closing ones would leave them standing as stars.
std::string markdown_strong(const std::string& text) {
  const std::size_t end = text.find_last_not_of(' ') + 1;
  if (end == 0) return text;
  return "**" + escape_markdown(text.substr(0, end)) + "**" + text.substr(end);
}

std::string markdown_text(const Text& text) {
  std::string out;
  for (const Span& span : text.spans) {
    switch (span.style) {
      case Span::Style::plain: out += escape_markdown(span.text); break;
      case Span::Style::strong: out += markdown_strong(span.text); break;
      case Span::Style::code: {
        // Inside code nothing can be escaped; text that holds the mark itself is shown as plain text.
        const bool quotable = span.text.find_first_of("`|\n") == std::string::npos && !span.text.empty();
        out += quotable ? "`" + valid_text(span.text) + "`" : escape_markdown(span.text);
        break;
      }
      case Span::Style::link: out += fmt::format("[{}](#{})", escape_markdown(span.text), span.target); break;
    }
  }
  return out;
}

bool has_groups(const Table& table) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [](const auto& column) { return !column.group.empty(); });
}

// "2.72 ± 0.01" may be broken before its sign, nowhere else, so that a table of many such still fits.
std::string html_number(const Text& text) {
  std::string out = html_text(text);
  const std::string sign = " ± ";
  if (const std::size_t place = out.find(sign); place != std::string::npos)
    out = fmt::format("<span>{}</span> <span>{}</span>", out.substr(0, place), out.substr(place + 1));
  return out;
}

// A number keeps the word after it ("done, 3 seeds"): a narrow column would set them below one another.
std::string html_short(const Text& text) {
  std::string out;
  for (const char c : html_text(text)) {
    if (c == ' ' && !out.empty() && std::isdigit(static_cast<unsigned char>(out.back())) != 0)
      out += "&nbsp;";
    else
      out += c;
  }
  return out;
}

std::string html_table(const Table& table) {
  std::string out = fmt::format("<div class=\"table\"><table id=\"{}\">", xml_escape(table.id));
  if (!table.caption.empty()) out += "<caption>" + xml_escape(table.caption) + "</caption>";
  out += "<thead>";
  if (has_groups(table)) {
    out += "<tr>";
    for (std::size_t i = 0; i < table.columns.size();) {
      std::size_t end = i + 1;
      const std::string& group = table.columns[i].group;
      while (!group.empty() && end < table.columns.size() && table.columns[end].group == group) ++end;
      out += fmt::format("<th{} colspan=\"{}\" scope=\"colgroup\">{}</th>", group.empty() ? "" : " class=\"group\"",
                         end - i, xml_escape(group));
      i = end;
    }
    out += "</tr>";
  }
  out += "<tr>";
  for (const auto& column : table.columns) {
    out +=
        fmt::format("<th scope=\"col\"{}>{}</th>", column.number ? " class=\"number\"" : "", xml_escape(column.name));
  }
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto& column = table.columns.at(i);
      const bool first_of_group = i > 0 && !column.group.empty() && column.group != table.columns[i - 1].group;
      const bool long_text = !column.number && row[i].plain().size() > 24;
      const std::string classes = fmt::format("{}{}",
                                              column.number ? "number"
                                              : long_text   ? "long"
                                                            : "",
                                              first_of_group ? " first" : "");
      out += fmt::format("<td{}>{}</td>", classes.empty() ? "" : fmt::format(" class=\"{}\"", classes),
                         column.number ? html_number(row[i])
                         : long_text   ? html_text(row[i])
                                       : html_short(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string markdown_table(const Table& table) {
  std::string out;
  if (!table.caption.empty()) out += escape_markdown(table.caption) + "\n\n";
  out += "|";
  for (const auto& column : table.columns) {
    out += fmt::format(" {} |", escape_markdown(column.group.empty() ? column.name : column.group + " " + column.name));
  }
  out += "\n|";
  for (const auto& column : table.columns) out += column.number ? " ---: |" : " --- |";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const Text& cell : row) out += fmt::format(" {} |", markdown_text(cell));
    out += "\n";
  }
  return out + "\n";
}

// The values of a series, whichever shape its points have.
std::vector<double> values_of(const nlohmann::json& series) {
  std::vector<double> values;
  const auto number = [](const nlohmann::json& value) { return value.is_number() ? value.get<double>() : NAN; };
  if (series.contains("points")) {
    for (const auto& point : series["points"]) values.push_back(number(point.at(1)));
  } else if (series.contains("values")) {
    for (const auto& value : series["values"]) values.push_back(number(value));
  }
  return values;
}

std::string markdown_chart(const Chart& chart) {
  std::string out = fmt::format("**{}**\n\n", escape_markdown(chart.title));
  if (chart.spec.value("text_form", "bars") == "bars" && chart.spec.contains("series")) {
    for (const auto& series : chart.spec["series"]) {
      const std::vector<double> values = values_of(series);
      if (values.empty()) continue;
      if (chart.spec.value("kind", "") == "dots") {  // a value a run: told, not drawn
        std::string told;
        for (const double value : values) told += fmt::format("{}{:.4f}", told.empty() ? "" : ", ", value);
        out += fmt::format("- {}: {}\n", escape_markdown(series.at("name").get<std::string>()), told);
        continue;
      }
      out += fmt::format("- {}: {:.4g} `{}` {:.4g}\n", escape_markdown(series.at("name").get<std::string>()),
                         values.front(), small_bars(values), values.back());
    }
    out += "\n";
  }
  if (!chart.note.empty()) out += escape_markdown(chart.note) + "\n\n";
  return out;
}

std::string html_chart(const Chart& chart) {
  std::string out = fmt::format(
      "<figure class=\"chart\" id=\"{0}\" data-chart=\"{0}\"><figcaption>{1}</figcaption><div class=\"plot\" "
      "role=\"img\" aria-label=\"{1}\"></div>",
      xml_escape(chart.id), xml_escape(chart.title));
  if (!chart.note.empty()) out += "<p class=\"under\">" + xml_escape(chart.note) + "</p>";
  return out + "</figure>\n";
}

std::string html_block(const Block& block) {
  switch (block.kind) {
    case Kind::heading:
      return fmt::format("<h{0} id=\"{1}\"><a class=\"self\" href=\"#{1}\">{2}</a></h{0}>\n", block.level,
                         xml_escape(block.id), html_text(block.text[0]));
    case Kind::paragraph: return "<p>" + html_text(block.text[0]) + "</p>\n";
    case Kind::note: return "<p class=\"note\">" + html_text(block.text[0]) + "</p>\n";
    case Kind::list: {
      std::string out = "<ul>";
      for (const Text& item : block.text) out += "<li>" + html_text(item) + "</li>";
      return out + "</ul>\n";
    }
    case Kind::table: return html_table(block.table);
    case Kind::chart: return html_chart(block.chart);
    case Kind::quote: return "<blockquote>" + xml_escape(block.text[0].plain()) + "</blockquote>\n";
    case Kind::fold: return "<details><summary>" + html_text(block.text[0]) + "</summary>\n";
    case Kind::end_fold: return "</details>\n";
    case Kind::side_by_side: return "<div class=\"side-by-side\">\n";
    case Kind::end_side_by_side: return "</div>\n";
  }
  return "";
}

std::string markdown_block(const Block& block) {
  switch (block.kind) {
    case Kind::heading:
      return fmt::format("<a id=\"{}\"></a>\n\n{} {}\n\n", block.id,
                         std::string(static_cast<std::size_t>(block.level), '#'), markdown_text(block.text[0]));
    case Kind::paragraph: return markdown_text(block.text[0]) + "\n\n";
    case Kind::note: return "> " + markdown_text(block.text[0]) + "\n\n";
    case Kind::list: {
      std::string out;
      for (const Text& item : block.text) out += "- " + markdown_text(item) + "\n";
      return out + "\n";
    }
    case Kind::table: return markdown_table(block.table);
    case Kind::chart: return markdown_chart(block.chart);
    case Kind::quote: return "> " + escape_markdown(block.text[0].plain()) + "\n\n";
    case Kind::fold: return "**" + escape_markdown(block.text[0].plain()) + "**\n\n";
    case Kind::end_fold:
    case Kind::side_by_side:
    case Kind::end_side_by_side: return "";
  }
  return "";
}

std::string navigation(const Document& document) {
  std::string out = "<nav aria-label=\"Contents\"><p class=\"brand\">" + xml_escape(document.title()) + "</p><ul>";
  for (const Block& block : document.blocks()) {
    if (block.kind != Kind::heading || block.level < 2 || block.level > 3) continue;
    out += fmt::format("<li class=\"level{}\"><a href=\"#{}\">{}</a></li>", block.level, xml_escape(block.id),
                       xml_escape(block.text[0].plain()));
  }
  return out + "</ul></nav>\n";
}

}  // namespace

std::string Text::plain() const {
  std::string out;
  for (const Span& span : spans) out += span.text;
  return out;
}

void Document::heading(int level, std::string id, Text text) {
  blocks_.push_back({Kind::heading, level, std::move(id), {std::move(text)}, {}, {}});
}
void Document::paragraph(Text text) { blocks_.push_back({Kind::paragraph, 0, "", {std::move(text)}, {}, {}}); }
void Document::note(Text text) { blocks_.push_back({Kind::note, 0, "", {std::move(text)}, {}, {}}); }
void Document::list(std::vector<Text> items) { blocks_.push_back({Kind::list, 0, "", std::move(items), {}, {}}); }
void Document::table(Table table) { blocks_.push_back({Kind::table, 0, "", {}, std::move(table), {}}); }
void Document::chart(Chart chart) { blocks_.push_back({Kind::chart, 0, "", {}, {}, std::move(chart)}); }
void Document::quote(std::string text) { blocks_.push_back({Kind::quote, 0, "", {Text(std::move(text))}, {}, {}}); }
void Document::begin_fold(Text summary) { blocks_.push_back({Kind::fold, 0, "", {std::move(summary)}, {}, {}}); }
void Document::end_fold() { blocks_.push_back({Kind::end_fold, 0, "", {}, {}, {}}); }
void Document::begin_side_by_side() { blocks_.push_back({Kind::side_by_side, 0, "", {}, {}, {}}); }
void Document::end_side_by_side() { blocks_.push_back({Kind::end_side_by_side, 0, "", {}, {}, {}}); }
void Document::append(const Document& other) {
  blocks_.insert(blocks_.end(), other.blocks_.begin(), other.blocks_.end());
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

std::string small_bars(const std::vector<double>& values, std::size_t width) {
  static const char* heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  std::string out;
  const std::size_t columns = std::min(width, values.size());
  for (std::size_t i = 0; i < columns; ++i) {
    const double value = values[columns == 1 ? 0 : i * (values.size() - 1) / (columns - 1)];
    if (!std::isfinite(value))
      out += " ";
    else
      out += heights[high > low ? std::min(7, static_cast<int>((value - low) / (high - low) * 8)) : 0];
  }
  return out;
}

std::string write_markdown(const Document& document) {
  std::string out = "# " + escape_markdown(document.title()) + "\n\n";
  for (const Block& block : document.blocks()) out += markdown_block(block);
  return out;
}

std::string write_html(const Document& document, std::string_view style, std::string_view script) {
  nlohmann::json charts = nlohmann::json::array();
  std::string body;
  for (const Block& block : document.blocks()) {
    if (block.kind == Kind::chart) {
      nlohmann::json spec = block.chart.spec;
      spec["id"] = block.chart.id;
      charts.push_back(std::move(spec));
    }
    body += html_block(block);
  }
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  // Nothing is ever fetched: the page holds all it needs, and the browser is told to keep it so.
  out +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n";
  out +=
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n";
  out += "<title>" + xml_escape(document.title()) + "</title>\n<style>\n";
  out += style;
  out +=
      "</style>\n</head>\n<body>\n" + navigation(document) + "<main>\n<h1>" + xml_escape(document.title()) + "</h1>\n";
  if (script.empty() && !charts.empty()) {
    out +=
        "<p class=\"note\">The program that wrote this report was built without node, so its charts are left out: "
        "build it where node and npm are installed.</p>\n";
  }
  out += body + "</main>\n<script type=\"application/json\" id=\"report-data\">" + script_json({{"charts", charts}}) +
         "</script>\n";
  if (!script.empty()) {
    out += "<script>\n";
    out += script;
    out += "\n</script>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace some::lab
