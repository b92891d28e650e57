// The board on folders of runs: what it shows, how fast, and what it must not show.
#include "board/board.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "analysis/read.h"
#include "board/board_fixture.h"
#include "core/files/files.h"
#include "expect_error.h"
#include "http/client.h"
#include "memory/memory_file.h"
#include "recipe/recipe.h"
#include "runs/load_file.h"
#include "temporary_folder.h"
#include "train/trainer.h"

namespace some {
namespace {

namespace fs = std::filesystem;

TEST_F(BoardTest, ShowsEveryRunUnderItsFolders) {
  make_run("one", 3);
  make_run("lab/series/two", 2, {"seed=7", "some.top_k=4"});
  folder_.write("notes/readme.txt", "no run");
  folder_.write("one/checkpoints/step-1/config.toml", "no run either");
  open();
  const Json all = runs();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["name"], "two");
  EXPECT_EQ(all[0]["seed"], "7");
  EXPECT_EQ(all[1]["name"], "one");
  EXPECT_EQ(all[1]["step"], 30);
  EXPECT_EQ(all[1]["loss"], 2.5);
  EXPECT_EQ(all[1]["state"], "interrupted");
  EXPECT_EQ(all[1]["layers"], 2);
  EXPECT_EQ(all[1]["experts"], 8);
  EXPECT_EQ(all[1]["metrics"],
            (Json{"eval.bits_per_byte", "eval.loss", "train.gradient_norm", "train.loss", "train.lr"}));
}

TEST_F(BoardTest, CurvesOverStepsAndTokens) {
  make_run("one", 4);
  open();
  const std::string of = "&runs=" + id("one");
  EXPECT_EQ(ask("/api/points?metric=train.loss" + of)["runs"][0]["points"],
            (Json{{10, 5}, {20, 2.5}, {30, 1.66667}, {40, 1.25}}));
  // 0.01 epochs are 10 of its 1000 tokens.
  EXPECT_EQ(ask("/api/points?metric=train.loss&x=tokens" + of)["runs"][0]["points"][1], (Json{200, 2.5}));
  EXPECT_EQ(ask("/api/points?metric=train.loss&from=15&to=35" + of)["runs"][0]["points"].size(), 2U);
  EXPECT_EQ(ask("/api/points?metric=train.layers.1.gini" + of)["runs"][0]["points"].size(), 4U);
  EXPECT_EQ(ask("/api/points?metric=train.nothing" + of)["runs"][0]["points"].size(), 0U);
  const Json calm = ask("/api/points?metric=train.loss&smooth=0.5&from=30" + of)["runs"][0];
  EXPECT_EQ(calm["points"].size(), 2U);
  // (0.125 * 5 + 0.25 * 2.5 + 0.5 * 5 / 3) / 0.875: smoothing includes the points before the range.
  EXPECT_NEAR(calm["smooth"][0][1].get<double>(), (0.125 * 5 + 0.25 * 2.5 + 0.5 * 5 / 3) / 0.875, 1e-4);
  for (const char* wrong : {"x=parsec", "smooth=2", "smooth=x", "buckets=-1", "buckets=1e9", "from=zero"})
    EXPECT_EQ(get_once(board_->port(), "/api/points?metric=train.loss&" + std::string(wrong) + of).status, 400)
        << wrong;
}

TEST_F(BoardTest, SeedsOfOneThingAreABand) {
  make_run("a", 5, {"seed=1"});
  make_run("b", 5, {"seed=2"});
  make_run("c", 5, {"seed=2", "some.top_k=4"});
  open();
  const std::string of = "&runs=" + id("a") + "," + id("b") + "," + id("c");
  const Json bands = ask("/api/points?metric=train.loss&band=1" + of)["bands"];
  ASSERT_EQ(bands.size(), 1U);
  EXPECT_EQ(bands[0]["points"].size(), 5U);
  // Grouped by a setting: two runs with top_k 2; the group of the third has one run and so no band.
  const Json by_setting = ask("/api/points?metric=train.loss&band=some.top_k" + of)["bands"];
  ASSERT_EQ(by_setting.size(), 1U);
  EXPECT_EQ(by_setting[0]["group"], "2");
  EXPECT_EQ(by_setting[0]["points"].size(), 5U);
  const Json rows = ask("/api/settings?runs=" + id("a") + "," + id("c"))["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["key"], "seed");
  EXPECT_EQ(rows[1], (Json{{"key", "some.top_k"}, {"values", {"2", "4"}}}));
}

TEST_F(BoardTest, ANewLineIsReportedWithinASecond) {
  make_run("one", 2);
  open();
  Client viewer(board_->port());
  viewer.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(viewer.read_until("event: hello"));
  EXPECT_LT(quickest(milliseconds(1000),
                     [&](const std::string& line, const std::string& words) {
                       append("one/metrics.jsonl", line);
                       EXPECT_TRUE(viewer.read_until(words)) << viewer.all();
                     }),
            milliseconds(1000));
  EXPECT_NE(viewer.all().find("\"first\":2"), std::string::npos) << viewer.all();
  // A line is reported only when complete.
  const std::string line = train_line(40, 0.625);
  append("one/metrics.jsonl", line.substr(0, 20));
  EXPECT_FALSE(viewer.read_until("0.625", milliseconds(300)));
  append("one/metrics.jsonl", line.substr(20));
  EXPECT_TRUE(viewer.read_until("0.625"));
  // A new run, and a removed one.
  make_run("two", 1);
  EXPECT_TRUE(viewer.read_until(id("two")));
  fs::remove_all(folder_ / "two");
  EXPECT_TRUE(viewer.read_until("{\"gone\":\"" + id("two") + "\"}"));
}

// The key of a cached answer has the length of every value, so a value with line breaks is not taken for others.
TEST_F(BoardTest, NoValueImitatesAnotherRequest) {
  make_run("one", 5);
  open();
  const std::string run = id("one"), target = "/api/points?metric=train.loss&runs=" + run;
  const std::string forged_tail = "%0Aruns=" + run + "%0A" + run + "%20";
  for (int version = 0; version < 20; ++version) {
    for (const char* parameter : {"metric", "x", "band", "layer", "step", "group"})
      get_once(board_->port(),
               "/api/points?" + std::string(parameter) + "=train.loss" + forged_tail + fmt::to_string(version));
    get_once(board_->port(), "/api/points%0Ametric=train.loss" + forged_tail + fmt::to_string(version));
  }
  for (const char* hostile :
       {"%00", "%0A", "%0D%0A", "5:a", "%FF", "%25", "0:", "../..", "<script>", "'\"", "%E2%80%AE"}) {
    for (const char* parameter :
         {"metric", "x", "buckets", "smooth", "from", "to", "band", "runs", "layer", "method"}) {
      for (const char* path : {"points", "runs", "settings", "layers", "load", "together", "keys", "memory"}) {
        const int status = get_once(board_->port(), fmt::format("/api/{}?{}={}", path, parameter, hostile)).status;
        EXPECT_TRUE(status == 200 || status == 400 || status == 404) << path << " " << parameter << " " << status;
      }
    }
  }
  EXPECT_EQ(ask(target)["runs"][0]["points"].size(), 5U);
}

TEST_F(BoardTest, AFileThatWasCutIsReadAnew) {
  make_run("one", 5);
  open();
  const std::string target = "/api/points?metric=train.loss&runs=" + id("one");
  ASSERT_EQ(ask(target)["runs"][0]["points"].size(), 5U);
  // Like a resumed run: lines after the checkpoint are removed and written again, possibly with other values.
  folder_.write("one/metrics.jsonl", train_line(10, 5) + train_line(20, 4) + train_line(30, 3));
  EXPECT_TRUE(soon([&] { return ask(target)["runs"][0]["points"] == (Json{{10, 5}, {20, 4}, {30, 3}}); }));
  // Truncated and grown again between two polls.
  folder_.write("one/metrics.jsonl",
                train_line(10, 5) + train_line(20, 8) + train_line(30, 7) + train_line(40, 6) + train_line(50, 5));
  EXPECT_TRUE(soon([&] { return ask(target)["runs"][0]["points"].size() == 5; }));
  EXPECT_EQ(ask(target)["runs"][0]["points"][1], (Json{20, 8}));
  fs::remove(folder_ / "one/metrics.jsonl");
  EXPECT_TRUE(soon([&] { return ask(target)["runs"][0]["points"].empty(); }));
}

TEST_F(BoardTest, WhatDidNotChangeIsNotSentAgain) {
  make_run("one", 3);
  open();
  for (const std::string& target :
       {std::string("/"), std::string("/api/runs"), "/api/points?metric=train.loss&runs=" + id("one")}) {
    const auto first = get_once(board_->port(), target);
    const std::size_t at = first.head.find("ETag: ");
    ASSERT_NE(at, std::string::npos) << target;
    const std::string tag = first.head.substr(at + 6, first.head.find("\r\n", at) - at - 6);
    const std::string known = "If-None-Match: " + tag + "\r\n";
    EXPECT_EQ(get_once(board_->port(), target, known).status, 304) << target;
    if (target == "/") continue;  // the page does not depend on runs: nothing may change under the next request
    append("one/metrics.jsonl", train_line(100, 0.5));
    EXPECT_TRUE(soon([&] { return get_once(board_->port(), target, known).status == 200; })) << target;
  }
}

TEST_F(BoardTest, DamagedFilesLeaveTheRest) {
  make_run("one", 2);
  append("one/metrics.jsonl", "{\"kind\":\"train\",\"step\":\n\x01\x02garbage\n[]\n{\"kind\":\"train\"}\n" +
                                  std::string("{\"kind\":\"train\",\"step\":1e999}\n") + train_line(30, 0.5));
  folder_.write("bad/config.toml", "this is = no recipe [");
  folder_.write("bad/metrics.jsonl", train_line(10, 1));
  folder_.write("empty/config.toml", "");
  open();
  EXPECT_EQ(ask("/api/points?metric=train.loss&runs=" + id("one"))["runs"][0]["points"].size(), 3U);
  EXPECT_EQ(ask("/api/points?metric=train.loss&runs=" + id("bad"))["runs"][0]["points"].size(), 1U);
  EXPECT_EQ(runs().size(), 3U);
  EXPECT_TRUE(runs()[0].contains("trouble"));
}

TEST_F(BoardTest, NothingOutsideOfTheFoldersIsRead) {
  TemporaryFolder outside;
  outside.write("run/config.toml", config());
  outside.write("run/metrics.jsonl", train_line(10, 0.123));
  outside.write("secret.jsonl", train_line(10, 0.456));
  make_run("one", 2);
  fs::create_symlink(outside / "run", folder_ / "linked");
  fs::remove(folder_ / "one/metrics.jsonl");
  fs::create_symlink(outside / "secret.jsonl", folder_ / "one/metrics.jsonl");
  make_run("piped", 0);
  fs::remove(folder_ / "piped/metrics.jsonl");
  ASSERT_EQ(::mkfifo((folder_ / "piped/metrics.jsonl").c_str(), 0600), 0);
  open();
  EXPECT_EQ(runs().size(), 2U);
  EXPECT_EQ(ask("/api/points?metric=train.loss&runs=" + id("one"))["runs"][0]["points"].size(), 0U);
  const int port = board_->port();
  EXPECT_EQ(ask("/api/points?metric=train.loss&runs=" + id_of(outside / "run"))["runs"].size(), 0U);
  for (const char* target :
       {"/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/api/../../etc/passwd", "/one",
        "/one/config.toml", "/api/runs/../../one/config.toml", "/\\..\\..", "/api/nothing", "/favicon.ico"})
    EXPECT_EQ(get_once(port, target).status, 404) << target;
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "one", "%2e%2e", "..%2f..%2fetc"})
    EXPECT_EQ(ask("/api/points?metric=train.loss&runs=" + std::string(name))["runs"].size(), 0U) << name;
}

TEST_F(BoardTest, NamesOfStrangersAreData) {
  const std::string name = "<img src=x onerror=alert(1)>";
  make_run(name, 1, {});
  make_run("half\xffname", 1);
  open();
  const auto list = get_once(board_->port(), "/api/runs");
  EXPECT_NE(list.head.find("application/json"), std::string::npos);
  EXPECT_NE(list.head.find("nosniff"), std::string::npos);
  const Json all = runs();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["name"], name);
  EXPECT_EQ(all[1]["name"], "half\xEF\xBF\xBDname");
  EXPECT_EQ(get_once(board_->port(), "/").body.find("<img"), std::string::npos);
}

// A short training run by the program itself.
class TrainedBoardTest : public BoardTest {
 protected:
  void SetUp() override {
    const Recipe recipe = load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml",
                                      {"train.save_keys_every=10", "data.train_documents=60", "train.threads=1"});
    start_run(recipe, folder_ / "runs/tiny", {});
    open();
  }
  std::string id() const { return id_of(folder_ / "runs/tiny"); }
  // Returns the lines of an answer.
  std::vector<Json> asked(const Json& question, int* status = nullptr) const {
    const std::string body = question.dump();
    Client client(board_->port());
    client.send(
        fmt::format("POST /api/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    body.size(), body));
    constexpr int waited = 60;  // seconds; the model may have to be opened first, on a busy machine
    // An error response has a length and keeps the connection open; an answer ends with the connection.
    client.read_enough(
        [](const std::string& text) {
          const std::size_t head = text.find("\r\n\r\n");
          return head != std::string::npos && text.find("Content-Length") < head;
        },
        std::chrono::seconds(waited));
    EXPECT_TRUE(client.all().find("Content-Length") != std::string::npos || client.ended())
        << "nothing came for " << waited << " seconds after " << client.all();
    if (status != nullptr) *status = std::stoi(client.all().substr(9, 3));
    std::vector<Json> lines;
    std::istringstream text(client.all());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("{")) lines.push_back(Json::parse(line));
    }
    return lines;
  }
};

TEST_F(TrainedBoardTest, ShowsWhatIsInside) {
  const std::string of = "?runs=" + id();
  const Json load = ask("/api/load" + of + "&layer=1");
  EXPECT_EQ(load["steps"], (Json{5, 10, 15, 20}));
  EXPECT_EQ(load["experts"], (Json{0, 1, 2, 3, 4, 5, 6, 7}));
  for (const Json& row : load["rows"]) {
    double sum = 0;
    for (const Json& percent : row) sum += percent.get<double>();
    EXPECT_NEAR(sum, 800, 5);
  }
  const Json keys = ask("/api/keys" + of + "&layer=0&tsne=1");
  EXPECT_EQ(keys["kind"], "keys");
  EXPECT_EQ(keys["frames"]["steps"], (Json{0, 10, 20}));
  EXPECT_EQ(keys["frames"]["places"][2].size(), 8U);
  EXPECT_EQ(keys["tsne"]["places"].size(), 8U);
  EXPECT_FALSE(ask("/api/keys" + of + "&layer=0").contains("tsne"));
  const Json together = ask("/api/together" + of + "&layer=0");
  EXPECT_EQ(together["steps"], (Json{20}));
  ASSERT_FALSE(together["sets"].empty());
  EXPECT_EQ(together["sets"][0]["experts"].size(), 2U);
  const Json curves = ask("/api/layers" + of + "&metric=train.gini");
  ASSERT_EQ(curves["layers"].size(), 2U);
  EXPECT_EQ(curves["layers"][1].size(), 4U);
  EXPECT_EQ(ask("/api/layers" + of + "&metric=eval.key_moved.mean")["layers"][0].size(), 1U);
  for (const char* wrong : {"/api/load?layer=0", "/api/load?layer=2&runs=", "/api/keys?layer=-1&runs=",
                            "/api/keys?layer=0.5&runs=", "/api/together?layer=x&runs="})
    EXPECT_EQ(get_once(board_->port(), wrong + (std::string(wrong).ends_with("=") ? id() : "")).status, 400) << wrong;
}

TEST_F(TrainedBoardTest, ShowsTheSlotsOfAMemory) {
  EXPECT_EQ(ask("/api/memory?runs=" + id()), Json::object());
  OpenedRun run = open_run(folder_ / "runs/tiny", {"latest", on_cpu, {}, make_host(1)});
  ReadOptions how;
  how.texts = {"builtin:recipes"};
  how.memory = folder_ / "runs/tiny/memory.safetensors";
  how.choices.slots = 64;
  how.tokens = 400;
  how.original_tokens = 0;
  read_texts(run, how);
  // The number of versions that were seen: reading writes the file more than once.
  EXPECT_TRUE(soon([&] { return ask("/api/memory?runs=" + id()).value("texts", Json::array()).size() == 1; }));
  const Json memory = ask("/api/memory?runs=" + id());
  EXPECT_EQ(memory["slots"], 64);
  EXPECT_EQ(memory["texts"][0]["name"], "builtin:recipes");
  EXPECT_EQ(memory["texts"][0]["slots"], memory["in_use"]);
  const Json& frames = memory["store"]["frames"];
  std::int64_t births = 0;
  for (const Json& frame : frames) births += frame["births"].get<std::int64_t>();
  EXPECT_EQ(births, memory["in_use"].get<std::int64_t>()) << "every slot is born once";
  EXPECT_EQ(frames.back()["dots"].size(), memory["store"]["slots"].size());
  EXPECT_LT(frames[0]["dots"].size(), frames.back()["dots"].size());
  std::int64_t met = 0;
  for (const Json& slot : memory["store"]["slots"]) met += slot["met"].get<std::int64_t>();
  EXPECT_GT(met, memory["in_use"].get<std::int64_t>()) << "tokens have merged into slots";

  // After merging another memory, its slots are distinguished from those inserted here.
  how.texts = {"builtin:nature"};
  how.memory = folder_ / "other";
  read_texts(run, how);
  Memory both = load_memory(*run.ctx, folder_ / "runs/tiny/memory.safetensors");
  merge(*run.ctx, both, load_memory(*run.ctx, folder_ / "other"));
  save_memory(both, folder_ / "runs/tiny/memory.safetensors");
  EXPECT_TRUE(soon([&] { return ask("/api/memory?runs=" + id())["texts"].size() == 2; }));
  const Json merged = ask("/api/memory?runs=" + id());
  ASSERT_EQ(merged["texts"].size(), 2U);
  std::int64_t taken = 0;
  std::set<int> states;
  for (const Json& frame : merged["store"]["frames"]) {
    taken += frame.value("taken", std::int64_t{0});
    for (const Json& dot : frame["dots"]) states.insert(dot[4].get<int>());
  }
  EXPECT_GE(taken, merged["texts"][1]["slots"].get<std::int64_t>());
  EXPECT_GT(taken, 0);
  EXPECT_TRUE(states.contains(4) && states.contains(3));

  const Json answer = asked({{"run", id()}, {"prompt", "Mix the flour"}, {"max_tokens", 3}, {"memory", true}}).back();
  ASSERT_EQ(answer["kind"], "end") << answer;
  EXPECT_TRUE(answer["trace"]["tokens"][2].contains("memory"));
}

TEST_F(TrainedBoardTest, AModelAnswersWithItsExperts) {
  const Json question{{"run", id()}, {"prompt", "Once upon a time"}, {"max_tokens", 6}, {"seed", 3}};
  const std::vector<Json> lines = asked(question);
  ASSERT_GE(lines.size(), 4U);
  EXPECT_EQ(lines[0]["kind"], "waiting");
  EXPECT_EQ(lines[1]["kind"], "begin");
  EXPECT_EQ(lines[2]["kind"], "read");
  EXPECT_EQ(lines[2]["tokens"].size(), lines[1]["prompt"].size()) << "every token of the prompt has its experts";
  EXPECT_EQ(lines[2]["tokens"][0].size(), 2U) << "in every layer";
  EXPECT_EQ(lines[3]["kind"], "token");
  const Json end = lines.back();
  ASSERT_EQ(end["kind"], "end");
  EXPECT_EQ(end["trace"]["tokens"].size(), lines[1]["prompt"].size() + 6);
  // The experts streamed during generation are those in the trace.
  for (std::size_t t = 0; t < lines[2]["tokens"].size(); ++t) {
    EXPECT_EQ(lines[2]["tokens"][t][1][0][0], end["trace"]["tokens"][t]["layers"][1]["experts"][0]) << t;
  }
  EXPECT_EQ(asked(question).back()["text"], end["text"]) << "the same question has the same answer";

  // Without the top expert of the first token.
  const int strongest = end["trace"]["tokens"][0]["layers"][1]["experts"][0];
  Json without = question;
  without["off"] = {{"layer", 1}, {"expert", strongest}};
  const Json other = asked(without).back()["trace"];
  for (const Json& token : other["tokens"]) {
    for (const Json& expert : token["layers"][1]["experts"]) EXPECT_NE(expert, strongest);
  }
  Json more = question;
  more["experts_a_token"] = 5;
  EXPECT_EQ(asked(more).back()["trace"]["top_k"], 5);
  EXPECT_EQ(asked(question).back(), end) << "nothing of it stays";
}

// The last line of an experiment has the report.
TEST_F(TrainedBoardTest, ExperimentsAreStreamed) {
  const std::string address = board_->address(), key = address.substr(address.find("#key=") + 5);
  const auto asked_for = [&](const std::string& path, const Json& body) {
    const std::string text = body.dump();
    Client client(board_->port());
    client.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Connection: close\r\nX-Board-Key: {}\r\nContent-Length: {}\r\n\r\n{}",
                    path, key, text.size(), text));
    client.read_enough([&](const std::string&) { return client.ended(); }, std::chrono::seconds(60));
    std::vector<Json> lines;
    std::istringstream all(client.all());
    for (std::string line; std::getline(all, line);) {
      if (line.starts_with("{")) lines.push_back(Json::parse(line));
    }
    return lines;
  };
  const std::vector<Json> lines = asked_for("/api/ablate", {{"run", id()}, {"documents", 5}, {"layer", 1}});
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines[0]["kind"], "waiting");
  EXPECT_EQ(lines[1]["kind"], "progress");
  ASSERT_EQ(lines.back()["kind"], "end") << lines.back();
  EXPECT_EQ(lines.back()["report"]["knock_outs"].size(), 8U);
  EXPECT_FALSE(lines.back()["report"].contains("run")) << "pages do not learn paths";
  const Json blocks = asked_for("/api/ablate", {{"run", id()}, {"documents", 5}, {"unit", "layer"}}).back();
  ASSERT_EQ(blocks["kind"], "end") << blocks;
  EXPECT_EQ(blocks["report"]["knock_outs"].size(), 2U);
  EXPECT_EQ(asked_for("/api/ablate", {{"run", id()}, {"unit", "town"}}).back()["error"]["code"], "request-invalid");
  EXPECT_EQ(asked_for("/api/routes", {{"first", id()}, {"second", id()}}).back()["error"]["code"], "request-invalid");
  fs::copy(folder_ / "runs/tiny", folder_ / "runs/same", fs::copy_options::recursive);
  ASSERT_TRUE(soon([&] { return runs().size() == 2; }));
  const Json match = asked_for("/api/routes", {{"first", id()}, {"second", id_of(folder_ / "runs/same")}}).back();
  ASSERT_EQ(match["kind"], "end") << match;
  for (const Json& layer : match["report"]["layers"]) EXPECT_EQ(layer["agreement"], 1.0) << "a run routes as itself";
}

TEST_F(TrainedBoardTest, InvalidQuestionsAreReported) {
  const auto told = [&](const Json& question) {
    int status = 0;
    asked(question, &status);
    return status;
  };
  const Json good{{"run", id()}, {"prompt", "Once"}, {"max_tokens", 2}};
  const auto with = [&](const char* key, const Json& value) {
    Json question = good;
    question[key] = value;
    return question;
  };
  EXPECT_EQ(told(with("run", "../../etc")), 404);
  EXPECT_EQ(told(with("prompt", 3)), 400);
  EXPECT_EQ(told(with("prompt", std::string(20000, 'x'))), 400);
  EXPECT_EQ(told(with("temperature", -1)), 400);
  EXPECT_EQ(told(with("max_tokens", 100000)), 400);
  EXPECT_EQ(told(with("off", {{"layer", -1}, {"expert", 0}})), 400);
  EXPECT_EQ(told(Json::array({1})), 400);
  // Errors that only the model can detect are sent as a line.
  const auto refused = [&](const Json& question) {
    const Json last = asked(question).back();
    EXPECT_EQ(last["kind"], "error");
    return last.value("error", Json::object()).value("code", "");
  };
  EXPECT_EQ(refused(with("off", {{"layer", 0}, {"expert", 8}})), "expert-out-of-range");
  EXPECT_EQ(refused(with("experts_a_token", 9)), "expert-out-of-range");
  EXPECT_EQ(refused(with("memory", true)), "memory-missing");
  EXPECT_EQ(refused(with("prompt", "")), "prompt-empty");
  EXPECT_EQ(asked(good).back()["kind"], "end");
  // A symbolic link in the run would lead the readers of models out of the folder.
  fs::rename(folder_ / "runs/tiny/checkpoints", folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", folder_ / "runs/tiny/checkpoints");
  EXPECT_EQ(refused(good), "link-broken");
}

TEST_F(BoardTest, ABoardThatOnlyShowsIsNotAsked) {
  make_run("one", 1);
  BoardSettings settings;
  settings.watch.folders = {folder_.path()};
  settings.read_only = true;
  const Board board(settings);
  Client client(board.port());
  client.send(
      "POST /api/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  const auto answer = client.answer();
  EXPECT_EQ(answer.status, 403);
  EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "request-forbidden");
}

int threads_now() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

TEST_F(BoardTest, ManyViewersOnFewThreads) {
  make_run("one", 2);
  const int before = threads_now();
  open();
  std::vector<std::unique_ptr<Client>> viewers;
  for (int i = 0; i < 200; ++i) {
    viewers.push_back(std::make_unique<Client>(board_->port()));
    viewers.back()->send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  for (auto& viewer : viewers) ASSERT_TRUE(viewer->read_until("event: hello"));
  EXPECT_LE(threads_now() - before, 4) << "one serves, one reads, one works things out, one asks";
  EXPECT_EQ(board_->viewers(), 200U);
  EXPECT_LT(quickest(milliseconds(2000),
                     [&](const std::string& line, const std::string& words) {
                       append("one/metrics.jsonl", line);
                       for (auto& viewer : viewers) EXPECT_TRUE(viewer->read_until(words));
                     }),
            milliseconds(2000));
  viewers.clear();
  append("one/metrics.jsonl", train_line(40, 0.5));
  EXPECT_TRUE(soon([&] {
    append("one/metrics.jsonl", "\n");
    return board_->viewers() == 0;
  }));
}

TEST_F(BoardTest, OthersNeedTheToken) {
  make_run("one", 1);
  BoardSettings settings;
  settings.watch.folders = {folder_.path()};
  settings.server.host = "0.0.0.0";
  const Board board(settings);
  const std::string address = board.address();
  const std::size_t at = address.find("?token=");
  ASSERT_NE(at, std::string::npos) << address;
  EXPECT_EQ(address.substr(at + 7).size(), 32U);
  EXPECT_EQ(get_once(board.port(), "/").status, 403);
  EXPECT_EQ(get_once(board.port(), "/api/runs").status, 403);
  EXPECT_EQ(get_once(board.port(), "/" + address.substr(at)).status, 200);
}

TEST_F(BoardTest, ShowsTheTextsOfEvaluations) {
  make_run("one", 2);
  make_run("two", 2);
  const auto line = [](int step, const std::string& text) {
    return Json{{"step", step},
                {"epoch", step / 10.0},
                {"samples", {{{"prompt", "Once"}, {"text", text}}, {{"text", 3}}}}}
               .dump() +
           "\n";
  };
  folder_.write("one/samples.jsonl", line(10, "a") + "{damaged\n" + line(20, "<b>"));
  open();
  const std::string target = "/api/samples?runs=" + id("one") + "," + id("two");
  EXPECT_EQ(runs()[0]["samples"], 2);
  const Json last = ask(target)["runs"];
  ASSERT_EQ(last.size(), 1U) << "runs without texts are left out";
  EXPECT_EQ(last[0]["steps"], (Json{10, 20}));
  EXPECT_EQ(last[0]["moments"],
            (Json{{{"step", 20}, {"epoch", 2.0}, {"samples", {{{"prompt", "Once"}, {"text", "<b>"}}}}}}));
  EXPECT_EQ(ask(target + "&step=15")["runs"][0]["moments"][0]["step"], 10);
  EXPECT_EQ(ask(target + "&step=1")["runs"][0]["moments"][0]["step"], 10);
  EXPECT_EQ(ask(target + "&all=1")["runs"][0]["moments"].size(), 2U);
  append("one/samples.jsonl", line(30, "later"));
  EXPECT_TRUE(soon([&] { return ask(target)["runs"][0]["steps"] == (Json{10, 20, 30}); }));
  // A run that resumes from an earlier step writes its lines again.
  append("one/samples.jsonl", line(20, "again"));
  EXPECT_TRUE(soon([&] { return ask(target)["runs"][0]["steps"] == (Json{10, 20}); }));
  EXPECT_EQ(ask(target)["runs"][0]["moments"][0]["samples"][0]["text"], "again");
}

TEST_F(BoardTest, TheUseOfTheMachineIsACurve) {
  make_run("one", 4);
  const Json use{{"step", 20},
                 {"seconds", 2},
                 {"tokens_per_second", 100},
                 {"operations_per_second", 2e9},
                 {"cpu_cores", 1.5},
                 {"memory_bytes", 3.0 * 1024 * 1024 * 1024},
                 {"gpu_utilization", 0.9},
                 {"gpu_watts", 400.0}};
  folder_.write("one/rates.jsonl",
                Json{{"step", 10}, {"seconds", 1}, {"tokens_per_second", 100}, {"operations_per_second", 2e9}}.dump() +
                    "\n" + use.dump() + "\n");
  open();
  const auto points = [&](const std::string& metric) {
    return ask("/api/points?metric=rates." + metric + "&runs=" + id("one"))["runs"][0]["points"];
  };
  EXPECT_EQ(points("cpu_cores"), (Json{{20, 1.5}}));
  EXPECT_EQ(points("memory_gib"), (Json{{20, 3}}));
  EXPECT_EQ(points("gpu_utilization"), (Json{{20, 0.9}}));
  EXPECT_EQ(points("gpu_watts"), (Json{{20, 400}}));
  EXPECT_TRUE(points("gpu_memory_gib").empty());
}

TEST(BoardFolders, OneThatIsNotThereIsAnError) {
  BoardSettings settings;
  settings.watch.folders = {"/nowhere/at/all"};
  EXPECT_ERROR(Board{settings}, Code::folder_not_found, "/nowhere/at/all");
}

}  // namespace
}  // namespace some
