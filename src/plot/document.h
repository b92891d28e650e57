// A page as a list of blocks, written as one self-contained HTML file or as Markdown: both say the same. Report,
// inspect, trace, adapt and guilds are documents; the frame, the style and the charts are the same for all.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plot/assets.h"

namespace some {

// A piece of running text. Text of any origin may stand in it: each writer escapes for its format.
struct Span {
  enum class Style { plain, strong, code, link, pale };
  std::string text;
  Style style = Style::plain;
  std::string target;  // of a link: an id in this document
};

class Text {
 public:
  Text() = default;
  Text(std::string plain) { add(std::move(plain)); }
  Text(const char* plain) : Text(std::string(plain)) {}
  Text& add(std::string plain) { return put({std::move(plain), Span::Style::plain, ""}); }
  Text& strong(std::string text) { return put({std::move(text), Span::Style::strong, ""}); }
  Text& code(std::string text) { return put({std::move(text), Span::Style::code, ""}); }
  Text& pale(std::string text) { return put({std::move(text), Span::Style::pale, ""}); }  // not to be compared
  Text& link(std::string text, std::string id) { return put({std::move(text), Span::Style::link, std::move(id)}); }
  Text& append(const Text& other);
  std::string plain() const;
  std::vector<Span> spans;

 private:
  Text& put(Span span) {
    spans.push_back(std::move(span));
    return *this;
  }
};
// Words between backticks are code, words between double asterisks are strong.
Text marked_text(std::string_view marked);

struct Table {
  struct Column {
    std::string name;
    std::string group;  // neighbouring columns of one group share a heading above theirs
    bool number = true;
  };
  std::string id;
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<Text>> rows;
  std::set<std::size_t> marked = {};  // rows that stand out
};

// A drawing. The page's script makes it from `spec` (web/README.md tells what it may hold); Markdown shows each of its
// series as a line of small bars.
struct Chart {
  std::string id;
  std::string title;
  std::string note;  // under the drawing: what to see in it
  nlohmann::json spec;
};

// A part of the page that the script makes from data and that answers to the reader (web/src/view/NAME.js).
struct View {
  std::string id;
  std::string name;
  nlohmann::json data;
};

struct PageBlock {
  enum class Kind {
    heading,
    paragraph,
    note,
    list,
    table,
    chart,
    view,
    quote,
    fold,
    end_fold,
    side_by_side,
    end_side_by_side
  };
  Kind kind = Kind::paragraph;
  int level = 2;           // of a heading
  std::string id;          // of a heading
  std::vector<Text> text;  // one, or the items of a list
  Table table;
  Chart chart;
  View view;
};

// What stands at the top of every page. The program's version is added to the facts.
struct Header {
  std::string kind;                                             // "Trace"
  std::string title;                                            // "quickstart at step 600"
  std::vector<std::pair<std::string, std::string>> facts = {};  // name and value: run, model, text
  bool live = false;  // it is served, and asks the server it came from for what is new
};

class Document {
 public:
  explicit Document(Header header) : header_(std::move(header)) {}
  void heading(int level, std::string id, Text text);
  void paragraph(Text text);
  void note(Text text);  // set apart: what a number must not be taken for
  void list(std::vector<Text> items);
  void table(Table table);
  void chart(Chart chart);
  void view(View view);
  void quote(std::string text);   // text written by a model, as it stands
  void begin_fold(Text summary);  // shown on demand
  void end_fold();
  void begin_side_by_side();  // charts beside one another where there is room
  void end_side_by_side();
  void append(const Document& other);  // its blocks

  const Header& header() const { return header_; }
  const std::vector<PageBlock>& blocks() const { return blocks_; }

 private:
  Header header_;
  std::vector<PageBlock> blocks_;
};

std::string write_markdown(const Document& document);
// What a browser is to let a page do: for the page itself, and for the server that sends it.
std::string content_policy(const Assets& assets, bool live);
// Without a script the page says that charts need one.
std::string write_html(const Document& document, const Assets& assets = embedded_assets());

// A line of eight block heights: how a series goes, in text. Numbers that are not finite are left blank.
std::string small_bars(const std::vector<double>& values, std::size_t width = 24);

}  // namespace some
