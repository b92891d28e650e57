// Writes a document as Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/version.h"
#include "plot/document.h"
#include "plot/escape_html.h"

namespace some {
namespace {

using Kind = PageBlock::Kind;

// Wraps the text in a mark. Marks must touch the words: after a space the closing mark would be shown as literal stars.
std::string between_marks(const std::string& text, const char* mark) {
  const std::size_t end = text.find_last_not_of(' ') + 1;
  if (end == 0) return text;
  return mark + escape_markdown(text.substr(0, end)) + mark + text.substr(end);
}

std::string markdown_text(const Text& text) {
  std::string out;
  for (const Span& span : text.spans) {
    switch (span.style) {
      case Span::Style::plain: out += escape_markdown(span.text); break;
      case Span::Style::strong: out += between_marks(span.text, "**"); break;
      case Span::Style::pale: out += between_marks(span.text, "_"); break;
      case Span::Style::code: {
        // Code spans have no escapes; text that contains the delimiter is written as plain text.
        const bool quotable = span.text.find_first_of("`|\n") == std::string::npos && !span.text.empty();
        out += quotable ? "`" + valid_text(span.text) + "`" : escape_markdown(span.text);
        break;
      }
      case Span::Style::link: out += fmt::format("[{}](#{})", escape_markdown(span.text), span.target); break;
    }
  }
  return out;
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

// Returns the values of a series for any format of its points.
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
  if (chart.spec.contains("series")) {
    for (const auto& series : chart.spec["series"]) {
      const std::vector<double> values = values_of(series);
      if (values.empty()) continue;
      if (chart.spec.value("kind", "") == "dots") {  // one value per run: written as text
        std::string told;
        for (const double value : values) told += fmt::format("{}{:.4f}", told.empty() ? "" : ", ", value);
        out += fmt::format("- {}: {}\n", escape_markdown(series.at("name").get<std::string>()), told);
        continue;
      }
      out += fmt::format("- {}: {:.4g} `{}` {:.4g}\n", escape_markdown(series.at("name").get<std::string>()),
                         values.front(), sparkline(values), values.back());
    }
    out += "\n";
  }
  if (!chart.note.empty()) out += escape_markdown(chart.note) + "\n\n";
  return out;
}

std::string markdown_block(const PageBlock& block) {
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
    case Kind::view:
    case Kind::end_fold:
    case Kind::side_by_side:
    case Kind::end_side_by_side: return "";
  }
  return "";
}

}  // namespace

std::string sparkline(const std::vector<double>& values, std::size_t width) {
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
  const Header& header = document.header();
  std::string out = "# " + escape_markdown(header.title) + "\n\n";
  for (const auto& [name, value] : header.facts)
    out += fmt::format("{}: {}  \n", escape_markdown(name), escape_markdown(value));
  out += fmt::format("made by: {}\n\n", escape_markdown(program_version()));
  for (const PageBlock& block : document.blocks()) out += markdown_block(block);
  return out;
}

}  // namespace some
