// The text of a page in both formats, for arbitrary input.
#include "plot/document.h"

#include <gtest/gtest.h>

#include "plot/escape_html.h"

namespace some {
namespace {

const Assets plain{"", "", ""}, scripted{"", "draw()", "hash"};

TEST(DocumentText, NothingInItCanBecomeMarkup) {
  Document document({"<b>kind</b>", "<b>title</b>", {{"<b>run</b>", "<b>\"here\"</b>"}}});
  document.heading(2, "x", Text("a & b"));
  document.paragraph(Text("1 < 2 ").strong("*x* ").code("a|b").link("[there]", "x"));
  document.quote("line\n<script>alert(1)</script>\xff");
  Chart chart{"c",
              "\"quoted\"",
              "",
              {{"kind", "lines"}, {"series", {{{"name", "</script><b>"}, {"points", {{1, 2}, {2, 1}}}}}}}};
  document.chart(chart);
  const std::string html = write_html(document, scripted);
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;\xEF\xBF\xBD"), std::string::npos)
      << "bytes that are not UTF-8 are replaced";
  EXPECT_NE(html.find("\\u003c/script>\\u003cb>"), std::string::npos) << "chart data cannot end its script";
  EXPECT_NE(html.find("<strong>*x* </strong><code>a|b</code><a href=\"#x\">[there]</a>"), std::string::npos);
  EXPECT_NE(html.find("default-src 'none'; script-src 'sha256-hash'; "), std::string::npos);
  EXPECT_NE(html.find("<dt>&lt;b&gt;run&lt;/b&gt;</dt><dd>&lt;b&gt;&quot;here&quot;&lt;/b&gt;</dd>"),
            std::string::npos);
  const std::string markdown = write_markdown(document);
  EXPECT_NE(markdown.find("1 \\< 2 **\\*x\\*** a\\|b[\\[there\\]](#x)"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("> line \\<script\\>alert(1)"), std::string::npos);
}

TEST(DocumentText, TablesHaveGroupsAndCells) {
  Table table{"t",
              "Caption",
              {{"run", "", false}, {"published", "loss", true}, {"here", "loss", true}},
              {{"a4", "0.7126", "0.72"}}};
  Document document({"kind", "d"});
  document.table(table);
  const std::string html = write_html(document, plain);
  EXPECT_NE(html.find("<table id=\"t\"><caption>Caption</caption><thead><tr><td></td><th class=\"group\" colspan=\"2\" "
                      "scope=\"colgroup\">loss</th></tr>"),
            std::string::npos)
      << html;
  EXPECT_NE(html.find("<td>a4</td><td class=\"number first\">0.7126</td><td class=\"number\">0.72</td>"),
            std::string::npos)
      << html;
  EXPECT_NE(write_markdown(document).find(
                "| run | loss published | loss here |\n| --- | ---: | ---: |\n| a4 | 0.7126 | 0.72 |\n"),
            std::string::npos);
}

TEST(DocumentText, WithoutAScriptThePageSaysSo) {
  Document document({"kind", "d"});
  EXPECT_EQ(write_html(document, plain).find("without charts"), std::string::npos) << "nothing to draw, nothing to say";
  document.chart({"c", "t", "", {{"kind", "lines"}, {"series", nlohmann::json::array()}}});
  EXPECT_NE(write_html(document, plain).find("without charts"), std::string::npos);
}

TEST(DocumentText, DataCannotEndTheirScript) {
  const nlohmann::json data{{"text", "</script><!-- <SCRIPT \xff \u2028"}};
  const std::string safe = script_json(data);
  EXPECT_EQ(safe.find('<'), std::string::npos);
  const std::string read = nlohmann::json::parse(safe)["text"];
  EXPECT_EQ(read, "</script><!-- <SCRIPT \xEF\xBF\xBD \u2028") << "and read back as they were";
}

TEST(DocumentText, MarksBecomeStyles) {
  const Text text = parse_marks("a `b*` **c** ** d ` e");
  ASSERT_EQ(text.spans.size(), 5U);
  EXPECT_EQ(text.spans[1].style, Span::Style::code);
  EXPECT_EQ(text.spans[1].text, "b*");
  EXPECT_EQ(text.spans[3].style, Span::Style::strong);
  EXPECT_EQ(text.spans[4].text, " ** d ` e") << "what is never closed is no mark";
}

TEST(DocumentText, AViewHasItsPlaceAndItsData) {
  Document document({"kind", "d"});
  document.view({"v", "trace", {{"tokens", {1, 2}}}});
  const std::string html = write_html(document, scripted);
  EXPECT_NE(html.find("<div class=\"view\" id=\"v\"></div>"), std::string::npos);
  EXPECT_NE(html.find(R"("views":{"v":{"tokens":[1,2],"view":"trace"}})"), std::string::npos) << html;
  EXPECT_EQ(html.find("<nav"), std::string::npos) << "nothing to list";
}

TEST(DocumentText, SmallBars) {
  EXPECT_EQ(sparkline({0, 7, 3.5}), "▁█▅");
  EXPECT_EQ(sparkline({2, 2}), "▁▁");
  EXPECT_EQ(sparkline({1, std::nan(""), 2}), "▁ █");
  EXPECT_EQ(sparkline({}), "");
  EXPECT_EQ(sparkline(std::vector<double>(1000, 1.0), 3), "▁▁▁");
}

}  // namespace
}  // namespace some
