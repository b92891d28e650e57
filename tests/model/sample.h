// Small models, their variants, and batches of explicit rows, for tests of model and training.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "model/config.h"

namespace some {

inline ModelConfig small_config() {
  ModelConfig c;
  c.seed = 3;
  c.vocab = 19;
  c.d_model = 8;
  c.layers = 2;
  c.heads = 2;
  c.seq_len = 7;
  c.experts = 5;
  c.d_ffn = 6;
  c.top_k = 2;
  return c;
}

// Large enough for the GPU's specialized kernels.
inline ModelConfig medium_config() {
  ModelConfig c;
  c.seed = 4;
  c.vocab = 61;
  c.d_model = 64;
  c.layers = 3;
  c.heads = 4;
  c.seq_len = 40;
  c.experts = 8;
  c.d_ffn = 96;
  c.top_k = 2;
  return c;
}

struct Variant {
  const char* name;
  void (*change)(ModelConfig&);
};

// Settings that take other code paths, for tests of all of them.
inline const std::vector<Variant> model_variants = {
    {"published", [](ModelConfig&) {}},
    {"pre_norm", [](ModelConfig& c) { c.norm = Norm::pre; }},
    {"rope", [](ModelConfig& c) { c.position = Position::rope; }},
    {"not_causal", [](ModelConfig& c) { c.causal = false; }},
    {"dense", [](ModelConfig& c) { c.ffn = Ffn::dense; }},
    {"none", [](ModelConfig& c) { c.ffn = Ffn::none; }},
    {"none_pre", [](ModelConfig& c) { c.ffn = Ffn::none, c.norm = Norm::pre; }},
    {"linear_router", [](ModelConfig& c) { c.router = RouterKind::linear; }},
    {"grounded", [](ModelConfig& c) { c.ground = 0.3, c.layers = 3; }},
    {"narrow_queries", [](ModelConfig& c) { c.query_dim = 5; }},
    {"narrow_grounded", [](ModelConfig& c) { c.query_dim = 4, c.ground = 0.3, c.router = RouterKind::linear; }},
    {"input_proj", [](ModelConfig& c) { c.input_proj = true; }},
    {"readin_features",
     [](ModelConfig& c) { c.input_proj = true, c.output_proj = OutputProj::features, c.query_dim = 6; }},
    {"output_proj", [](ModelConfig& c) { c.output_proj = OutputProj::linear; }},
    {"features", [](ModelConfig& c) { c.output_proj = OutputProj::features; }},
    {"balanced", [](ModelConfig& c) { c.keys.balance_rate = 0.05, c.experts = 7; }},
    {"dense_look_back", [](ModelConfig& c) { c.ffn = Ffn::dense, c.conv = 3; }},
    {"readin_look_back",
     [](ModelConfig& c) { c.input_proj = true, c.output_proj = OutputProj::features, c.conv = 2, c.norm = Norm::pre; }},
    {"modulated",
     [](ModelConfig& c) { c.output_proj = OutputProj::modulated, c.router = RouterKind::linear, c.query_dim = 4; }},
    {"modulated_look_back",
     [](ModelConfig& c) {
       c.output_proj = OutputProj::modulated, c.conv = 3, c.input_proj = true, c.temperature = Temperature::learned;
     }},
    {"modulated_listen",
     [](ModelConfig& c) {
       c.output_proj = OutputProj::modulated, c.modulation = ModulationPlace::additive, c.token_shift = 3,
       c.norm = Norm::pre;
     }},
    {"modulated_full",
     [](ModelConfig& c) {
       c.output_proj = OutputProj::modulated, c.training = ExpertTraining::full, c.token_shift = 2, c.conv = 1;
     }},
    {"hadamard", [](ModelConfig& c) { c.init = "hadamard"; }},
    {"hadamard_features",
     [](ModelConfig& c) {
       c.init = "hadamard", c.hadamard_transforms = 2, c.d_ffn = 20, c.output_proj = OutputProj::features,
       c.input_proj = true;
     }},
    {"hadamard_listen",
     [](ModelConfig& c) {
       c.init = "hadamard", c.output_proj = OutputProj::modulated, c.token_shift = 3, c.norm = Norm::pre;
     }},
    {"random_routing", [](ModelConfig& c) { c.routing = RoutingKind::hash; }},
    {"learned_temperature", [](ModelConfig& c) { c.temperature = Temperature::learned; }},
    {"full", [](ModelConfig& c) { c.training = ExpertTraining::full; }},
    {"partitions", [](ModelConfig& c) { c.experts = 9, c.key_partitions = 4, c.key_probe = 2; }},
    {"dropout", [](ModelConfig& c) { c.dropout = 0.2; }},
    {"dropout_modulated",
     [](ModelConfig& c) { c.dropout = 0.1, c.output_proj = OutputProj::modulated, c.norm = Norm::pre; }},
    {"dropout_dense", [](ModelConfig& c) { c.dropout = 0.3, c.ffn = Ffn::dense; }},
};

// Rows of non-padding tokens; `padded`: extended to seq_len with padding that has no target.
inline Batch rows_batch(const std::vector<std::vector<std::int32_t>>& rows, int seq_len, bool padded) {
  Batch batch;
  batch.offsets.push_back(0);
  for (const auto& row : rows) {
    const std::size_t laid = padded ? static_cast<std::size_t>(seq_len) : row.size();
    for (std::size_t p = 0; p < laid; ++p) {
      batch.tokens.push_back(p < row.size() ? row[p] : 1);
      batch.positions.push_back(static_cast<std::int32_t>(p));
      batch.targets.push_back(p + 1 < row.size() ? row[p + 1] : -1);
      batch.predicted += batch.targets.back() >= 0;
    }
    batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.longest = std::max<std::int64_t>(batch.longest, static_cast<std::int64_t>(laid));
  }
  return batch;
}

inline const std::vector<std::vector<std::int32_t>> sample_rows = {
    {3, 4, 5, 6, 7, 8, 2}, {9, 10, 2}, {11, 12, 13, 14, 2}};

}  // namespace some
