// Needle in a haystack: plants facts in a text, lets a memory read it, and queries them. Every method chooses among the
// same answers, so chance is known; the counter, which uses no model, is the baseline.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/needle/facts.h"
#include "analysis/read.h"
#include "runs/run.h"

namespace some {

// model: reads only the question. window: also reads as much of the end of the text as fits before it. counter:
// Kneser-Ney counts without a model. The other methods are memories of the model with slots, contexts, or both.
enum class NeedleMethod { model, window, counter, states, contexts, both };
inline constexpr std::array needle_methods{NeedleMethod::model,  NeedleMethod::window,   NeedleMethod::counter,
                                           NeedleMethod::states, NeedleMethod::contexts, NeedleMethod::both};
const char* name_of(NeedleMethod method);  // "slots and contexts"

struct NeedleOptions {
  std::string data;                                               // the text; empty: the run's validation text
  std::string other_data = "builtin:recipes";                     // read afterwards
  std::vector<std::int32_t> tokens = {2000, 8000, 32000, 64000};  // lengths of the text, facts included
  std::vector<std::int32_t> others = {10, 100, 1000};  // documents of the other text, after the shortest text
  std::int64_t facts = 32, repeats = 1;
  std::uint64_t seed = 0;  // seed of the first repeat; the others use the following ones
  MemoryOverrides choices;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
  std::function<bool()> stop;  // true: stop and report what was measured
};

// Results of one form of question.
struct NeedleScore {
  double right = 0;  // fraction of questions whose true answer is the most probable of all answers
  double loss = 0;   // nats per true answer
};
struct NeedleResult {
  NeedleMethod method = NeedleMethod::model;
  NeedleScore verbatim, reworded;  // in the words of the text, and in other words
};
struct NeedleRow {
  std::int64_t tokens = 0;            // length of the text
  std::int64_t others = 0;            // documents read after it
  std::int64_t other_tokens = 0;      // their tokens, mean over the repeats
  std::vector<NeedleResult> results;  // in the order of needle_methods
};
struct NeedleReport {
  std::string run, data, other_data;
  std::int64_t step = 0, facts = 0, repeats = 0, answers = 0;
  std::uint64_t seed = 0;
  MemorySettings settings;  // of the memory with slots and contexts
  std::vector<NeedleRow> lengths, retention;
  double seconds = 0;
  bool stopped = false;
};

// A text with facts in it: at ends of sentences, at random.
struct Haystack {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> places;  // of the first token of each fact
};
// documents: the text, each document with its end token. Throws bad_input if it is too short, or the facts would fill
// more than half of it.
Haystack make_haystack(const std::vector<std::vector<std::int32_t>>& documents, const Tokenizer& tokenizer,
                       const FactSet& facts, std::int64_t tokens, std::uint64_t seed);

NeedleReport measure_needles(OpenedRun& run, const NeedleOptions& options);
nlohmann::json to_json(const NeedleReport& report);
std::string needle_page(const NeedleReport& report, const OpenedRun& run);

}  // namespace some
