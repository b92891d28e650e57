// Horizontal axes of the board's curves.
#include "board/board_fixture.h"

namespace some {
namespace {

// Steps repeated after a kill count once; time continues from the end of the first session.
TEST_F(BoardTest, TimeIsThatOfTraining) {
  make_run("one", 4);
  const auto rate = [](int step, double seconds) {
    return Json{{"step", step},
                {"seconds", seconds},
                {"tokens_per_second", 100},
                {"operations_per_second", 2e9},
                {"matrix_rate", 1e10}}
               .dump() +
           "\n";
  };
  folder_.write("one/rates.jsonl", rate(10, 1) + rate(20, 2) + rate(30, 3) + rate(30, 1.5) + rate(40, 2.5));
  open();
  const std::string of = "&runs=" + id("one");
  EXPECT_EQ(ask("/api/points?metric=train.loss&x=time" + of)["runs"][0]["points"],
            (Json{{1, 5}, {2, 2.5}, {3.5, 1.66667}, {4.5, 1.25}}));
  EXPECT_EQ(ask("/api/points?metric=rates.share_of_peak" + of)["runs"][0]["points"].size(), 4U);
  EXPECT_NEAR(ask("/api/points?metric=rates.share_of_peak" + of)["runs"][0]["points"][0][1].get<double>(), 0.2, 1e-6);
}

TEST_F(BoardTest, AnyNumberIsAnAxis) {
  make_run("one", 4);
  const auto rate = [](int step, double seconds, std::int64_t clock) {
    return Json{{"step", step}, {"seconds", seconds}, {"tokens_per_second", 10 * step}, {"unix_ms", clock}}.dump() +
           "\n";
  };
  // The run stops for an hour between steps 20 and 30.
  const std::int64_t noon = 1795089600000, hour = 3600000;
  folder_.write("one/rates.jsonl", rate(10, 1, noon) + rate(20, 2, noon + 1000) + rate(30, 3, noon + hour) +
                                       rate(40, 4, noon + hour + 1000));
  open();
  const auto points = [&](const std::string& metric, const std::string& x) {
    return ask("/api/points?metric=" + metric + "&x=" + x + "&runs=" + id("one"))["runs"][0]["points"];
  };
  EXPECT_EQ(points("train.loss", "elapsed"), (Json{{0, 5}, {1, 2.5}, {3600, 1.66667}, {3601, 1.25}}));
  EXPECT_EQ(points("train.loss", "clock")[2][0], noon + hour);
  EXPECT_EQ(points("train.loss", "train.lr"), (Json{{0.01, 5}, {0.02, 2.5}, {0.03, 1.66667}, {0.04, 1.25}}));
  EXPECT_EQ(points("rates.tokens_per_second", "train.loss")[3], (Json{1.25, 400})) << "in the order of steps";
  EXPECT_EQ(points("train.loss", "train.nothing"), Json::array());
  // Lines without an epoch are at the tokens of the training lines.
  const Json tokens = points("rates.tokens_per_second", "tokens"), of_losses = points("train.loss", "tokens");
  ASSERT_EQ(tokens.size(), of_losses.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i][0], of_losses[i][0]);
}

}  // namespace
}  // namespace some
