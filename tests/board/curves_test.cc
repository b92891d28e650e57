#include "board/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "board/json_walk.h"
#include "core/files/json.h"

namespace some {
namespace {

std::vector<XY> wave(std::size_t count) {
  std::vector<XY> points;
  for (std::size_t i = 0; i < count; ++i)
    points.push_back({static_cast<double>(i), std::sin(static_cast<double>(i) * 0.7) + 1e-3 * static_cast<double>(i)});
  return points;
}

TEST(Curves, FewPointsOfManyKeepEndsAndPeaks) {
  std::vector<XY> points = wave(10000);
  points[4321].y = 99;
  points[8765].y = -99;
  const std::vector<XY> few = downsampled(points, 200);
  EXPECT_LE(few.size(), 402U);
  EXPECT_GE(few.size(), 300U);
  EXPECT_EQ(few.front().x, 0);
  EXPECT_EQ(few.back().x, 9999);
  const auto has = [&](double y) {
    return std::any_of(few.begin(), few.end(), [&](const XY& point) { return point.y == y; });
  };
  EXPECT_TRUE(has(99));
  EXPECT_TRUE(has(-99));
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](const XY& a, const XY& b) { return a.x < b.x; }));
  EXPECT_EQ(downsampled(wave(300), 200).size(), 300U) << "few enough are all there";
  EXPECT_TRUE(downsampled({}, 10).empty());
  // Points over another metric are not in the order of x; peaks are kept.
  std::vector<XY> back;
  for (int i = 0; i < 1000; ++i) back.push_back({std::sin(i * 0.01), i == 500 ? 9.0 : 0.0});
  const std::vector<XY> fewer = downsampled(back, 50, true);
  EXPECT_LE(fewer.size(), 102U);
  EXPECT_GE(fewer.size(), 50U);
  EXPECT_EQ(std::count_if(fewer.begin(), fewer.end(), [](const XY& one) { return one.y == 9; }), 1);
  // All points at one x: there is nothing to divide, and no infinite loop.
  EXPECT_LE(downsampled(std::vector<XY>(1000, XY{5, 1}), 10).size(), 4U);
}

TEST(Curves, SmoothingIsTheWeightedMeanOfWhatCame) {
  const std::vector<XY> points = wave(50);
  Smoother smoother(0.9);
  const std::vector<XY> calm = smoothed(points, smoother);
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{49}}) {
    double sum = 0, weight = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      sum += std::pow(0.9, static_cast<double>(i - j)) * points[j].y;
      weight += std::pow(0.9, static_cast<double>(i - j));
    }
    EXPECT_NEAR(calm[i].y, sum / weight, 1e-12) << i;
  }
  EXPECT_DOUBLE_EQ(calm[0].y, points[0].y);
}

TEST(Curves, ABandSpansWhereAllCurvesAre) {
  std::vector<XY> low, high;
  for (int i = 0; i <= 100; ++i) low.push_back({i * 1.0, 1.0});
  for (int i = 5; i <= 60; i += 5) high.push_back({i * 1.0, 3.0 + i});
  const std::vector<BandPoint> both = band({low, high}, 1000);
  ASSERT_FALSE(both.empty());
  EXPECT_EQ(both.front().x, 5);
  EXPECT_EQ(both.back().x, 60);
  for (const BandPoint& point : both) {
    EXPECT_NEAR(point.high, 3 + point.x, 1e-9) << "between its points a curve is a line";
    EXPECT_NEAR(point.low, 1, 1e-9);
    EXPECT_NEAR(point.mean, (4 + point.x) / 2, 1e-9);
  }
  EXPECT_LE(band({low, high}, 10).size(), 12U);
  EXPECT_TRUE(band({low, {}}, 10).empty());
  EXPECT_TRUE(band({}, 10).empty());
  EXPECT_TRUE(band({{{0, 1}, {1, 1}}, {{2, 1}, {3, 1}}}, 10).empty()) << "they share no step";
}

TEST(Curves, ATableKnowsWhatItDoesNotKnow) {
  CurveTable table;
  table.begin_row(1, 10);
  table.set(table.column("a"), 1);
  table.begin_row(2, 20);
  table.set(table.column("b"), 2);
  EXPECT_EQ(table.value(*table.find("a"), 0), 1);
  EXPECT_TRUE(std::isnan(table.value(*table.find("a"), 1)));
  EXPECT_TRUE(std::isnan(table.value(*table.find("b"), 0)));
  EXPECT_EQ(table.value(*table.find("b"), 1), 2);
  EXPECT_EQ(table.find("c"), nullptr);
  table.cut(1);
  EXPECT_EQ(table.rows(), 1U);
  EXPECT_TRUE(std::isnan(table.value(*table.find("b"), 0)));
}

TEST(Curves, NumbersAreShortAndValid) {
  const auto text = [](double value) {
    std::string out;
    append_number(out, value);
    return out;
  };
  EXPECT_EQ(text(3), "3");
  EXPECT_EQ(text(-120000), "-120000");
  EXPECT_EQ(text(0.123456789), "0.123457");
  EXPECT_EQ(text(NAN), "null");
  EXPECT_EQ(text(INFINITY), "null");
  EXPECT_EQ(nlohmann::json::parse(text(1.5e300)), 1.5e300);
}

class Collected : public JsonVisitor {
 public:
  void number(const JsonPath& path, double value) override { put(path, value); }
  void text(const JsonPath& path, std::string_view value) override { put(path, std::string(value)); }
  nlohmann::json all = nlohmann::json::object();

 private:
  template <typename Value>
  void put(const JsonPath& path, const Value& value) {
    std::string name;
    for (const JsonStep& step : path)
      name += "/" + (step.name.empty() ? std::to_string(step.place) : std::string(step.name));
    all[name] = value;
  }
};

TEST(JsonWalk, FindsEveryNumberWhereItStands) {
  const nlohmann::json line = {{"kind", "eval"},
                               {"loss", 2.5e-3},
                               {"none", nullptr},
                               {"yes", true},
                               {"layers", {{{"gini", 0.5}, {"count", {{"used", 3}}}}, {{"gini", -1}}}},
                               {"empty", nlohmann::json::array()}};
  for (const int indent : {-1, 2}) {
    Collected found;
    ASSERT_TRUE(walk_json(line.dump(indent), found));
    EXPECT_EQ(found.all, (nlohmann::json{{"/kind", "eval"},
                                         {"/loss", 2.5e-3},
                                         {"/layers/0/gini", 0.5},
                                         {"/layers/0/count/used", 3.0},
                                         {"/layers/1/gini", -1.0}}));
  }
}

TEST(JsonWalk, WhatIsNoObjectIsRefused) {
  for (const std::string& text : std::vector<std::string>{
           "", "3", "[1]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{\"a\":1}x", "{\"a\" 1}", "{a:1}",
           "{\"a\":nul}", "{\"a\":\"", "{\"a\":\"\\", "{\"a\":--1}", "{\"a\":[1,]}", std::string(100000, '[')}) {
    Collected found;
    EXPECT_FALSE(walk_json(text, found)) << text.substr(0, 20);
  }
  Collected deep;
  EXPECT_FALSE(walk_json("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", deep));
}

// walk_json and the reader of whole files skip the same lines and read the same numbers.
TEST(JsonWalk, LeavesOutWhatTheReaderOfWholeFilesLeavesOut) {
  const auto nested = [](int lists) {
    return "{\"a\":" + std::string(static_cast<std::size_t>(lists), '[') +
           std::string(static_cast<std::size_t>(lists), ']') + "}";
  };
  for (const std::string& line : std::vector<std::string>{"{\"a\":01}",
                                                          "{\"a\":1.}",
                                                          "{\"a\":-.5}",
                                                          "{\"a\":0.5}",
                                                          "{\"a\":-0}",
                                                          "{\"a\":1e400}",
                                                          "{\"a\":1e-400}",
                                                          "{\"a\":1e}",
                                                          "{\"a\":\"\\x\"}",
                                                          "{\"a\":\"\\u12\"}",
                                                          "{\"a\":\"\\ud800\"}",
                                                          "{\"a\":\"\\u00e9\"}",
                                                          "{\"a\":\"\xc3\xa9\"}",
                                                          "{\"a\":\"\xc3\"}",
                                                          "{\"a\":\"\t\"}",
                                                          "{\"a\":\"\x7f\"}",
                                                          "{\"a\":[]} ",
                                                          "\t{}\r",
                                                          "{},",
                                                          nested(max_json_depth - 2),
                                                          nested(max_json_depth - 1),
                                                          nested(max_json_depth),
                                                          nested(max_json_depth + 1)}) {
    Collected found;
    const std::optional<nlohmann::json> parsed = parse_json_line(line);
    EXPECT_EQ(walk_json(line, found), parsed && parsed->is_object()) << line;
  }
}

TEST(JsonWalk, AgreesWithTheLibraryOnDamagedLines) {
  const std::string line =
      R"({"epoch":0.5,"kind":"train","layers":[{"gini":0.25},{"gini":-1e-3}],"text":"a\"b","step":7})";
  std::mt19937 random(7);
  int valid = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = line;
    for (int j = 0; j <= i % 3; ++j) {
      const std::size_t place = random() % damaged.size();
      if (random() % 3 == 0)
        damaged.erase(place, 1 + random() % 4);
      else
        damaged[place] = static_cast<char>("{}[],:\"\\0123456789.eE-+ntf \x01\xff"[random() % 31]);
      if (damaged.empty()) damaged = "{";
    }
    Collected found;
    const bool walked = walk_json(damaged, found);
    const std::optional<nlohmann::json> line_parsed = parse_json_line(damaged);
    ASSERT_EQ(walked, line_parsed && line_parsed->is_object()) << damaged;
    if (!walked) continue;
    ++valid;
    const nlohmann::json& parsed = *line_parsed;
    if (!parsed.contains("step") || !parsed["step"].is_number()) continue;
    EXPECT_EQ(found.all["/step"], parsed["step"].get<double>()) << damaged;
  }
  EXPECT_GT(valid, 100);
}

}  // namespace
}  // namespace some
