#include "inference/decoder.h"

#include "inference/cuda_decoder.h"

namespace some {

void DecodeBatch::add(TokenId token, std::int32_t slot, std::int32_t position, bool reread) {
  tokens.push_back(token);
  slots.push_back(slot);
  positions.push_back(position);
  again.push_back(reread ? 1 : 0);
}

double cache_bytes_per_slot(Model& model, std::int64_t capacity) {
  const ModelConfig& config = model.config();
  const double per_position = 2.0 + (config.past() > 0 ? 1.0 : 0.0);
  return per_position * static_cast<double>(capacity) * config.d_model * config.layers *
         static_cast<double>(size_of(model.context().compute));
}

std::unique_ptr<Decoder> make_decoder(Model& model, const DecoderOptions& options) {
  if (std::unique_ptr<Decoder> decoder = make_cuda_decoder(model, options)) return decoder;
  return make_model_decoder(model, options);
}

}  // namespace some
