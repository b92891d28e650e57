// Memories of a run (spec 8): creates, opens and updates them. The memory requested in a recipe's [memory] table is
// built from the training text when the run is finished, no matter how it was trained.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "runs/run.h"

namespace some {

struct TrainHooks;
struct TrainResult;

// Returns the memory settings of the run's recipe; 4096 slots if the recipe sets none.
MemorySettings default_memory_settings(const OpenedRun& run);
// Returns the token that ends a document in the run's texts; empty if there is none.
std::optional<TokenId> document_end(const OpenedRun& run);
// Returns the tokens of a text as a memory reads them: its documents one after another, each with its end token.
std::vector<std::int32_t> stream_of(const TokenData& data, std::int64_t most);
// Returns an empty memory for a run; its mean is computed over the run's training text.
Memory new_memory(OpenedRun& run, const MemorySettings& settings);
// Loads a memory bound to the run. Throws bad_input if it belongs to another model.
Memory open_memory(OpenedRun& run, const std::string& path);
// The same for a memory that will be updated and saved: also throws bad_input if that would round its content.
Memory open_memory_for_update(OpenedRun& run, const std::string& path);
// The same, or a new memory if the file does not exist yet.
Memory open_or_create_memory(OpenedRun& run, const std::string& path, const MemorySettings& settings_of_new);

using ReadingProgress = std::function<void(const std::string& what, std::int64_t done, std::int64_t total)>;
// Runs the remaining refinement passes; `save` is called after each. Returns false if `stop` returned true.
bool refine_all(Model& model, Memory& memory, const ReadingProgress& progress, const std::function<bool()>& stop,
                const std::function<void()>& save);

struct TrainingMemoryOptions {
  std::string memory;       // file, created or continued
  std::int64_t tokens = 0;  // of the training text; 0: all
  bool evaluate = true;     // measure the loss with memory on the validation text
  bool anew = false;        // replace an existing file instead of continuing it
  ReadingProgress progress;
  std::function<bool()> stop;  // called after every pass; true: keeps what was read, the rest can be read later
};
struct TrainingMemoryReport {
  std::string file;
  std::int64_t tokens = 0, slots = 0, slots_in_use = 0;
  double seconds = 0;
  bool stopped = false;
  double loss_without = 0, loss = 0;  // on the validation text, unless stopped
};
// Builds or continues a memory of the run's own training text.
TrainingMemoryReport build_training_memory(OpenedRun& run, const TrainingMemoryOptions& options);
nlohmann::json to_json(const TrainingMemoryReport& report);

// Called after training: builds the memory requested by the recipe of a finished run, as memory.safetensors in its
// folder, or continues an interrupted call. A memory of the weights before the run was extended is rebuilt; if it holds
// other texts than the training text, its file is renamed instead of replaced. Runs on rank 0 only. Reports in
// result.memory; if a signal stopped it, result.stopped_by is its number.
void build_requested_memory(TrainResult& result, const std::string& folder, const std::vector<std::string>& changes,
                            const TrainHooks& hooks, bool evaluate = true);

}  // namespace some
