// Expert assignments: the text an analysis reads and the routing of each of its positions, copied to the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluation/evaluate.h"
#include "runs/run.h"

namespace some {

// The run's validation documents, or another source; at most `max_documents` of them (0: all).
struct AnalysisText {
  TokenData data;
  std::string source;  // description for reports
  std::int64_t documents = 0;
};
AnalysisText load_analysis_text(const OpenedRun& run, const std::string& source, std::int64_t max_documents);

// Throws (bad_input) for a run without experts (ffn = "dense" or "none"); `what` names the requested analysis.
void require_experts(const OpenedRun& run, const std::string& what);
// Throws (bad_input) if the model does not have this layer.
void require_layer(const ModelConfig& config, int layer);

struct LayerAssignments {
  std::vector<std::int32_t> experts;  // [positions * k], best first
  std::vector<float> gates;           // [positions * k]
};

struct Choices {
  int top_k = 0;
  std::vector<std::int32_t> tokens;    // the token at each position, whose hidden state is routed (spec 6)
  std::vector<std::int32_t> next;      // the token predicted at that position; -1: none
  std::vector<std::int32_t> document;  // index of its document
  std::vector<std::int32_t> places;    // position in the document, from 0
  std::vector<double> nll;             // loss of `next` in nats; 0 if there is no next token
  std::vector<LayerAssignments> layers;
  std::int64_t positions() const { return static_cast<std::int64_t>(tokens.size()); }
};

struct CollectOptions {
  std::int64_t max_documents = 0;  // 0: all
  int rows = 16;                   // documents per forward pass
  bool predicted_only = false;     // leave out positions without a target (the end of a document)
  int pad_id = 1, eos_id = 2;
  double temperature = 0;                             // 0: eval_temp
  LongDocuments long_documents = LongDocuments::cut;  // documents longer than the model's seq_len, as in training
};
Choices collect_assignments(Model& model, const TokenData& data, const CollectOptions& options);

// Options for the positions that a run predicts, with its batch size, special tokens and treatment of long documents.
CollectOptions predicted_positions(const OpenedRun& run, std::int64_t max_documents);

}  // namespace some
