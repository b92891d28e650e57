// Opens a page in Chromium with web/test/page.test.mjs, which documents what every page must satisfy.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "plot/assets.h"
#include "temporary_folder.h"

namespace some {

// Returns why no page can be opened here; empty if one can.
inline std::string no_browser() {
  if (embedded_assets().script.empty()) return "built with SOME_WEB=OFF: no charts to open in a browser";
  const char* own = std::getenv("SOME_CHROMIUM");
  const std::string chromium = own != nullptr ? own : "/usr/bin/chromium";
  if (!std::filesystem::exists(chromium)) return "needs " + chromium + ": not here";
  if (!std::filesystem::exists(SOME_BINARY_DIR "/web/node_modules/playwright-core"))
    return "needs playwright-core in the build folder: not here";
  if (std::system("command -v node >/dev/null") != 0) return "needs node: not here";
  return "";
}

// `expected`: see web/test/page.test.mjs. SOME_SCREENSHOTS=FOLDER saves pictures of the page.
inline void open_in_browser(TemporaryFolder& folder, const std::string& name, const std::string& html,
                            const nlohmann::json& expected) {
  const std::string page = folder.write(name + ".html", html);
  const std::string wanted = folder.write(name + ".json", expected.dump());
  const char* shots = std::getenv("SOME_SCREENSHOTS");
  const std::string command =
      fmt::format("node '{}/web/test/page.test.mjs' '{}' '{}' '{}' {} 2>&1", SOME_SOURCE_DIR, page, wanted,
                  SOME_BINARY_DIR "/web/node_modules", shots != nullptr ? shots : "");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace some
