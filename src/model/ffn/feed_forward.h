// Base class of the feed-forward blocks of a model, and their list. A block is a class that declares its settings
// and parameters, keeps what it needs in a tape, and computes both passes; it has a file of its own and a line in
// feed_forward.cc.
#pragma once

#include <memory>
#include <vector>

#include "core/setting.h"
#include "keys/key_store.h"
#include "model/declaration.h"
#include "model/pass.h"
#include "runtime/context.h"

namespace some {

class ExpertBank;
class Router;
struct RouterTape;

class FeedForward {
 public:
  // Data that a forward pass keeps for the backward pass, the key update and analysis.
  struct Tape {
    virtual ~Tape() = default;
    Tensor output;  // without the residual
    virtual const RouterTape* routed() const { return nullptr; }
  };
  struct Gradients {
    const Tensor& x;                    // as in forward()
    const Tensor& dy;                   // of the output
    Tensor& dx;                         // ADDED to
    const Tensor* dquery = nullptr;     // of the query: what the layer above sends back through grounding
    Tensor* dprevious_query = nullptr;  // what goes to the layer below, ADDED to; null: nothing
  };
  virtual ~FeedForward() = default;
  virtual void declare(Declaration& declare) = 0;

  // previous_query: of the layer below; null: none.
  virtual std::unique_ptr<Tape> forward(Context& ctx, const Pass& pass, const Tensor& x,
                                        const Tensor* previous_query) const = 0;
  // The tape may be overwritten. What this takes from the arena its caller gives back: deferred gradients of matrices
  // may still need it.
  virtual void backward(Context& ctx, const Pass& pass, Tape& tape, const Gradients& gradients) const = 0;

  // Expert parallelism: the same passes for the tokens of other ranks only, which need the experts that are here.
  virtual std::unique_ptr<Tape> serve_forward(Context&, const Pass&) const { return nullptr; }
  virtual void serve_backward(Context&, Tape&) const {}

  // Null for a block that has none.
  virtual Router* router() { return nullptr; }
  virtual ExpertBank* experts() { return nullptr; }
};

struct FeedForwardKind {
  const char* table;                          // of the recipe, where its settings are
  bool (*chosen)(const ModelConfig& config);  // whether the layers of a model have it
  std::unique_ptr<FeedForward> (*make)(const ModelConfig& config, int layer);
  void (*settings)(SettingList<ModelConfig>& list);
  void (*check)(const ModelConfig& config);  // of every model that has blocks of this table
};
const std::vector<FeedForwardKind>& feed_forward_kinds();
// Null if the layers of a model have none.
std::unique_ptr<FeedForward> make_feed_forward(const ModelConfig& config, int layer);

}  // namespace some
