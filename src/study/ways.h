// Every way in which a model can learn while it is used, side by side on one stream (spec 7, 8): not at all, its keys
// by the published rules, a memory, one bias on its output, gradient steps on everything (dynamic evaluation). What
// each gains on the stream, what it loses on the original text, and how long it takes.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/rooms.h"
#include "study/read.h"

namespace some::study {

struct WaysOptions {
  std::string data;         // file, folder or builtin:DOMAIN
  std::string memory;       // a memory to begin from; it is not changed. Empty: an empty one
  MemoryChoices choices;    // of an empty one
  std::int64_t tokens = 0;  // of the stream; 0: all
  std::int64_t original_tokens = 20000;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
};

nlohmann::json compare_ways(OpenedRun& run, const WaysOptions& options);
std::string ways_page(const nlohmann::json& report, const OpenedRun& run);

}  // namespace some::study
