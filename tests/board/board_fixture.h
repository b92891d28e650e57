// A board on a folder of made-up runs.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "board/board.h"
#include "core/files/files.h"
#include "http/client.h"
#include "recipe/recipe.h"
#include "temporary_folder.h"

namespace some {

using Json = nlohmann::json;
using std::chrono::milliseconds;

inline std::string config(const std::vector<std::string>& changes = {}) {
  return write_recipe(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml", changes));
}

inline std::string train_line(int step, double loss) {
  return Json{{"kind", "train"},
              {"step", step},
              {"epoch", step / 100.0},
              {"loss", loss},
              {"lr", 1e-3 * step},
              {"gradient_norm", 0.5},
              {"layers", {{{"gini", 0.1}}, {{"gini", 0.2}}}}}
             .dump() +
         "\n";
}

inline std::string eval_line(int step, double loss) {
  return Json{{"kind", "eval"},
              {"step", step},
              {"epoch", step / 100.0},
              {"loss", loss},
              {"bits_per_byte", loss / 2},
              {"layers", Json::array()}}
             .dump() +
         "\n";
}

class BoardTest : public ::testing::Test {
 protected:
  // Creates a run in the order of a trainer: config.toml last.
  std::string make_run(const std::string& name, int lines, const std::vector<std::string>& changes = {}) {
    std::string metrics;
    for (int i = 1; i <= lines; ++i) metrics += train_line(10 * i, 5.0 / i);
    if (lines > 0) metrics += eval_line(10 * lines, 2.5);
    folder_.write(name + "/metrics.jsonl", metrics);
    folder_.write(name + "/data.json", R"({"train":{"documents":9,"tokens":2000,"used":1000,"cut":0,"sequences":9},)"
                                       R"("valid":{"documents":1,"tokens":20,"used":10,"cut":0,"sequences":1}})");
    folder_.write(name + "/config.toml", config(changes));
    return folder_ / name;
  }
  void open() {
    BoardSettings settings;
    settings.watch.folders = {folder_.path()};
    settings.watch.pause = milliseconds(50);
    board_.emplace(settings);
    board_->watch().wait_until_seen();
  }
  Json ask(const std::string& target) const {
    const auto answer = get_once(board_->port(), target);
    EXPECT_EQ(answer.status, 200) << target << answer.body;
    return answer.status == 200 ? Json::parse(answer.body) : Json();
  }
  Json runs() const { return ask("/api/runs")["runs"]; }
  std::string id(const std::string& name) const { return id_of(folder_ / name); }
  void append(const std::string& path, const std::string& text) const { append_bytes(folder_ / path, text); }
  template <typename Done>
  bool soon(const Done& done) const {
    for (int i = 0; i < 1200; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(milliseconds(25));
    }
    return false;
  }

  // Returns the shortest time from writing a line until it is reported. On a busy machine a line may take longer, so up
  // to eight are tried until one takes less than `enough`.
  template <typename Tell>
  static std::chrono::steady_clock::duration quickest(milliseconds enough, const Tell& tell) {
    std::chrono::steady_clock::duration least = std::chrono::seconds(3600);
    for (int i = 0; i < 8 && least >= enough; ++i) {
      const double loss = 0.75 + i / 64.0;
      const auto begin = std::chrono::steady_clock::now();
      tell(train_line(31 + i, loss), Json(loss).dump());
      least = std::min(least, std::chrono::steady_clock::now() - begin);
    }
    return least;
  }

  TemporaryFolder folder_;
  std::optional<Board> board_;
};

}  // namespace some
