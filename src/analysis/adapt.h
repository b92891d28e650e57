// Adaptation (spec 7): a trained model reads a stream of text while its keys go on learning, beside a twin whose keys
// are frozen.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "evaluation/evaluate.h"
#include "evaluation/layer_measures.h"
#include "runs/run.h"

namespace some {

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

// Some of the stream: the tokens from one update to the next, or all of them.
struct StreamWindow {
  std::int64_t tokens = 0, bytes = 0;
  double nll = 0;  // the sum over the tokens
  double loss() const;
  double bits_per_byte() const;
};
struct StreamReading {
  std::vector<StreamWindow> windows;
  StreamWindow all() const;
};

struct BeforeAfter {
  Evaluation before;
  std::optional<Evaluation> after;  // where the keys learnt
};

struct AdaptedLayer {
  int layer = 0;
  double moved_mean = 0, moved_most = 0;  // how far its keys are from where they began
  UsageMeasures usage_before, usage_after;
  double births = 0, deaths = 0;
};

struct AdaptReport {
  std::string run, data;
  std::string rules;  // that moved the keys; "none" where they are frozen
  std::int64_t from_step = 0;
  std::int64_t window_tokens = 0;  // 0: windows of as many pieces as stories in training
  std::int64_t window_pieces = 0;
  double uniform_loss = 0;  // of guessing: every token of the vocabulary is as likely as any other
  std::int64_t stories = 0, tokens = 0, pieces = 0, held_out_pieces = 0, longest_piece = 0;
  BeforeAfter original, held_out;  // the run's validation text; the part of the new text that is not in the stream
  StreamReading frozen;            // the twin
  bool keys_identical = false;     // the twin's keys are the same to the bit afterwards
  // Where the keys learnt:
  std::optional<StreamReading> active;
  std::int64_t updates = 0;
  std::vector<AdaptedLayer> layers;
  // Where the adapted model was saved:
  std::optional<std::string> out;
  std::int64_t out_step = 0;

  // In nats a token, where the keys learnt. Positive is good for a gain and bad for forgetting.
  double gain_on_stream() const { return frozen.all().loss() - active->all().loss(); }
  double gain_on_new() const { return held_out.before.loss - held_out.after->loss; }
  double forgotten() const { return original.after->loss - original.before.loss; }
};

// Stories are cut into pieces of at most seq_len tokens (nothing is left out); the last fifth of the new text is held
// out. Every token of the stream is predicted before the keys learn from it. Windows shorter than seq_len are read with
// the attention cache, so that a piece is read on across updates.
AdaptReport adapt_run(OpenedRun& run, const AdaptOptions& options);
nlohmann::json to_json(const AdaptReport& report);

// The report as a page of its own.
std::string adapt_page(const AdaptReport& report, const OpenedRun& run);
// The report's loss over the stream as SVG, and what learning gained against the frozen twin.
std::string adapt_picture(const AdaptReport& report);

struct StreamSpan {                                     // some windows of the stream taken together
  double tokens = 0, read = 0, frozen = 0, active = 0;  // `read`: from the start to its end; losses in nats a token
};
// At most `most` spans of equally many windows.
std::vector<StreamSpan> spans_of(const AdaptReport& report, std::size_t most);

}  // namespace some
