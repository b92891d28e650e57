#include "analysis/assignments.h"

#include <algorithm>

namespace some {

AnalysisText load_analysis_text(const OpenedRun& run, const std::string& source, std::int64_t max_documents) {
  if (max_documents < 0)
    bad_input(Code::option_invalid, "{} {}: must be >= 0 (0 = all)", "--max-documents", max_documents);
  AnalysisText out;
  DataConfig config = run.recipe.data;
  if (source.empty()) {
    config.tokenizer = run.paths.tokenizer();
    out.data = load_corpora(*run.ctx, config, run.recipe.seed, run.paths.read_only_cache(), {}).valid;
    const bool whole = max_documents == 0 || max_documents >= out.data.documents();
    out.source = whole ? "the run's validation text"
                       : fmt::format("the run's validation text of {} documents", out.data.documents());
  } else {
    out.data = load_tokens(*run.ctx, source, config, run.tokenizer, max_documents, run.paths.read_only_cache());
    out.source = source;
  }
  out.documents = max_documents > 0 ? std::min(max_documents, out.data.documents()) : out.data.documents();
  return out;
}

void require_experts(const OpenedRun& run, const std::string& what) {
  if (run.recipe.model.ffn == Ffn::some) return;
  bad_input(Code::experts_missing,
            "{} has no experts (model.ffn = \"{}\"): nothing to {}; use a run with model.ffn = \"some\"",
            run.paths.folder, run.recipe.model.ffn == Ffn::dense ? "dense" : "none", what);
}

void require_layer(const ModelConfig& config, int layer) {
  if (layer < 0 || layer >= config.layers)
    bad_input(Code::layer_out_of_range, "layer {} not found; this run has layers 0 to {}", layer, config.layers - 1);
}

CollectOptions predicted_positions(const OpenedRun& run, std::int64_t max_documents) {
  CollectOptions out;
  out.max_documents = max_documents;
  out.rows = run.recipe.train.batch;
  out.predicted_only = true;
  out.pad_id = run.tokenizer.pad_id();
  out.eos_id = run.tokenizer.eos_id();
  out.long_documents = run.recipe.data.long_documents;
  return out;
}

Choices collect_assignments(Model& model, const TokenData& data, const CollectOptions& options) {
  Context& ctx = model.context();
  const ModelConfig& config = model.config();
  const SequenceList sequences(data, config.seq_len, options.long_documents, Reading::training, options.max_documents);
  BatchOptions batch_options;
  batch_options.seq_len = config.seq_len;
  batch_options.pad_id = options.pad_id;
  batch_options.eos_id = options.eos_id;
  Choices out;
  out.top_k = config.top_k;
  out.layers.resize(static_cast<std::size_t>(config.layers));
  std::vector<std::size_t> kept;  // rows of the batch that are kept
  StepSettings settings;
  settings.temperature = options.temperature;
  const auto observe = [&](int layer, const RouterTape& tape) {
    LayerAssignments& firings = out.layers[static_cast<std::size_t>(layer)];
    const std::vector<double> experts = read_vector(tape.routing.indices), gates = read_vector(tape.routing.gates);
    const auto k = static_cast<std::size_t>(config.top_k);
    for (const std::size_t row : kept) {
      for (std::size_t i = row * k; i < (row + 1) * k; ++i) {
        firings.experts.push_back(static_cast<std::int32_t>(experts[i]));
        firings.gates.push_back(static_cast<float>(gates[i]));
      }
    }
  };
  for (std::int64_t first = 0; first < sequences.size(); first += options.rows) {
    std::vector<Sequence> chosen;
    for (std::int64_t i = first; i < std::min(sequences.size(), first + options.rows); ++i)
      chosen.push_back(sequences[i]);
    const Batch batch = make_batch(data, chosen, batch_options);
    kept.clear();
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      for (std::int32_t at = batch.offsets[static_cast<std::size_t>(row)];
           at < batch.offsets[static_cast<std::size_t>(row) + 1]; ++at) {
        const auto t = static_cast<std::size_t>(at);
        if (options.predicted_only && batch.targets[t] < 0) continue;
        kept.push_back(t);
        out.tokens.push_back(batch.tokens[t]);
        out.next.push_back(batch.targets[t]);
        const Sequence& sequence = chosen[static_cast<std::size_t>(row)];
        out.document.push_back(static_cast<std::int32_t>(sequence.document));
        out.places.push_back(static_cast<std::int32_t>(sequence.begin) + batch.positions[t]);
      }
    }
    if (batch.size() == 0) continue;
    ctx.arena->reset();
    const DeviceBatch device_batch = upload(ctx, batch);
    const std::vector<double> nll = read_vector(model.evaluate(device_batch, settings, {observe}));
    for (const std::size_t t : kept) out.nll.push_back(batch.targets[t] < 0 ? 0.0 : nll[t]);
  }
  return out;
}

}  // namespace some
