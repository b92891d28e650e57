// Reads text into a memory (spec 8): losses in windows beside the frozen twin, what was gained, and what the memory
// costs on the text the model was trained for.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/contamination.h"
#include "memory/memory.h"
#include "memory/reader.h"
#include "runs/run.h"
#include "train/remember.h"

namespace some {

// Settings of a memory that the user spelled out; the others are the run's, or the memory's own.
struct MemoryChoices {
  std::optional<std::int64_t> slots, window, values, parts, look, rounds;
  std::optional<double> match, decay, share, counts;
  std::optional<bool> inherit;
  std::vector<double> sharpness;
  bool plain_cache = false;  // first in, first out
  bool documents = false;    // each by itself, as in training
};
// end: the token that ends a document in the run's texts; none where they have none.
MemorySettings chosen_settings(MemorySettings settings, const MemoryChoices& choices, std::optional<TokenId> end);
struct ReadOptions {
  std::vector<std::string> texts;  // files, folders, builtin:DOMAIN
  std::string memory;              // the file; empty: nothing is kept
  MemoryChoices choices;
  std::int64_t stories = 0;              // of each text; 0: all
  std::int64_t tokens = 0;               // of each text; 0: all
  std::int64_t original_tokens = 20000;  // of the run's validation text, to measure what the memory costs there; 0: not
  bool frozen = false;                   // the model alone, for comparison: no memory
  bool keep_frames = false;              // for the page: the store at moments on the way
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
  std::function<bool()> stop;  // asked after every pass; true: what was read is kept, the rest can be read later
};

// The store at one moment of reading, as far as the page shows it.
struct StoreFrame {
  std::int64_t tokens = 0;                      // read until then
  std::int64_t births = 0, hits = 0, lost = 0;  // since the frame before
  std::vector<double> keys;                     // [shown slots, d]
  std::vector<double> counts;
  std::vector<std::int64_t> born, hit;
};
// What the report does not hold but the page wants.
struct ReadMemory {
  std::optional<Memory> memory;
  std::vector<std::int64_t> shown;  // slots
  std::vector<StoreFrame> frames;
};

// Loss of the model alone and with a memory that does not learn.
struct TwoLosses {
  std::int64_t tokens = 0;
  double frozen = 0, mixed = 0;  // nats a token
};

struct TextReading {
  std::string text;
  std::int64_t from = 1, of = 0;  // the first token that was read now, and how many there are
  std::vector<WindowResult> windows;
  double seconds = 0;
  WindowResult all() const;
};

struct MemoryAfterReading {
  std::string file;  // empty: not kept
  MemorySettings settings;
  std::int64_t slots_in_use = 0;
  std::int64_t refinement_passes = 0;  // since the last text was read
  std::vector<double> say;             // what its slots weigh in an answer, of each sharpness
};

struct ReadReport {
  std::string run;
  std::int64_t step = 0, window = 0;
  std::vector<TextReading> texts;
  double seconds = 0, refinement_seconds = 0;
  bool stopped = false;
  std::optional<MemoryAfterReading> memory;  // none: the model read alone
  std::optional<TwoLosses> original;         // on the run's validation text, where that was asked for
  DocumentsKnown original_known;             // of that text
  WindowResult all() const;
};

// What a sum over a window's tokens is for each of them.
double per_token(double sum, std::int64_t tokens);

ReadReport read_texts(OpenedRun& run, const ReadOptions& options, ReadMemory* kept = nullptr);
nlohmann::json to_json(const ReadReport& report);

// What a user wrote becomes a text of the memory, named by its first words.
void learn_written(OpenedRun& run, Memory& memory, const std::string& text);

// Of the beginning of a text.
TwoLosses losses_with(Model& model, Memory& memory, const std::vector<std::int32_t>& tokens);

// The page of a reading: losses, and the store while it read.
std::string read_page(const ReadReport& report, const ReadMemory& kept, const OpenedRun& run);

}  // namespace some
