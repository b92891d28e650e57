// Labels, deletion and the way back on the board.
#include "board/changes.h"

#include <sys/stat.h>

#include <filesystem>

#include "board/board_fixture.h"
#include "core/files/folders.h"
#include "expect_error.h"
#include "runs/run_lock.h"

namespace some {
namespace {

namespace fs = std::filesystem;

// Only a page with the key, which is only in the printed address, can change runs.
class BoardChangesTest : public BoardTest {
 protected:
  std::string key() const {
    const std::string address = board_->address();
    const std::size_t at = address.find("#key=");
    return at == std::string::npos ? "" : address.substr(at + 5);
  }
  // Returns the status, and the body in `answer`.
  int post(const std::string& path, const Json& body, const std::string& head, Json* answer = nullptr) const {
    const std::string text = body.dump();
    Client client(board_->port());
    client.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                    "{}Content-Length: {}\r\n\r\n{}",
                    path, head, text.size(), text));
    client.read_enough([&](const std::string&) { return client.ended(); });
    const std::size_t end = client.all().find("\r\n\r\n");
    if (answer != nullptr && end != std::string::npos) *answer = Json::parse(client.all().substr(end + 4));
    return std::stoi(client.all().substr(9, 3));
  }
  int post(const std::string& path, const Json& body, Json* answer = nullptr) const {
    return post(path, body, "X-Board-Key: " + key() + "\r\n", answer);
  }
};

TEST_F(BoardChangesTest, LabelsAreStoredAndShown) {
  make_run("one", 2);
  open();
  const std::string hostile = "<img src=x onerror=alert(1)>";
  const Json labels{{"run", id("one")}, {"name", hostile}, {"tags", {"b", "<i>"}}, {"note", "see\n</script>"}};
  ASSERT_EQ(post("/api/labels", labels), 200);
  EXPECT_TRUE(soon([&] { return runs()[0]["name"] == hostile; }));
  const Json run = runs()[0];
  EXPECT_EQ(run["folder"], "one");
  EXPECT_EQ(run["tags"], (Json{"<i>", "b"}));
  EXPECT_EQ(run["note"], "see\n</script>");
  EXPECT_EQ(run["id"], id("one")) << "links to the run stay valid";
  EXPECT_EQ(get_once(board_->port(), "/").body.find("<img"), std::string::npos);
  // Written by another program, damaged, or a link: the board shows the folder's name.
  folder_.write("one/labels.json", R"({"name": "from elsewhere"})");
  EXPECT_TRUE(soon([&] { return runs()[0]["name"] == "from elsewhere"; }));
  folder_.write("one/labels.json", R"({"name": 3})");
  EXPECT_TRUE(soon([&] { return runs()[0]["name"] == "one"; }));
  TemporaryFolder outside;
  outside.write("labels.json", R"({"name": "outside"})");
  fs::remove(folder_ / "one/labels.json");
  fs::create_symlink(outside / "labels.json", folder_ / "one/labels.json");
  EXPECT_EQ(post("/api/labels", labels), 400);
  EXPECT_EQ(read_file(outside / "labels.json"), R"({"name": "outside"})");
  EXPECT_EQ(runs()[0]["name"], "one");
}

TEST_F(BoardChangesTest, ADeletedRunCanBeRestored) {
  make_run("one", 2);
  make_run("lab/two", 2);
  open();
  Json answer;
  ASSERT_EQ(post("/api/delete", {{"runs", {id("lab/two")}}}, &answer), 200);
  const Json entry = answer["entries"][0]["entry"];
  EXPECT_FALSE(fs::exists(folder_ / "lab/two"));
  EXPECT_TRUE(soon([&] { return runs().size() == 1; }));
  const Json trashed = ask("/api/trash")["runs"];
  ASSERT_EQ(trashed.size(), 1U);
  EXPECT_EQ(trashed[0]["entry"], entry);
  EXPECT_EQ(trashed[0]["name"], "two");
  ASSERT_EQ(post("/api/restore", {{"entries", {entry}}}), 200);
  EXPECT_TRUE(soon([&] { return runs().size() == 2; }));
  EXPECT_EQ(ask("/api/points?metric=train.loss&runs=" + id("lab/two"))["runs"][0]["points"].size(), 2U);
  EXPECT_EQ(post("/api/restore", {{"entries", {entry}}}), 400) << "it is no longer in the trash";
  EXPECT_EQ(post("/api/delete", {{"runs", {"../../etc"}}}), 400);
  EXPECT_EQ(post("/api/delete", {{"runs", Json::array()}}), 400);
  EXPECT_EQ(post("/api/delete", Json::array({1})), 400);
}

TEST_F(BoardChangesTest, SeveralRunsAreChangedTogether) {
  for (const char* name : {"one", "two", "three"}) make_run(name, 2);
  folder_.write("one/labels.json", R"({"name": "first", "tags": ["old", "kept"], "note": "seen"})");
  open();
  EXPECT_TRUE(soon([&] { return runs()[0]["name"] == "first"; }));
  const Json all{id("one"), id("two"), id("three")};
  Json answer;
  ASSERT_EQ(post("/api/labels/many", {{"runs", all}, {"add", {"new", "kept"}}, {"remove", {"old"}}, {"note", "again"}},
                 &answer),
            200);
  EXPECT_EQ(answer, (Json{{"changed", 3}, {"failed", Json::array()}}));
  EXPECT_TRUE(soon([&] { return runs()[0].value("note", "") == "seen\nagain"; }));
  EXPECT_EQ(runs()[0]["name"], "first");
  EXPECT_EQ(runs()[0]["tags"], (Json{"kept", "new"}));
  EXPECT_TRUE(soon([&] { return runs()[2].value("tags", Json()) == Json{"kept", "new"}; }));
  // Words that are refused change no run.
  EXPECT_EQ(post("/api/labels/many", {{"runs", all}, {"add", {"a,b"}}, {"remove", {"new"}}}), 400);
  EXPECT_EQ(runs()[2]["tags"], (Json{"kept", "new"}));
  // A run that is being trained stays; the others are deleted and come back together.
  const RunLock training(folder_ / "two");
  ASSERT_EQ(post("/api/delete", {{"runs", all}}, &answer), 200);
  ASSERT_EQ(answer["failed"].size(), 1U);
  EXPECT_EQ(answer["failed"][0]["name"], "two");
  ASSERT_EQ(answer["entries"].size(), 2U);
  EXPECT_FALSE(fs::exists(folder_ / "one"));
  EXPECT_TRUE(fs::exists(folder_ / "two/config.toml"));
  const Json entries{answer["entries"][0]["entry"], answer["entries"][1]["entry"], "none"};
  ASSERT_EQ(post("/api/restore", {{"entries", entries}}, &answer), 200);
  EXPECT_EQ(answer["names"], (Json{"one", "three"}));
  EXPECT_EQ(answer["failed"].size(), 1U);
  EXPECT_TRUE(fs::exists(folder_ / "one/labels.json"));
}

TEST_F(BoardChangesTest, OnlyThePageWithTheKeyChangesRuns) {
  make_run("one", 2);
  open();
  const std::string address = board_->address();
  ASSERT_EQ(key().size(), 32U) << address;
  EXPECT_EQ(get_once(board_->port(), "/").body.find(key()), std::string::npos) << "whoever opens the page has no key";
  const std::string good = "X-Board-Key: " + key() + "\r\n", own = fmt::format("localhost:{}", board_->port());
  const Json body{{"run", id("one")}};
  for (const char* path :
       {"/api/labels", "/api/labels/many", "/api/delete", "/api/restore", "/api/ablate", "/api/routes"}) {
    EXPECT_EQ(post(path, body, ""), 403) << path;
    EXPECT_EQ(post(path, body, "X-Board-Key: " + std::string(32, '0') + "\r\n"), 403) << path;
    // A page of another site that has the key.
    EXPECT_EQ(post(path, body, good + "Origin: http://elsewhere.example\r\n"), 403) << path;
    EXPECT_EQ(post(path, body, good + "Sec-Fetch-Site: cross-site\r\n"), 403) << path;
    EXPECT_EQ(get_once(board_->port(), path, good).status, 404) << path;
  }
  EXPECT_EQ(post("/api/nothing", body), 404);
  EXPECT_TRUE(fs::exists(folder_ / "one/config.toml"));
  board_.reset();
  // Neither a read-only board nor one that other machines reach has a key.
  BoardSettings settings;
  settings.watch.folders = {folder_.path()};
  settings.read_only = true;
  board_.emplace(settings);
  EXPECT_EQ(key(), "");
  EXPECT_EQ(post("/api/delete", body, good), 403);
  board_.reset();
  settings.read_only = false;
  settings.server.host = "0.0.0.0";
  board_.emplace(settings);
  EXPECT_EQ(key(), "") << board_->address();
}

TEST_F(BoardChangesTest, ARunThatIsTheWatchedFolderStays) {
  make_run("one", 2);
  BoardSettings settings;
  settings.watch.folders = {folder_ / "one"};
  board_.emplace(settings);
  board_->watch().wait_until_seen();
  EXPECT_EQ(post("/api/delete", {{"runs", {id("one")}}}), 400);
  EXPECT_TRUE(fs::exists(folder_ / "one/config.toml"));
}

}  // namespace
}  // namespace some
