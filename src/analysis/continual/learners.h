// Ways to learn one text after another, behind one interface: by gradients, into a memory, or by counting only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/read.h"
#include "runs/run.h"

namespace some {

// finetune: gradient steps on the new text. ewc: also pulled to the parameters after the last text, each by its Fisher
// information. replay_1, replay_10: 1% and 10% of the sequences come from earlier texts; replay_self: 10% from text
// that the model wrote after each stage. lora: low-rank additions to the matrices of all blocks, merged after each
// text. dynamic: gradient steps window by window, also while it is tested. slots, contexts: memories of the frozen
// model. counter: Kneser-Ney counts without a model.
enum class ContinualMethod { finetune, ewc, replay_1, replay_10, replay_self, lora, dynamic, slots, contexts, counter };
inline constexpr int continual_methods = 10;
const char* name_of(ContinualMethod method);
const char* what_is_kept(ContinualMethod method);  // between two texts, besides the model

struct ContinualSettings {
  std::int64_t epochs = 4;                    // passes over each text, of the methods with gradients
  int batch = 4;                              // sequences of model.seq_len tokens per step
  double rate = 0;                            // peak learning rate; 0: 0.3 times that of the run
  double dynamic_rate = 1e-4, lora_rate = 0;  // 0: twice the rate of the others
  double ewc = 30;                            // weight of the penalty; 1: an old token counts as much as a new one
  std::int64_t fisher_sequences = 64;
  std::int64_t rank = 8;  // of LoRA
  std::uint64_t seed = 0;
  MemorySettings memory;  // with contexts
};

using TokenStream = std::vector<std::int32_t>;

class ContinualLearner {
 public:
  virtual ~ContinualLearner() = default;
  // The text that the model was trained on: nothing is learned from it, but what methods keep of earlier texts may be
  // prepared. The counter learns it.
  virtual void begin(const TokenStream& text) = 0;
  virtual void learn(const std::string& name, const TokenStream& text) = 0;
  virtual double loss(const TokenStream& text) = 0;  // nats/token; learns nothing that stays
  virtual double kept_bytes() const = 0;             // between two texts, besides the model
};

// The run's model is not changed. window: of reading and testing.
std::unique_ptr<ContinualLearner> make_learner(OpenedRun& run, ContinualMethod method,
                                               const ContinualSettings& settings, std::int64_t window);

// Loss of a model without learning, in nats/token; with a memory that does not learn unless it is null.
double loss_on(Model& model, Memory* memory, const TokenStream& text, std::int64_t window,
               std::optional<std::int32_t> border);

}  // namespace some
