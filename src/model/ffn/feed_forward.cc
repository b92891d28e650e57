#include "model/ffn/feed_forward.h"

#include "model/ffn/dense_ffn.h"
#include "model/ffn/expert_ffn.h"
#include "model/ffn/modulated_ffn.h"

namespace some {
namespace {

template <typename Block>
FeedForwardKind kind(const char* table) {
  return {table, Block::chosen,
          [](const ModelConfig& config, int layer) -> std::unique_ptr<FeedForward> {
            return std::make_unique<Block>(config, layer);
          },
          Block::settings, Block::check};
}

}  // namespace

// In the order of their settings in recipes.
const std::vector<FeedForwardKind>& feed_forward_kinds() {
  static const std::vector<FeedForwardKind> kinds = {
      kind<DenseFfn>("model"),
      kind<ExpertFfn>("some"),
      kind<ModulatedFfn>("some"),
  };
  return kinds;
}

std::unique_ptr<FeedForward> make_feed_forward(const ModelConfig& config, int layer) {
  for (const FeedForwardKind& one : feed_forward_kinds()) {
    if (one.chosen(config)) return one.make(config, layer);
  }
  return nullptr;
}

}  // namespace some
