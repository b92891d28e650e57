// Compares methods by which a model can learn during use, on one stream (spec 7, 8): none (frozen), keys by the
// published rules, a plain cache, a memory, a bias on the output, gradient steps on all parameters (dynamic
// evaluation). Reports the gain on the stream, the loss on the original text and the time of each. Two baselines use no
// model: a counter (Kneser-Ney estimates that learn every token) and, in bits per byte, compression programs.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/compressors.h"
#include "analysis/read.h"

namespace some {

struct AdaptMethodsOptions {
  std::string data;         // file, folder or builtin:DOMAIN
  std::string memory;       // initial memory, which is not changed; empty: start with an empty memory
  MemoryOverrides choices;  // settings of an empty memory
  std::int64_t tokens = 0;  // tokens of the stream; 0: all
  std::int64_t original_tokens = 20000;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t total)> progress;
};

enum class AdaptMethodKind { frozen, keys, plain_cache, memory, memory_with_contexts, counter, output_bias, gradients };
const char* name_of(AdaptMethodKind kind);  // "output bias"
const char* what_learns(AdaptMethodKind kind);

struct AdaptMethod {
  AdaptMethodKind kind = AdaptMethodKind::frozen;
  struct Window {
    std::int64_t tokens = 0;
    double loss = 0;  // nats/token, like all losses here
  };
  std::vector<Window> windows;
  double loss = 0, original = 0;   // loss on the stream; loss on the original text afterwards
  double gain = 0, forgotten = 0;  // relative to the frozen model
  double seconds = 0, times_frozen = 0;
  struct Tried {
    double rate = 0, loss = 0, original = 0;
  };
  std::optional<double> rate;  // best step size on the stream; only for methods that have one
  std::vector<Tried> tried;
};

struct AdaptMethodsReport {
  std::string run, data;
  std::int64_t step = 0, tokens = 0, window = 0, original_tokens = 0, slots = 0;
  std::vector<AdaptMethod> ways;
  // Size of the stream and of its compressed forms; 0 and empty if the tokenizer does not preserve every byte.
  std::int64_t bytes = 0;
  std::vector<CompressorSize> compressors;
  double bits_per_byte(double loss) const;
};

AdaptMethodsReport compare_adapt_methods(OpenedRun& run, const AdaptMethodsOptions& options);
nlohmann::json to_json(const AdaptMethodsReport& report);
std::string adapt_methods_page(const AdaptMethodsReport& report, const OpenedRun& run);

}  // namespace some
