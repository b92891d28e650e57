// Reads a text through a model and its memory, window by window (spec 8): all positions of a window are predicted with
// the store as it was before, then the store is updated from them. The model does not change, so its forward passes
// need not wait for updates: several windows go through the model at once, on several ranks if there are any, and on a
// GPU concurrently with the updates of earlier windows. The losses of the model without memory (the frozen control) are
// also returned.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/memory.h"
#include "memory/mixture.h"

namespace some {

// Result of one window. Losses are sums in nats.
struct WindowResult {
  std::int64_t tokens = 0;
  double frozen = 0, mixed = 0;                 // frozen: model only; mixed: with its memory (equal if there is none)
  std::int64_t births = 0, hits = 0, lost = 0;  // births: insertions; lost: insertions that replaced a slot in use
};

// Result of one position. A reader that does not learn reports the nearest slot that holds the target.
struct SlotAssignment {
  std::int32_t slot = no_slot;
  bool born = false;
};

// Called after every pass; returns false to stop. Must not change the model, which may be computing the next pass.
using PassObserver =
    std::function<bool(std::span<const WindowResult> windows, std::span<const SlotAssignment> assignments)>;

// Appends a sequence to a batch: the rows that predict the targets [first, last) of a text, preceded by up to `context`
// tokens whose rows predict nothing. With a border token each document is its own sequence, and no context crosses a
// document border. Returns the first predicting row; the others follow without a gap.
std::int64_t add_window(Batch& batch, std::span<const std::int32_t> tokens, std::int64_t first, std::int64_t last,
                        std::int64_t context, std::optional<std::int32_t> border = {});

// Returns the number of windows per forward pass of the model.
std::int64_t windows_at_once(const Context& ctx, const ModelConfig& config);

class MemoryReader {
 public:
  // memory: null for the model only, which then reads each document separately if a border token is set. learn: false
  // leaves the store unchanged; the mixture weights then start from the memory's and are updated in a copy owned by the
  // reader.
  MemoryReader(Model& model, Memory* memory, bool learn, std::optional<std::int32_t> border = {});

  // Reads the targets [begin, end) of a text, begin >= 1, in windows of `span_read.window`. Returns the end of what was
  // read: `end`, or the end of an earlier pass if `observe` stopped it. All ranks of the model's context call it
  // together. Each holds the whole memory, bit-identical to that of a single rank; if one rank stops, all stop.
  std::int64_t read(std::span<const std::int32_t> tokens, const ReadSpan& span_read, const PassObserver& observe);

  // Reads the same text and inserts each position into its assigned slot of another store (spec 8, "Refinement").
  // `observe` is called with the number of tokens processed; returns false if it stopped the pass.
  bool reassign(std::span<const std::int32_t> tokens, const ReadSpan& span_read, Store& store,
                const std::function<bool(std::int64_t)>& observe);

  std::vector<double> shares() const;  // current mixture weights
  // The same for a memory with contexts.
  const ContextMixture& mixture() const { return learn_ ? memory_->mixture : mixture_; }

 private:
  struct Pass;
  struct Answer;
  struct Round;
  // Processes the result of a pass on a context. Calls `given` exactly once, before it waits for the device and
  // preferably when all its work is queued: the model's next pass then runs concurrently with that work.
  using Work = std::function<bool(Context& ctx, const Answer&, const std::function<void()>& given)>;
  std::int64_t for_each_pass(std::span<const std::int32_t> tokens, const ReadSpan& span_read, const Work& work);
  Round round_from(Context& ctx, std::span<const std::int32_t> tokens, const ReadSpan& span_read, std::int64_t at);
  std::vector<Answer> run_passes(Context& ctx, const std::vector<Pass>& round);
  std::pair<std::vector<WindowResult>, std::vector<SlotAssignment>> learn_pass(Context& ctx,
                                                                               std::span<const std::int32_t> tokens,
                                                                               const ReadSpan& span_read,
                                                                               const Answer& answer,
                                                                               const std::function<void()>& given);
  std::vector<double> mix_contexts(std::span<const std::int32_t> tokens, const ReadSpan& span_read, const Pass& pass,
                                   const std::vector<double>& alone, std::span<const Matches> found);
  Pass pass_of(std::span<const std::int32_t> tokens, const ReadSpan& span_read, std::int64_t at) const;
  Model& model_;
  Memory* memory_;
  bool learn_;
  std::optional<std::int32_t> border_;
  Tensor shares_;           // only for a reader that does not learn
  ContextMixture mixture_;  // only for a reader that does not learn
  Mixing mixing_;
};

// Registers a text with the memory and reads it, or continues reading where it stopped. `tokens` must begin with the
// tokens read before (otherwise bad_input). Reads only the targets below `end`. Returns the end of what was read.
std::int64_t learn_text(Model& model, Memory& memory, const std::string& name, std::span<const std::int32_t> tokens,
                        std::int64_t end, const PassObserver& observe);
// The same for a text already registered, by its index.
std::int64_t learn_text(Model& model, Memory& memory, std::int64_t text, std::span<const std::int32_t> tokens,
                        std::int64_t end, const PassObserver& observe);

// Runs one pass of k-means refinement (spec 8, "Refinement"): everything the memory has read is read again, and each
// slot is rebuilt from the positions assigned to it. Returns false if `observe` stopped it; the memory is then
// unchanged.
bool refine(Model& model, Memory& memory, const std::function<bool(std::int64_t done, std::int64_t of)>& observe);
// Returns the number of refinement passes since the last text was read.
std::int64_t refinement_passes(const Memory& memory);

// Returns the mean hidden state over at most the first `most` tokens of a text, for a memory's `mean`. With a border
// token each document is read separately.
Tensor mean_state(Model& model, std::span<const std::int32_t> tokens, std::int64_t most,
                  std::optional<std::int32_t> border = {});

// Returns the memory as if it had never read the text with this index: everything else is read again, in order.
// progress is called with (tokens done, total tokens).
Memory memory_without_text(Model& model, const Memory& memory, std::int64_t text,
                           const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace some
