#include "train/samples.h"

#include <algorithm>

#include "core/heartbeat.h"
#include "inference/generate.h"

namespace some {
namespace {

constexpr std::int64_t prompt_tokens = 8;  // of a validation document

// Returns the first words of a validation document. Tokens may end within a word, or even within a character.
std::string document_beginning(const TrainingStage& stage, std::int64_t document) {
  const std::int64_t length = std::min(prompt_tokens, stage.valid.document_tokens(document));
  const std::vector<TokenId> ids = stage.valid.ids(document, 0, length);
  std::string text = stage.tokenizer.decode(ids, {.skip_specials = true});
  const std::size_t space = text.find_last_of(" \n");
  if (space != std::string::npos && space > 0) text.resize(space);
  return text;
}

}  // namespace

std::vector<TextSample> draw_samples(Model& model, const TrainingStage& stage) {
  const TrainConfig& train = stage.recipe.train;
  std::vector<std::string> prompts;
  for (int i = 0; i < train.samples; ++i) {
    prompts.push_back(train.sample_prompt.empty() ? document_beginning(stage, i % stage.valid.documents())
                                                  : train.sample_prompt);
    // A document may begin with spaces only.
    if (stage.tokenizer.encode(prompts.back()).empty()) prompts.pop_back();
  }
  if (prompts.empty()) return {};
  GenerateOptions options;
  options.seed = stage.recipe.seed;
  options.max_tokens = train.sample_tokens;
  options.stop = [] {
    beat();
    return false;
  };
  std::vector<TextSample> samples;
  for (const Generated& one : generate(model, stage.tokenizer, prompts, options))
    samples.push_back({prompts[samples.size()], one.continuation});
  return samples;
}

}  // namespace some
