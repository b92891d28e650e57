// `some serve` with real clients: the chat page in a browser, OpenAI's npm client, and curl.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "browser.h"
#include "cli/run_command.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::string tiny = std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml";
constexpr const char* key = "0123456789abcdef-a";
constexpr const char* client_version = "6.30.1";

// A running `some serve` with a run, and its output.
class Served {
 public:
  explicit Served(const TemporaryFolder& folder, std::vector<std::string> more = {})
      : command_(prepared(folder), with_serve(std::move(more))) {
    began_ = command_.wait_for_output();
  }
  bool began() const { return began_; }
  std::string address() const { return nlohmann::json::parse(command_.output()).at("address"); }
  void signal(int number) const { command_.signal(number); }
  CommandResult end() const {
    command_.signal(SIGTERM);
    return command_.finish();
  }

 private:
  static std::string prepared(const TemporaryFolder& folder) {
    const CommandResult trained = run_command(
        folder.path(), {"train", tiny, "--out", "runs/tiny", "train.max_steps=30", "data.train_documents=200",
                        "data.valid_documents=20", "data.vocab=400", "--threads", "1"});
    EXPECT_EQ(trained.code, 0) << trained.err;
    fs::permissions(folder.write("keys.txt", std::string(key) + "\n"), fs::perms::owner_read | fs::perms::owner_write);
    return folder.path();
  }
  static std::vector<std::string> with_serve(std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", "runs/tiny", "--port", "0", "--json", "--threads", "1"});
    return more;
  }
  RunningCommand command_;
  bool began_ = false;
};

TEST(ServeCommand, IsTalkedToInABrowser) {
  if (const std::string why = no_browser(); !why.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  const Served server(folder, {"--api-keys", "keys.txt"});
  ASSERT_TRUE(server.began());
  const char* shots = std::getenv("SOME_SCREENSHOTS");
  const std::string command =
      fmt::format("node '{}/web/test/talk.test.mjs' '{}' '{}' '{}' {} 2>&1", SOME_SOURCE_DIR, server.address(), key,
                  SOME_BINARY_DIR "/web/node_modules", shots != nullptr ? shots : "");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_EQ(server.end().code, 0);
}

TEST(ServeCommand, ServesTheClientOfOpenAI) {
  if (std::system("command -v node >/dev/null && command -v npm >/dev/null") != 0) GTEST_SKIP() << "needs node and npm";
  const std::string client = std::string(SOME_BINARY_DIR) + "/openai-client";
  if (!fs::exists(client + "/node_modules/openai/package.json")) {
    fs::create_directories(client);
    const std::string install = fmt::format(
        "timeout 120 npm install --prefix '{}' --no-save --no-package-lock --no-audit --no-fund "
        "--ignore-scripts --loglevel=error openai@{} >/dev/null 2>&1",
        client, client_version);
    if (std::system(install.c_str()) != 0)
      GTEST_SKIP() << "npm's registry does not answer: openai " << client_version << " is not here";
  }
  const TemporaryFolder folder;
  const Served server(folder, {"--api-keys", "keys.txt", "--max-tokens", "200000"});
  ASSERT_TRUE(server.began());
  const std::string command = fmt::format("node '{}/tests/serve/openai.test.mjs' '{}' '{}' '{}/node_modules' 2>&1",
                                          SOME_SOURCE_DIR, server.address(), key, client);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_EQ(server.end().code, 0);
}

TEST(ServeCommand, ServesCurlAndStopsInTime) {
  if (std::system("command -v curl >/dev/null") != 0) GTEST_SKIP() << "needs curl";
  const TemporaryFolder folder;
  const Served server(folder, {"--max-tokens", "200000", "--grace", "0.5"});
  ASSERT_TRUE(server.began());
  const auto curl = [&](const std::string& arguments) {
    const std::string out = folder / "answer";
    const std::string command = fmt::format("curl -sS -m 60 {} > '{}'", arguments, out);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream file(out);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string json = "-H 'Content-Type: application/json'", to = server.address() + "v1/completions";
  EXPECT_EQ(nlohmann::json::parse(curl(server.address() + "health"))["status"], "ok");
  const auto answer =
      nlohmann::json::parse(curl(fmt::format(R"({} -d '{{"prompt":"Once","max_tokens":3}}' {})", json, to)));
  EXPECT_TRUE(answer["choices"][0]["text"].is_string());
  // Without this content type a page of another site could send the request.
  EXPECT_NE(curl(fmt::format(R"(-d '{{"prompt":"Once"}}' {})", to)).find("application/json"), std::string::npos);
  EXPECT_NE(curl(fmt::format(R"(-N {} -d '{{"prompt":"Once","max_tokens":3,"stream":true}}' {})", json, to))
                .find("data: [DONE]"),
            std::string::npos);
  // An answer that never ends is ended after the grace period.
  const std::string late = fmt::format(
      R"(sh -c 'curl -sS -N -m 60 {} -d "{{\"prompt\":\"Once\",\"max_tokens\":200000,\"logit_bias\":{{\"2\":-100}},\"stream\":true}}" {} > "{}" & echo $! > "{}"')",
      "-H \"Content-Type: application/json\"", to, folder / "late", folder / "pid");
  ASSERT_EQ(std::system(late.c_str()), 0);
  const auto written = [&] {
    std::ifstream file(folder / "late");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (int i = 0; i < 1000 && written().find("data: ") == std::string::npos; ++i) usleep(10000);
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult ended = server.end();
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.err.find("--grace"), std::string::npos) << ended.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_NE(written().find("\"error\""), std::string::npos);
}

CommandResult told(std::vector<std::string> more, const std::string& folder) {
  more.insert(more.begin(), "serve");
  return run_command(folder, more);
}

TEST(ServeCommand, WrongUseIsReported) {
  const TemporaryFolder folder;
  EXPECT_TRUE(says(told({}, folder.path()), Code::argument_missing, {}));
  EXPECT_TRUE(says(told({"nowhere"}, folder.path()), Code::run_not_found, {}));
  EXPECT_TRUE(says(told({"x", "--port", "70000"}, folder.path()), Code::option_invalid, {"--port", "70000"}));
  EXPECT_TRUE(says(told({"x", "--chat-template", "nice"}, folder.path()), Code::option_invalid, {"--chat-template"}));
  EXPECT_TRUE(says(told({"x", "--timeout", "0"}, folder.path()), Code::option_invalid, {"--timeout"}));
  EXPECT_TRUE(says(told({"x", "--host", "0.0.0.0"}, folder.path()), Code::address_unusable, {"--host", "0.0.0.0"}));
  EXPECT_TRUE(says(told({"x", "--api-keys", "none"}, folder.path()), Code::file_not_found, {}));
  folder.write("short", "abc\n");
  fs::permissions(folder / "short", fs::perms::owner_read);
  EXPECT_TRUE(says(told({"x", "--api-keys", "short"}, folder.path()), Code::api_key_invalid, {"1"}));
}

}  // namespace
}  // namespace some
