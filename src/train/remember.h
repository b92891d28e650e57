// Memories of a run (spec 8): made, opened, and taught. The one that a recipe asks for in [memory] is built of the
// training text when the run is finished, whoever trained it.
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

// What the run's recipe says of memories; 4096 slots where it says nothing.
MemorySettings usual_settings(const OpenedRun& run);
// The token that ends a document in the run's texts; none where they have none.
std::optional<TokenId> document_end(const OpenedRun& run);
// The tokens of a text as a memory reads them: its documents one after another, each with its end.
std::vector<std::int32_t> stream_of(const TokenData& data, std::int64_t most);
// An empty memory for a run: its mean is taken over the run's training text.
Memory new_memory(OpenedRun& run, const MemorySettings& settings);
// From a file, bound to the run: bad_input when it belongs to another model.
Memory open_memory(OpenedRun& run, const std::string& path);
// The same for one that goes on learning and is then written: also bad_input where that would round what it knows.
Memory open_to_learn(OpenedRun& run, const std::string& path);
// The same, or a new one where there is none.
Memory memory_to_teach(OpenedRun& run, const std::string& path, const MemorySettings& settings_of_new);

using ReadingProgress = std::function<void(const std::string& what, std::int64_t done, std::int64_t total)>;
// The rounds of settling that are still to come; `save` is called after each. False where `stop` returned true.
bool refine_all(Model& model, Memory& memory, const ReadingProgress& progress, const std::function<bool()>& stop,
                const std::function<void()>& save);

struct RememberOptions {
  std::string memory;       // the file, made or read on
  std::int64_t tokens = 0;  // of the training text; 0: all
  bool evaluate = true;     // what it gains on the validation text
  ReadingProgress progress;
  std::function<bool()> stop;  // asked after every pass; true: what was read is kept, the rest can be read later
};
struct TrainingRemembered {
  std::string file;
  std::int64_t tokens = 0, slots = 0, slots_in_use = 0;
  double seconds = 0;
  bool stopped = false;
  double loss_without = 0, loss = 0;  // on the validation text, where it was not stopped
};
// A memory of the run's own training text.
TrainingRemembered remember_training(OpenedRun& run, const RememberOptions& options);
nlohmann::json to_json(const TrainingRemembered& report);

// After training: builds the memory that the recipe of a finished run asks for, in memory.safetensors of its folder, or
// reads on where an earlier call was stopped. Only rank 0 does. result.memory reports it; where a signal stopped it,
// result.stopped_by is its number.
void remember_result(TrainResult& result, const std::string& folder, const std::vector<std::string>& changes,
                     const TrainHooks& hooks, bool evaluate = true);

}  // namespace some
