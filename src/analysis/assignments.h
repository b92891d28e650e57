// Where experts fire: the text a study reads, and the choices of every position of it, brought to the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluation/evaluate.h"
#include "runs/run.h"

namespace some {

// The run's validation stories, or another source; at most `stories` of them (0: all).
struct StudyText {
  TokenData data;
  std::string source;  // in words
  std::int64_t stories = 0;
};
StudyText study_text(const OpenedRun& run, const std::string& source, std::int64_t stories);

// bad_input for a run without experts (ffn = "dense" or "none"); `what` is what was asked for.
void require_experts(const OpenedRun& run, const std::string& what);
// bad_input unless the model has this layer.
void require_layer(const ModelConfig& config, int layer);

struct LayerFirings {
  std::vector<std::int32_t> experts;  // [positions * k], best first
  std::vector<float> gates;           // [positions * k]
};

struct Choices {
  int top_k = 0;
  std::vector<std::int32_t> tokens;  // the token at each position: the one whose state chose the experts (spec 6)
  std::vector<std::int32_t> next;    // the token predicted there; -1: none
  std::vector<std::int32_t> story;   // which story it is of
  std::vector<std::int32_t> places;  // place in the story, from 0
  std::vector<double> nll;           // of `next`, in nats; 0 where there is none
  std::vector<LayerFirings> layers;
  std::int64_t positions() const { return static_cast<std::int64_t>(tokens.size()); }
};

struct CollectOptions {
  std::int64_t stories = 0;     // 0: all
  int rows = 16;                // stories in one pass
  bool predicted_only = false;  // leave out positions that predict nothing (the end of a story)
  int pad_id = 1, eos_id = 2;
  double temperature = 0;                             // 0: eval_temp
  LongDocuments long_documents = LongDocuments::cut;  // those longer than the model's seq_len, as in training
};
Choices collect_choices(Model& model, const TokenData& data, const CollectOptions& options);

}  // namespace some
