// Reads a text through a model and its memory, window after window (spec 8): all positions of a window are predicted
// with the store as it was before, then the store learns from them. The model itself stays as it is, so its passes do
// not wait for lessons: several windows go through it at once, on several ranks where there are some, on a GPU beside
// the lessons of those before them, and what it gives alone, the frozen twin, comes along.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/memory.h"
#include "memory/mixture.h"

namespace some {

// What came of one window. Sums of losses in nats.
struct WindowResult {
  std::int64_t tokens = 0;
  double frozen = 0, mixed = 0;                 // the model alone; with its memory (the same where there is none)
  std::int64_t births = 0, hits = 0, lost = 0;  // lost: births that took a slot in use
};

// What became of each position. A reader that does not learn tells the nearest slot that holds the target.
struct SlotAssignment {
  std::int32_t slot = no_slot;
  bool born = false;
};

// Told after every pass; false: stop here. It must leave the model as it is, which may be computing the next pass.
using PassObserver =
    std::function<bool(std::span<const WindowResult> windows, std::span<const SlotAssignment> assignments)>;

// Adds to a batch, as a sequence of its own, the rows that predict the targets [first, last) of a text, with up to
// `context` tokens before them that predict nothing here. With a border each document is a sequence of its own, and no
// context reaches back over one. Returns the first row that predicts; the others follow it without a gap.
std::int64_t add_window(Batch& batch, std::span<const std::int32_t> tokens, std::int64_t first, std::int64_t last,
                        std::int64_t context, std::optional<std::int32_t> border = {});

// How many windows go through the model at once.
std::int64_t windows_at_once(const Context& ctx, const ModelConfig& config);

class MemoryReader {
 public:
  // memory: null for the model alone, which then reads documents by themselves if a border is given. learn: false
  // leaves the store as it is; the weights of the mixture then go on from the memory's own, in a copy that the reader
  // keeps.
  MemoryReader(Model& model, Memory* memory, bool learn, std::optional<std::int32_t> border = {});

  // The targets [begin, end) of a text, begin >= 1, in windows of `stretch.window`. Returns where it ended: `end`, or
  // earlier, at the end of a pass, where it was told to stop. The ranks of the model's context read together: each has
  // the whole memory, the same as one rank would have to the bit, and one that is told to stop stops all.
  std::int64_t read(std::span<const std::int32_t> tokens, const ReadSpan& span_read, const PassObserver& observe);

  // The same text, whose positions move into their homes in another store (spec 8, settling). False where `observe`,
  // told how many tokens have come in, said to stop.
  bool reassign(std::span<const std::int32_t> tokens, const ReadSpan& span_read, Store& store,
                const std::function<bool(std::int64_t)>& observe);

  std::vector<double> shares() const;  // the weights of the mixture now

 private:
  struct Pass;
  struct Answer;
  struct Round;
  // What is done with an answer. It calls `given` once, before it waits for the device, at best when the device has
  // been given all that there is to do: the model's next pass then comes beside it.
  using Work = std::function<bool(const Answer&, const std::function<void()>& given)>;
  std::int64_t for_each_pass(std::span<const std::int32_t> tokens, const ReadSpan& span_read, const Work& work);
  Round round_from(std::span<const std::int32_t> tokens, const ReadSpan& span_read, std::int64_t at);
  std::vector<Answer> run_passes(const std::vector<Pass>& round);
  std::pair<std::vector<WindowResult>, std::vector<SlotAssignment>> learn_pass(const ReadSpan& span_read,
                                                                               const Answer& answer,
                                                                               const std::function<void()>& given);
  Pass pass_of(std::span<const std::int32_t> tokens, const ReadSpan& span_read, std::int64_t at) const;
  Model& model_;
  Memory* memory_;
  bool learn_;
  std::optional<std::int32_t> border_;
  Tensor shares_;  // of a reader that does not learn
  Mixing mixing_;
};

// A text becomes known to the memory and is read, or read on from where it was left; `tokens` begins with what was read
// of it before (bad_input otherwise). Only the targets below `end`. Returns how far it came.
std::int64_t learn_text(Model& model, Memory& memory, const std::string& name, std::span<const std::int32_t> tokens,
                        std::int64_t end, const PassObserver& observe);
// The same for a text that the memory has, by its number.
std::int64_t learn_text(Model& model, Memory& memory, std::int64_t text, std::span<const std::int32_t> tokens,
                        std::int64_t end, const PassObserver& observe);

// One round of settling (spec 8): all that the memory has read is read again, and its slots become what comes to them.
// False where `observe` said to stop: the memory is then as it was.
bool refine(Model& model, Memory& memory, const std::function<bool(std::int64_t done, std::int64_t of)>& observe);
// Rounds since the last text was read.
std::int64_t refinement_passes(const Memory& memory);

// The average state over a text, for a memory's `mean`; at most `most` tokens of it. With a border each document is
// read by itself.
Tensor mean_state(Model& model, std::span<const std::int32_t> tokens, std::int64_t most,
                  std::optional<std::int32_t> border = {});

// The memory as it would be had it never read the text of this number: everything else is read again, in its order.
// progress is called with (tokens done, of how many).
Memory without_text(Model& model, const Memory& memory, std::int64_t text,
                    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace some
