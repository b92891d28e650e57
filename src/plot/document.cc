#include "plot/document.h"

#include <algorithm>
#include <array>

namespace some {

using Kind = PageBlock::Kind;

std::string Text::plain() const {
  std::string out;
  for (const Span& span : spans) out += span.text;
  return out;
}

Text& Text::append(const Text& other) {
  spans.insert(spans.end(), other.spans.begin(), other.spans.end());
  return *this;
}

Text parse_marks(std::string_view marked) {
  struct Mark {
    std::string_view sign;
    Span::Style style;
  };
  static constexpr std::array<Mark, 2> marks{{{"`", Span::Style::code}, {"**", Span::Style::strong}}};
  Text text;
  while (!marked.empty()) {
    // Finds the first mark that is closed; without one the rest is plain text.
    std::size_t begin = marked.size(), end = 0;
    const Mark* found = nullptr;
    for (const Mark& mark : marks) {
      const std::size_t opens = marked.find(mark.sign);
      if (opens >= begin) continue;
      const std::size_t closes = marked.find(mark.sign, opens + mark.sign.size());
      if (closes == std::string_view::npos) continue;
      begin = opens;
      end = closes;
      found = &mark;
    }
    if (begin > 0) text.add(std::string(marked.substr(0, begin)));
    if (found == nullptr) break;
    const std::size_t inside = begin + found->sign.size();
    text.spans.push_back({std::string(marked.substr(inside, end - inside)), found->style, ""});
    marked.remove_prefix(end + found->sign.size());
  }
  return text;
}

namespace {
PageBlock block_of(Kind kind, std::vector<Text> text = {}) {
  PageBlock block;
  block.kind = kind;
  block.text = std::move(text);
  return block;
}
}  // namespace

void Document::heading(int level, std::string id, Text text) {
  PageBlock block = block_of(Kind::heading, {std::move(text)});
  block.level = level;
  block.id = std::move(id);
  blocks_.push_back(std::move(block));
}
void Document::paragraph(Text text) { blocks_.push_back(block_of(Kind::paragraph, {std::move(text)})); }
void Document::note(Text text) { blocks_.push_back(block_of(Kind::note, {std::move(text)})); }
void Document::list(std::vector<Text> items) { blocks_.push_back(block_of(Kind::list, std::move(items))); }
void Document::table(Table table) {
  blocks_.push_back(block_of(Kind::table));
  blocks_.back().table = std::move(table);
}
void Document::chart(Chart chart) {
  blocks_.push_back(block_of(Kind::chart));
  blocks_.back().chart = std::move(chart);
}
void Document::view(View view) {
  blocks_.push_back(block_of(Kind::view));
  blocks_.back().view = std::move(view);
}
void Document::quote(std::string text) { blocks_.push_back(block_of(Kind::quote, {Text(std::move(text))})); }
void Document::begin_fold(Text summary) { blocks_.push_back(block_of(Kind::fold, {std::move(summary)})); }
void Document::end_fold() { blocks_.push_back(block_of(Kind::end_fold)); }
void Document::begin_side_by_side() { blocks_.push_back(block_of(Kind::side_by_side)); }
void Document::end_side_by_side() { blocks_.push_back(block_of(Kind::end_side_by_side)); }
void Document::append(const Document& other) {
  blocks_.insert(blocks_.end(), other.blocks_.begin(), other.blocks_.end());
}

}  // namespace some
