#include "model/operations.h"

#include <algorithm>
#include <cmath>

#include "keys/key_store.h"
#include "model/declaration.h"
#include "ops/hadamard_experts.h"

namespace some {

double attention_pairs(const ModelConfig& config, const Batch& batch) {
  double pairs = 0;
  for (std::size_t i = 0; i + 1 < batch.offsets.size(); ++i) {
    const double n = batch.offsets[i + 1] - batch.offsets[i];
    pairs += config.causal ? n * (n + 1) / 2 : n * n;
  }
  return pairs;
}

OperationCount count_operations(const ModelConfig& config, const Batch& batch) {
  return count_operations(config, static_cast<double>(batch.size()), attention_pairs(config, batch));
}

OperationCount count_operations(const ModelConfig& config, double tokens, double pairs) {
  const double layers = config.layers;
  OperationCount out;
  // FLOPs of a matrix: one GEMM forward; backward one for the gradient of its input and one for its own.
  visit_parameters(config, [&](const Parameter& parameter, double times) {
    const double forward = 2 * tokens * parameter.uses * static_cast<double>(parameter.count()) * times;
    const double backward = (parameter.trained() ? 2 : 1) * forward;
    out.forward += forward;
    out.backward += backward;
    if (parameter.of_expert) out.experts += forward + backward;
  });
  // FLOPs of scores and the weighted sum of values: two GEMMs forward, four backward.
  out.forward += 4 * config.d_model * pairs * layers;
  out.backward += 8 * config.d_model * pairs * layers;
  if (config.ffn == Ffn::some) {
    const double query = config.query_size();
    out.forward += 2 * tokens * query * config.experts * layers;  // scores against all keys
    out.backward += 2 * tokens * query * config.top_k * layers;   // gradients only reach the selected keys
    if (config.has_transforms()) {
      // Additions of the transforms. The backward pass repeats the forward transforms and adds the transposed ones.
      const HadamardSizes sizes{config.d_model, config.d_ffn, config.hadamard_transforms};
      const double size = sizes.size(), matrices = config.experts_have_output() ? 2 : 1;
      const double one = tokens * config.top_k * layers * sizes.blocks() * sizes.transforms * size * std::log2(size);
      out.forward += matrices * one;
      out.backward += (matrices + 1) * one;
      out.experts += (2 * matrices + 1) * one;
    }
  }
  return out;
}

MemoryEstimate estimate_memory(const ModelConfig& config, double tokens, bool bf16, bool training) {
  const double d = config.d_model, f = config.d_ffn, k = config.top_k, layers = config.layers,
               query = config.query_size();
  const double c = bf16 ? 2 : 4;  // bytes of a compute number; master numbers have 4
  MemoryEstimate out;
  visit_parameters(config, [&](const Parameter& parameter, double times) {
    const double count = static_cast<double>(parameter.count()) * times;
    if (parameter.trained()) out.parameters += count * ((training ? 16 : 4) + (bf16 ? 2 : 0));
    if (parameter.kind == Parameter::Kind::library) out.library += count * c;
  });
  const bool has_some = config.ffn == Ffn::some;
  const bool plan = !config.has_transforms() || config.training == ExpertTraining::lora;  // rows per routing slot
  const double matrices = config.experts_have_output() ? 2 : config.use_library ? 1 : 0;
  if (has_some)
    out.parameters += layers * key_store_bytes(config.experts, config.top_k, config.query_size(), config.keys);
  // Numbers kept per layer and token (names as in the tapes of the blocks).
  double layer = c * (3 * d + d + d)             // qkv, mixed, output
                 + 4 * config.heads              // lse
                 + c * (2 * d + 2 * d) + 4 * 4;  // two norms: sum, y, mean, rstd
  double widest = 0;                             // maximum scratch memory per token of a backward pass
  double fixed = 0;                              // scratch memory that does not depend on the number of tokens
  if (has_some) {
    if (config.router == RouterKind::mlp) layer += 2 * c * config.router_hidden();
    layer += 4 * (2 * query + 2) + k * 12;  // raw, query, norms, routing
    if (config.input_proj) layer += c * d;  // input of the experts
    layer += c * ((matrices > 0 && plan ? k * f : 0) + (matrices == 2 ? d : f)) + k * 8;
    if (config.modulates()) layer += c * f;           // hidden layer
    if (config.modulates() && !plan) layer += c * f;  // modulation
    if (bf16 && training && matrices == 2 && config.training == ExpertTraining::frozen && plan)
      layer += c * k * d;  // outputs of the experts
    if (config.output_proj != OutputProj::none) layer += c * d;
    widest = (plan ? c * (k * d + (bf16 ? 0 : 2 * k * d)) : 0) + 4 * query + c * config.router_hidden();
    if (config.training == ExpertTraining::lora) {
      const double low = c * k * config.lora_rank * matrices;  // results of the first factors, per assignment
      layer += low;
      if (training) widest += low;  // gradients through the second factors
      if (training && !bf16) {      // on the CPU each block of at most 384 assignments has its own sums
        const double sums = c * config.lora_rank * (d + f) * matrices;
        widest += sums * k / 384;
        fixed += sums * config.experts;
      }
    }
    if (config.input_proj) widest += c * d;
    if (config.modulates()) widest += c * (2 * f + (config.token_shift > 0 && plan ? k * d : 0));
  } else if (config.ffn == Ffn::dense) {
    layer += c * (2 * config.dense_hidden() + d);
    widest = c * config.dense_hidden();
  }
  if (config.past() > 0) layer += c * d + 4.0 * (config.past() + 1) / layers;
  widest = std::max(widest, c * 4 * d);
  const double logits = std::min(tokens, 4096.0) * config.vocab * c;
  if (training)
    out.activations = tokens * (layers * layer + 5 * c * d + widest) + fixed + logits;
  else
    out.activations = tokens * (layer + 3 * c * d) + logits;
  return out;
}

}  // namespace some
