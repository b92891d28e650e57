// Writes a document as one HTML file: the page frame with the blocks inside it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/version.h"
#include "plot/document.h"
#include "plot/escape_html.h"

namespace some {
namespace {

using Kind = PageBlock::Kind;

std::string html_text(const Text& text) {
  std::string out;
  for (const Span& span : text.spans) {
    const std::string inner = escape(span.text);
    switch (span.style) {
      case Span::Style::plain: out += inner; break;
      case Span::Style::strong: out += "<strong>" + inner + "</strong>"; break;
      case Span::Style::code: out += "<code>" + inner + "</code>"; break;
      case Span::Style::pale: out += "<span class=\"pale\">" + inner + "</span>"; break;
      case Span::Style::link: out += fmt::format("<a href=\"#{}\">{}</a>", escape(span.target), inner); break;
    }
  }
  return out;
}

bool has_groups(const Table& table) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [](const auto& column) { return !column.group.empty(); });
}

// Allows a line break in "2.72 ± 0.01" only before the sign, so that wide tables of such values still fit.
std::string html_number(const Text& text) {
  std::string out = html_text(text);
  const std::string sign = " ± ";
  if (const std::size_t place = out.find(sign); place != std::string::npos && text.spans.size() == 1)
    out = fmt::format("<span class=\"part\">{}</span> <span class=\"part\">{}</span>", out.substr(0, place),
                      out.substr(place + 1));
  return out;
}

// Keeps a number and the word after it on one line ("done, 3 seeds"), even in a narrow column.
std::string html_short(const Text& text) {
  Text kept = text;
  for (Span& span : kept.spans) {
    for (std::size_t at = span.text.find(' ', 1); at < span.text.size(); at = span.text.find(' ', at + 1)) {
      if (std::isdigit(static_cast<unsigned char>(span.text[at - 1])) != 0) span.text.replace(at, 1, "\u00a0");
    }
  }
  return html_text(kept);
}

std::string table_head(const Table& table) {
  std::string out = "<thead>";
  if (has_groups(table)) {
    out += "<tr>";
    for (std::size_t i = 0; i < table.columns.size();) {
      std::size_t end = i + 1;
      const std::string& group = table.columns[i].group;
      while (!group.empty() && end < table.columns.size() && table.columns[end].group == group) ++end;
      if (group.empty())
        out += "<td></td>";
      else
        out += fmt::format("<th class=\"group\" colspan=\"{}\" scope=\"colgroup\">{}</th>", end - i, escape(group));
      i = end;
    }
    out += "</tr>";
  }
  out += "<tr>";
  for (const auto& column : table.columns) {
    const char* kind = column.number ? " class=\"number\"" : "";
    out += column.name.empty() ? "<td></td>" : fmt::format("<th scope=\"col\"{}>{}</th>", kind, escape(column.name));
  }
  return out + "</tr></thead>";
}

std::string html_table(const Table& table) {
  // A table may be wider than the screen: it scrolls inside its frame, which is reachable by keyboard.
  std::string out =
      fmt::format("<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table id=\"{}\">",
                  escape(table.caption.empty() ? "table" : table.caption), escape(table.id));
  if (!table.caption.empty()) out += "<caption>" + escape(table.caption) + "</caption>";
  out += table_head(table) + "<tbody>\n";
  for (std::size_t line = 0; line < table.rows.size(); ++line) {
    const auto& row = table.rows[line];
    out += table.marked.count(line) > 0 ? "<tr class=\"marked\">" : "<tr>";
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

std::string html_chart(const Chart& chart) {
  std::string out =
      fmt::format("<figure class=\"chart\" id=\"{}\"><figcaption>{}</figcaption><div class=\"plot\"></div>",
                  escape(chart.id), escape(chart.title));
  if (!chart.note.empty()) out += "<p class=\"under\">" + escape(chart.note) + "</p>";
  return out + "</figure>\n";
}

std::string html_block(const PageBlock& block) {
  switch (block.kind) {
    case Kind::heading:
      return fmt::format("<h{0} id=\"{1}\"><a class=\"self\" href=\"#{1}\">{2}</a></h{0}>\n", block.level,
                         escape(block.id), html_text(block.text[0]));
    case Kind::paragraph: return "<p>" + html_text(block.text[0]) + "</p>\n";
    case Kind::note: return "<p class=\"note\">" + html_text(block.text[0]) + "</p>\n";
    case Kind::list: {
      std::string out = "<ul>";
      for (const Text& item : block.text) out += "<li>" + html_text(item) + "</li>";
      return out + "</ul>\n";
    }
    case Kind::table: return html_table(block.table);
    case Kind::chart: return html_chart(block.chart);
    case Kind::view: return fmt::format("<div class=\"view\" id=\"{}\"></div>\n", escape(block.view.id));
    case Kind::quote: return "<blockquote>" + escape(block.text[0].plain()) + "</blockquote>\n";
    case Kind::fold: return "<details><summary>" + html_text(block.text[0]) + "</summary>\n";
    case Kind::end_fold: return "</details>\n";
    case Kind::side_by_side: return "<div class=\"side-by-side\">\n";
    case Kind::end_side_by_side: return "</div>\n";
  }
  return "";
}

// Returns the table of contents; empty if there are too few headings.
std::string contents(const Document& document) {
  std::string items;
  int count = 0;
  for (const PageBlock& block : document.blocks()) {
    if (block.kind != Kind::heading || block.level < 2 || block.level > 3) continue;
    items += fmt::format("<li class=\"level{}\"><a href=\"#{}\">{}</a></li>", block.level, escape(block.id),
                         escape(block.text[0].plain()));
    ++count;
  }
  if (count < 3) return "";
  return "<nav aria-label=\"Contents\"><details open><summary>Contents</summary><ul>" + items +
         "</ul></details></nav>\n";
}

std::string html_header(const Header& header) {
  std::string out =
      fmt::format("<header class=\"page\"><p class=\"kind\">SoME · {}</p><h1>{}</h1>\n<dl class=\"facts\">",
                  escape(header.kind), escape(header.title));
  const auto fact = [&](const std::string& name, const std::string& value) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
  };
  for (const auto& [name, value] : header.facts) fact(name, value);
  fact("made by", program_version());
  return out + "</dl></header>\n";
}

}  // namespace

// Nothing is fetched and only the program's own script runs: the page is self-contained, and the policy enforces this.
// Charts set styles of their own elements. A live page may connect to the server it came from.
std::string content_policy(const Assets& assets, bool live) {
  const std::string scripts = assets.script.empty() ? "'none'" : fmt::format("'sha256-{}'", assets.hash);
  return fmt::format(
      "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; {}base-uri 'none'; form-action "
      "'none'",
      scripts, live ? "connect-src 'self'; " : "");
}

std::string write_html(const Document& document, const Assets& assets) {
  const Header& header = document.header();
  nlohmann::json charts = nlohmann::json::object(), views = nlohmann::json::object();
  std::string body;
  for (const PageBlock& block : document.blocks()) {
    if (block.kind == Kind::chart) charts[block.chart.id] = block.chart.spec;
    if (block.kind == Kind::view) {
      views[block.view.id] = block.view.data;
      views[block.view.id]["view"] = block.view.name;
    }
    body += html_block(block);
  }
  const std::string list = contents(document);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}: {}</title>\n<style>",
      content_policy(assets, header.live), escape(header.kind), escape(header.title));
  out += assets.style;
  // Browsers request a favicon from a server unless the page declares one.
  out += fmt::format(
      "</style>{}\n</head>\n<body{}>\n<a class=\"skip\" href=\"#content\">Skip to the content</a>\n{}<main "
      "id=\"content\" tabindex=\"-1\">\n{}",
      header.live ? "\n<link rel=\"icon\" href=\"data:,\">" : "", list.empty() ? "" : " class=\"contents\"", list,
      html_header(header));
  if (assets.script.empty() && !(charts.empty() && views.empty())) {
    out +=
        "<p class=\"note\">The program that wrote this page was built without charts and interactive parts "
        "(SOME_WEB=OFF); build it with -DSOME_WEB=ON.</p>\n";
  }
  out += body + "</main>\n";
  out += fmt::format("<script type=\"application/json\" id=\"page-data\">{}</script>\n",
                     script_json({{"charts", charts}, {"views", views}}));
  if (!assets.script.empty()) {
    out += "<script>";
    out += assets.script;
    out += "</script>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace some
