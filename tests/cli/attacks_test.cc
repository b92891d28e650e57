// Names, titles, settings, prompts and texts that are attacks on the pages that show them.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "browser.h"
#include "cli/run_command.h"

namespace some {
namespace {

namespace fs = std::filesystem;

const std::string tiny = std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml";
// As a name of a folder, which cannot contain a slash.
constexpr const char* name = "<img src=x onerror=hacked()>";

std::string attacks() {
  std::string out;
  for (int i = 0; i < 60; ++i)
    out +=
        "<img src=x onerror=hacked()> \"><svg onload=hacked()> </script><script>hacked()</script> '><b id=hacked>bold"
        "</b> <!-- <a href=\"javascript:hacked()\">press</a>\n<|endoftext|>\n";
  return out;
}

TEST(Pages, ShowAttacksAsText) {
  if (const std::string why = no_browser(); !why.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  const std::string text = folder.write("<svg onload=hacked()>.txt", attacks());
  const std::string run = std::string("runs/") + name;
  const auto command = [&](const std::vector<std::string>& words) {
    const CommandResult result = run_command(folder.path(), words);
    EXPECT_EQ(result.code, 0) << words[0] << ": " << result.err;
  };
  const std::string title = R"(title="</script><script>hacked()</script><img src=x onerror=hacked()>")";
  for (const std::string& to : {run, std::string("runs/other")})
    command({"train", tiny, "--out", to, title, "data.train=" + text, "data.vocab=300", "train.max_steps=30",
             "train.save_keys_every=10", "train.threads=1"});
  std::vector<std::string> pages;
  const auto page = [&](std::vector<std::string> words) {
    pages.push_back(folder / fmt::format("page-{}.html", pages.size()));
    words.push_back(pages.back());
    command(words);
  };
  page({"read", run, text, "--slots", "64", "--threads", "1", "--html"});
  page({"trace", run, "--text", "<img src=x onerror=hacked()></script><script>hacked()</script>", "--html"});
  page({"trace", run, "--prompt", "<img src=x onerror=hacked()>", "--max-tokens", "30", "--temperature", "0",
        "--memory", run + "/memory.safetensors", "--html"});
  page({"guilds", run, "--html"});
  page({"compare", run, "runs/other", "--html"});
  page({"adapt", run, "--data", text, "--window", "20", "--html"});
  command({"inspect", run});
  for (const auto& entry : fs::directory_iterator(folder / run + "/inspect"))
    if (entry.path().extension() == ".html") pages.push_back(entry.path());
  // A series of runs, and its report.
  folder.write("recipes/<b id=hacked>.toml", fmt::format("base = \"{}\"\n[train]\nmax_steps = 2\nthreads = 1\n", tiny));
  folder.write("recipes/index.toml",
               "[[series]]\nname = \"series-x\"\ntitle = \"<img src=x onerror=hacked()>\"\nabout = \"</script><script>"
               "hacked()</script>\"\nrecipes = [\"<b id=hacked>\"]\n");
  command({"lab", "run", "series-x", "--recipes", "recipes", "--runs", "lab", "--threads", "1"});
  page({"lab", "report", "series-x", "--recipes", "recipes", "--runs", "lab", "-o"});

  RunningCommand board(folder.path(), {"board", "runs", "--port", "0", "--json", "--threads", "1"});
  RunningCommand server(folder.path(), {"serve", run, "--port", "0", "--json", "--threads", "1"});
  ASSERT_TRUE(board.wait_for_output());
  ASSERT_TRUE(server.wait_for_output());
  const auto address = [](const RunningCommand& one) {
    return nlohmann::json::parse(one.output()).at("address").get<std::string>();
  };
  std::string line = fmt::format("node '{}/web/test/attacks.test.mjs' '{}' '{}' '{}'", SOME_SOURCE_DIR, address(board),
                                 address(server), SOME_BINARY_DIR "/web/node_modules");
  for (const std::string& one : pages) line += fmt::format(" \"{}\"", one);
  EXPECT_EQ(std::system((line + " 2>&1").c_str()), 0) << line;
  for (RunningCommand* one : {&board, &server}) {
    one->signal(SIGTERM);
    EXPECT_EQ(one->finish().code, 0);
  }
}

}  // namespace
}  // namespace some
