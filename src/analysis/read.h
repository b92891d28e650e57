// Reads text into a memory (spec 8). Reports losses per window compared with the frozen model, the gain, and the change
// of loss on the run's validation text.
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

// Memory settings passed by the user; the rest comes from the run or from the existing memory.
struct MemoryOverrides {
  std::optional<std::int64_t> slots, window, values, partitions, nprobe, refinement_passes, contexts, context_entries;
  std::optional<double> threshold, decay, switch_rate, counts;
  std::optional<bool> merge_evicted;
  std::vector<double> beta;
  bool plain_cache = false;  // first in, first out
  bool documents = false;    // each document separately, as in training
};
// Applies the choices. end: the token that ends a document in the run's texts; none if they have none.
MemorySettings apply_memory_overrides(MemorySettings settings, const MemoryOverrides& choices,
                                      std::optional<TokenId> end);
struct ReadOptions {
  std::vector<std::string> texts;  // files, folders, builtin:DOMAIN
  std::string memory;              // the memory's file; empty: not saved
  MemoryOverrides choices;
  std::int64_t max_documents = 0;  // documents per text; 0: all
  std::int64_t tokens = 0;         // tokens per text; 0: all
  // of the run's validation text, to measure the loss increase there; 0: not measured
  std::int64_t original_tokens = 20000;
  bool frozen = false;       // only the model without a memory, for comparison
  bool keep_frames = false;  // for the page: keep snapshots of the store
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
  std::function<bool()> stop;  // called after every pass; true: stop and keep what was read, the rest can be read later
};

// Snapshot of the store during reading, restricted to what the page shows.
struct StoreFrame {
  std::int64_t tokens = 0;                      // tokens read up to the snapshot
  std::int64_t births = 0, hits = 0, lost = 0;  // since the previous snapshot
  std::vector<double> keys;                     // [shown slots, d]
  std::vector<double> counts;
  std::vector<std::int64_t> born, hit;
};
// Data that the page needs in addition to the report.
struct ReadMemory {
  std::optional<Memory> memory;
  std::vector<std::int64_t> shown;  // slots shown
  std::vector<StoreFrame> frames;
};

// Loss of the model without and with a memory that does not learn.
struct LossPair {
  std::int64_t tokens = 0;
  double frozen = 0, mixed = 0;  // nats/token
};

struct TextReading {
  std::string text;
  std::int64_t from = 1, of = 0;  // the first token read in this call, and the number of tokens
  std::vector<WindowResult> windows;
  double seconds = 0;
  WindowResult all() const;
};

struct MemoryAfterReading {
  std::string file;  // empty: not saved
  MemorySettings settings;
  std::int64_t slots_in_use = 0;
  std::int64_t refinement_passes = 0;  // after the last text
  std::vector<double> weights;         // mixture weight of the slots' predictions for each inverse temperature
  struct Contexts {
    std::int64_t entries = 0, evicted = 0;
    std::vector<double> weights;  // mixture weight of each order, then of the single follower
  };
  std::optional<Contexts> contexts;  // of a memory with contexts
};

struct ReadReport {
  std::string run;
  std::int64_t step = 0, window = 0;
  std::vector<TextReading> texts;
  double seconds = 0, refinement_seconds = 0;
  bool stopped = false;
  std::optional<MemoryAfterReading> memory;  // none: the model without a memory
  std::optional<LossPair> original;          // on the run's validation text, if requested
  DocumentOverlap original_known;            // overlap with that text
  WindowResult all() const;
};

// Divides a sum over a window's tokens by their number; 0 for an empty window.
double per_token(double sum, std::int64_t tokens);

ReadReport read_texts(OpenedRun& run, const ReadOptions& options, ReadMemory* kept = nullptr);
nlohmann::json to_json(const ReadReport& report);

// Adds text entered by the user to the memory, named by its first words.
void learn_typed_text(OpenedRun& run, Memory& memory, const std::string& text);

// Measures both losses on `tokens`, the beginning of a text.
LossPair measure_losses(Model& model, Memory& memory, const std::vector<std::int32_t>& tokens);

// Returns the page of a reading: losses, and the store over time.
std::string read_page(const ReadReport& report, const ReadMemory& kept, const OpenedRun& run);

}  // namespace some
