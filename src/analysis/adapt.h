// Adaptation (spec 7): a trained model reads a stream of text while its keys continue to learn, compared with a control
// whose keys are frozen.
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
  std::string data;                       // file, folder or builtin:DOMAIN
  std::string rules;                      // subset of "alpha,beta,delta"; empty: as the run was trained
  bool frozen = false;                    // read only with the frozen control
  std::int64_t window = 0;                // tokens per update; 0: one update per batch of train.batch pieces
  std::int64_t max_documents = 500;       // documents of the new text, stream and held-out part together; 0: all
  std::int64_t max_eval_documents = 200;  // documents of each data set evaluated before and after; 0: all
  std::string out;                        // new run folder for the adapted model; empty: not saved
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
};

// Losses over part of the stream: the tokens between two updates, or all of them.
struct StreamWindow {
  std::int64_t tokens = 0, bytes = 0;
  double nll = 0;  // sum over the tokens
  double loss() const;
  double bits_per_byte() const;
};
struct StreamReading {
  std::vector<StreamWindow> windows;
  StreamWindow all() const;
};

struct BeforeAfter {
  Evaluation before;
  std::optional<Evaluation> after;  // only if the keys learned
};

struct AdaptedLayer {
  int layer = 0;
  double moved_mean = 0, moved_most = 0;  // mean and largest distance of its keys from their initial positions
  UsageMeasures usage_before, usage_after;
  double births = 0, deaths = 0;
};

struct AdaptReport {
  std::string run, data;
  std::string rules;  // rules that moved the keys; "none" if they are frozen
  std::int64_t from_step = 0;
  std::int64_t window_tokens = 0;  // 0: windows of train.batch pieces
  std::int64_t window_pieces = 0;
  double uniform_loss = 0;  // loss of guessing: uniform distribution over the vocabulary
  std::int64_t documents = 0, tokens = 0, pieces = 0, held_out_pieces = 0, longest_piece = 0;
  BeforeAfter original, held_out;  // the run's validation text; the part of the new text that is not in the stream
  StreamReading frozen;            // the frozen control
  bool keys_identical = false;     // true if the control's keys are bit-identical afterwards
  // Only if the keys learned:
  std::optional<StreamReading> active;
  std::int64_t updates = 0;
  std::vector<AdaptedLayer> layers;
  // Only if the adapted model was saved:
  std::optional<std::string> out;
  std::int64_t out_step = 0;

  // In nats/token, only if the keys learned. A positive gain is an improvement; positive forgetting is a loss increase.
  double gain_on_stream() const { return frozen.all().loss() - active->all().loss(); }
  double gain_on_new() const { return held_out.before.loss - held_out.after->loss; }
  double forgotten() const { return original.after->loss - original.before.loss; }
};

// Runs the adaptation. Documents are cut into pieces of at most seq_len tokens (nothing is left out); the last fifth of
// the new text is held out. Every token of the stream is predicted before the keys learn from it. Windows shorter than
// seq_len are read with the attention cache, so that a piece continues across updates.
AdaptReport adapt_run(OpenedRun& run, const AdaptOptions& options);
nlohmann::json to_json(const AdaptReport& report);

// Returns the report as an HTML page.
std::string adapt_page(const AdaptReport& report, const OpenedRun& run);
// Returns an SVG with the report's loss over the stream and the gain from learning over the frozen control.
std::string plot_adaptation(const AdaptReport& report);

struct StreamSpan {  // consecutive windows of the stream, merged
  // `read`: tokens from the start of the stream to the end of the span; losses in nats/token
  double tokens = 0, read = 0, frozen = 0, active = 0;
};
// Merges the windows into at most `most` spans of equally many windows.
std::vector<StreamSpan> merge_windows(const AdaptReport& report, std::size_t most);

}  // namespace some
