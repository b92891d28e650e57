#include "plot/text_chart.h"

#include <gtest/gtest.h>

#include <cmath>

namespace some {
namespace {

TEST(TextChart, PointsAreAtTheirPlaces) {
  // A falling line through the corners, and one point in the middle.
  const std::string text =
      text_chart({{"*", {{0, 4}, {4, 0}}, true}, {"o", {{2, 4}}, false}}, {.width = 5, .height = 5, .x_name = "steps"});
  EXPECT_EQ(text,
            "3.6 ┤* o\n"
            "2.8 ┤ *\n"
            "  2 ┤  *\n"
            "1.2 ┤   *\n"
            "0.4 ┤    *\n"
            "    └─────\n"
            "     0 4 steps\n");
}

TEST(TextChart, ALineFillsTheColumnsBetweenItsPoints) {
  const std::string text = text_chart({{"*", {{0, 1}, {9, 1}}, true}}, {.width = 10, .height = 3, .x_name = "x"});
  EXPECT_NE(text.find("┤**********\n"), std::string::npos) << text;
  const std::string dots = text_chart({{"*", {{0, 1}, {9, 1}}, false}}, {.width = 10, .height = 3, .x_name = "x"});
  EXPECT_NE(dots.find("┤*        *\n"), std::string::npos) << dots;
}

TEST(TextChart, LogarithmsAndNumbersThatCannotBeDrawn) {
  const std::vector<TextCurve> curves{{"*", {{0, 1}, {1, 10}, {2, 100}, {3, -1}, {4, NAN}, {INFINITY, 3}}, false}};
  const std::string text = text_chart(curves, {.width = 3, .height = 3, .log = true, .x_name = "x"});
  EXPECT_NE(text.find("  *\n"), std::string::npos) << text;
  EXPECT_NE(text.find("┤ *\n"), std::string::npos) << text;  // 10 is halfway between 1 and 100
  EXPECT_NE(text.find("0 2 x"), std::string::npos) << text;
  EXPECT_EQ(text_chart({{"*", {{0, NAN}}, true}}, {.x_name = "x"}), "nothing to draw\n");
  EXPECT_EQ(text_chart({}, {.x_name = "x"}), "nothing to draw\n");
}

}  // namespace
}  // namespace some
