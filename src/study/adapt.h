// Adaptation (spec 7): a trained model reads a stream of text while its keys go on learning, beside a twin whose keys
// are frozen.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rooms.h"
#include "train/run.h"

namespace some::study {

struct AdaptOptions {
  std::string data;         // file, folder or builtin:DOMAIN
  std::string rules;        // "alpha,beta,delta" in any choice; empty: as the run was trained
  bool frozen = false;      // only the twin
  std::int64_t window = 0;  // tokens from one update to the next; 0: batches of as many pieces as stories in training
  std::int64_t stories = 500;       // of the new text, stream and held-out part together; 0: all
  std::int64_t eval_stories = 200;  // of each data set that is measured before and after; 0: all
  std::string out;                  // a new run folder for the adapted model; empty: none
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
};

// Stories are cut into pieces of at most seq_len tokens (nothing is left out); the last fifth of the new text is held
// out. Every token of the stream is predicted before the keys learn from it. Windows shorter than seq_len are read with
// the attention cache, so that a piece is read on across updates.
nlohmann::json adapt_run(OpenedRun& run, const AdaptOptions& options);

// The report as a page of its own.
std::string adapt_page(const nlohmann::json& report, const OpenedRun& run);
// The report's loss over the stream as SVG, and what learning gained against the frozen twin.
std::string adapt_picture(const nlohmann::json& report);

struct StreamSpan {                                     // some windows of the stream taken together
  double tokens = 0, read = 0, frozen = 0, active = 0;  // `read`: from the start to its end; losses in nats a token
};
// At most `most` spans of equally many windows.
std::vector<StreamSpan> spans_of(const nlohmann::json& report, std::size_t most);

}  // namespace some::study
