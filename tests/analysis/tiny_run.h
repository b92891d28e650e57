// A short training run for tests of analyses, and a simple well-formedness check for XML.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "runs/run.h"
#include "temporary_folder.h"
#include "train/trainer.h"

namespace some {

// Trains recipes/tiny.toml, shortened, into folder/run.
inline std::string train_tiny(const TemporaryFolder& folder, std::vector<std::string> overrides = {}) {
  const std::vector<std::string> shorter{
      "train.max_steps=6", "train.save_keys_every=2", "data.train_documents=60", "data.valid_documents=12",
      "data.vocab=320",    "train.device=cpu",        "some.decay_warmup=2",     "train.warmup_steps=1"};
  overrides.insert(overrides.begin(), shorter.begin(), shorter.end());
  start_run(load_recipe(SOME_SOURCE_DIR "/recipes/tiny.toml", overrides), folder / "run", {});
  return folder / "run";
}

inline OpenedRun open_tiny(const std::string& folder) { return open_run(folder, {"latest", on_cpu, {}, {}}); }

// Returns an empty string if the text is well-formed XML (elements closed in order, attributes quoted, no stray < or
// &), otherwise the problem.
inline std::string xml_problem(const std::string& text) {
  std::vector<std::string> open;
  const auto where = [&](std::size_t at) { return " at byte " + std::to_string(at) + ": " + text.substr(at, 60); };
  bool root = false;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '&') {
      const std::size_t end = text.find(';', i);
      if (end == std::string::npos || end - i > 8) return "bare ampersand" + where(i);
      i = end + 1;
    } else if (text[i] != '<') {
      if (open.empty() && !std::isspace(static_cast<unsigned char>(text[i]))) return "text outside the root" + where(i);
      ++i;
    } else if (text.compare(i, 2, "<?") == 0) {
      i = text.find("?>", i) + 2;
    } else if (text.compare(i, 2, "</") == 0) {
      const std::size_t end = text.find('>', i);
      const std::string name = text.substr(i + 2, end - i - 2);
      if (open.empty() || open.back() != name) return "closes " + name + " that is not open" + where(i);
      open.pop_back();
      i = end + 1;
    } else {
      std::size_t at = i + 1;
      std::string name;
      while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == ':'))
        name += text[at++];
      if (name.empty()) return "stray <" + where(i);
      for (;;) {
        while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
        if (at >= text.size()) return "tag without an end" + where(i);
        if (text[at] == '>' || text[at] == '/') break;
        const std::size_t equal = text.find('=', at);
        if (equal == std::string::npos || equal + 1 >= text.size() || text[equal + 1] != '"')
          return "attribute without a value" + where(at);
        const std::size_t close = text.find('"', equal + 2);
        if (close == std::string::npos) return "attribute without an end" + where(at);
        const std::string value = text.substr(equal + 2, close - equal - 2);
        if (value.find('<') != std::string::npos) return "< in an attribute" + where(at);
        if (value.find("nan") != std::string::npos || value.find("inf") != std::string::npos)
          return "a number that is none" + where(at);
        at = close + 1;
      }
      if (open.empty()) {
        if (root) return "second root" + where(i);
        root = true;
      }
      if (text[at] == '/') {
        if (at + 1 >= text.size() || text[at + 1] != '>') return "stray slash" + where(at);
        i = at + 2;
      } else {
        open.push_back(name);
        i = at + 1;
      }
    }
  }
  if (!open.empty()) return open.back() + " is never closed";
  return root ? "" : "no element";
}

}  // namespace some
