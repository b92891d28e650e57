// A memory as a user has it: the store, what it was made of, and the model it belongs to (spec 8). It knows every text
// it has read and in which order, so that a slot's passage can be shown, and so that forgetting a text is exact: what
// is left is read again, as if the text had never been there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/settings.h"
#include "memory/store.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace some {

struct MemoryText {
  std::string name;                  // as the user called it
  std::vector<std::int32_t> tokens;  // those read so far
  std::string file = {};             // the hash of where its file was when it was last read; empty: none, or not known
};

// A stretch of a text read in one go: the targets [begin, end), in lessons of `window` tokens from `begin` on, with
// `together` of them in one pass of the model.
struct ReadSpan {
  std::int64_t text = 0, begin = 0, end = 0, window = 0, together = 0;
  bool operator==(const ReadSpan&) const = default;
};

// What made the memory what it is.
struct HistoryEntry {
  enum class Kind { read, merge, prune, refine } kind = Kind::read;
  ReadSpan reading;                  // read
  MemorySettings settings;           // merge: of the other memory
  std::vector<HistoryEntry> others;  // merge: its deeds; its texts are among this memory's
  std::int64_t min_count = 0;        // prune: slots below it were emptied
  std::int64_t rounds = 0;           // settle: how often, one after another
  bool operator==(const HistoryEntry&) const = default;
};

struct Memory {
  MemorySettings settings;  // window is never 0
  Store store;
  std::string model;      // the fingerprint of the model and tokenizer it belongs to
  std::string tokenizer;  // the hash of the tokenizer alone: enough to show what the memory holds in words
  std::string run;        // where that model was
  std::vector<MemoryText> texts;
  std::vector<HistoryEntry> history;
};

// Binds a memory to its model.
void bind_to_model(Memory& memory, Model& model, const Tokenizer& tokenizer, const std::string& run);
// Names a model: its parameters, keys, library and tokenizer.
std::string fingerprint(Model& model, const Tokenizer& tokenizer);
// bad_input unless the memory belongs to the model; `path` is where the memory came from.
void require_model(const Memory& memory, const std::string& path, Model& model, const Tokenizer& tokenizer);

// The window that a recipe's 0 stands for.
std::int64_t default_window(const ModelConfig& config);
Memory make_memory(Context& ctx, MemorySettings settings, const ModelConfig& config, const Tensor& mean);

// The slots that hold something.
std::int64_t slots_in_use(const Memory& memory);
// What the slots of one memory weigh in an answer: of each sharpness, the sum of share * weight (Λ · ω).
std::vector<double> mixture_weights(const MemorySettings& settings, const std::vector<double>& shares);

// Empties slots with fewer counts; returns how many.
std::int64_t prune(Context& ctx, Memory& memory, std::int64_t min_count);
// Takes in another memory of the same model: its slots meet those here as a lesson's queries do, nearest key of those
// that hold its main token, with all that they hold; those without a match fill empty slots, then take the place of the
// slots used least, where those are used less than they are themselves.
void merge(Context& ctx, Memory& memory, const Memory& other);

}  // namespace some
