#include "analysis/pages/key_plots.h"

#include <gtest/gtest.h>

#include "analysis/tiny_run.h"
#include "plot/svg.h"

namespace some {
namespace {

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(XmlCheck, SeesWhatIsWrong) {
  EXPECT_EQ(xml_problem("<a x=\"1\"><b/>t &amp; u</a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a x=1/>", "<a>&</a>", "<a/><a/>", "<a x=\"nan\"/>", "text", "<a><</a>"})
    EXPECT_NE(xml_problem(bad), "") << bad;
}

TEST(Svg, EscapesEveryText) {
  Svg svg(100, 100, "a < b & \"c\"", "<script>");
  svg.circle(1, 2, 3, "#000000", "none", "tip > 'x' \x01");
  svg.text(1, 2, "</svg>");
  EXPECT_EQ(xml_problem(svg.finish()), "");
  EXPECT_EQ(svg.finish().find("<script>"), std::string::npos);
}

TEST(Axis, HasRoundTicksInsideItsRange) {
  const Axis linear{-0.31, 1.17, 0, 100, false};
  for (const double tick : linear.ticks(6)) {
    EXPECT_GE(tick, linear.low);
    EXPECT_LE(tick, linear.high + 1e-9);
  }
  EXPECT_GE(linear.ticks(6).size(), 3u);
  EXPECT_EQ(linear.ticks(6)[1] - linear.ticks(6)[0], linear.ticks(6)[2] - linear.ticks(6)[1]);
  const Axis decades{1e-6, 1e3, 0, 100, true};
  EXPECT_NEAR(decades.at(std::sqrt(1e-3)), 50, 1e-9);
  for (const double tick : decades.ticks(6)) EXPECT_NEAR(std::log10(tick), std::round(std::log10(tick)), 1e-9);
  const Axis narrow{3, 4, 0, 100, true};
  EXPECT_GE(narrow.ticks(6).size(), 2u);
}

TEST(UsagePicture, IsWellFormedForEveryUsage) {
  const std::vector<std::vector<double>> cases{
      {0, 0, 0},    {5}, {1, 1, 1, 1}, {1e-30, 1, 1000}, {0, 0, 7.5, 1e-9, 3}, std::vector<double>(1024, 2.0),
      {1e30, 1e-30}};
  for (const auto& usage : cases) {
    const std::string picture = plot_usage("Layer 0", "run <x>", usage, {"choices a step", 1.5});
    EXPECT_EQ(xml_problem(picture), "") << usage.size();
  }
  EXPECT_NE(plot_usage("t", "", {0, 0}, {"u", 0}).find("no expert has been used"), std::string::npos);
}

TEST(UsagePicture, CountsEveryExpertOnce) {
  // One bar by rank for each used expert; unused experts are reported separately.
  const std::string picture = plot_usage("t", "", {0, 2, 30, 400, 5000}, {"choices a step", 0});
  for (int e = 1; e < 5; ++e) EXPECT_EQ(occurrences(picture, fmt::format("expert {}:", e)), 1u);
  EXPECT_EQ(occurrences(picture, "1 experts never used"), 1u);
}

TEST(MapPicture, ShowsEveryKeyWithItsUsage) {
  KeyMap map{"Layer 0", "run", "x", "y", {"seed 0"}, {{0, 0}, {1, 2}, {-3, 1}}, {0, 1, 2}};
  const std::string picture = plot_key_map(map, {0, 3, 9}, {"choices a step", 4});
  EXPECT_EQ(xml_problem(picture), "");
  for (int e = 0; e < 3; ++e) EXPECT_EQ(occurrences(picture, fmt::format("expert {}:", e)), 1u);
  EXPECT_NE(picture.find("seed 0"), std::string::npos);
  EXPECT_NE(picture.find("never used"), std::string::npos);
  // All keys at one position, and a map of experts that were never used.
  map.points = {{1, 1}, {1, 1}, {1, 1}};
  EXPECT_EQ(xml_problem(plot_key_map(map, {0, 0, 0}, {"u", 0})), "");
  EXPECT_EQ(
      xml_problem(plot_key_movement(map, {{{0, 0}, {1, 1}}, {{2, 0}, {1, 1}}, {{0, 0}, {0, 0}}}, {0, 1, 2}, {"u", 1})),
      "");
}

}  // namespace
}  // namespace some
