// Base class of a model's feed-forward blocks, and the list of these blocks. A block is a class that declares its
// settings and parameters, keeps activations in a tape, and computes both passes; it has its own file and one line in
// feed_forward.cc.
#pragma once

#include <memory>
#include <vector>

#include "core/setting.h"
#include "keys/key_store.h"
#include "model/declaration.h"
#include "model/pass.h"
#include "runtime/schedule.h"

namespace some {

class ExpertBank;
class Router;
struct RouterTape;

class FeedForward {
 public:
  // Activations that a forward pass keeps for the backward pass, the key update and analysis.
  struct Tape {
    virtual ~Tape() = default;
    Tensor output;  // output, without the residual
    virtual const RouterTape* routed() const { return nullptr; }
  };
  struct Gradients {
    const Tensor& x;                    // as in forward()
    const Tensor& dy;                   // gradient of the output
    Tensor& dx;                         // ADDED to
    const Tensor* dquery = nullptr;     // gradient of the query that the layer above sends back through grounding
    Tensor* dprevious_query = nullptr;  // gradient of the query sent to the layer below, ADDED to; null: none
  };
  virtual ~FeedForward() = default;
  virtual void declare(Declaration& declare) = 0;

  // previous_query: query of the layer below; null: none.
  virtual std::unique_ptr<Tape> forward(Context& ctx, const Pass& pass, const Tensor& x,
                                        const Tensor* previous_query) const = 0;
  // Begins work of backward() that needs only the tape, on a forked context of the schedule; called before the gradient
  // of the output is computed. Returns true if such work, or work forked in backward(), runs until the schedule is
  // joined.
  virtual bool begin_backward(Schedule&, Tape&) const { return false; }
  // May overwrite the tape. The caller releases the arena memory used here, after it has joined what begin_backward has
  // announced, because that and deferred gradients of matrices may still need it.
  virtual void backward(Schedule& schedule, const Pass& pass, Tape& tape, const Gradients& gradients) const = 0;

  // Expert parallelism: takes part in the passes of other ranks, whose tokens need the experts of this rank.
  virtual std::unique_ptr<Tape> serve_forward(Context&, const Pass&) const { return nullptr; }
  virtual void serve_backward(Context&, Tape&) const {}

  // Returns null for a block without a router.
  virtual Router* router() { return nullptr; }
  virtual ExpertBank* experts() { return nullptr; }
};

struct FeedForwardKind {
  const char* table;                          // recipe table that has its settings
  bool (*chosen)(const ModelConfig& config);  // true if the layers of a model have this block
  std::unique_ptr<FeedForward> (*make)(const ModelConfig& config, int layer);
  void (*settings)(SettingList<ModelConfig>& list);
  void (*check)(const ModelConfig& config);  // number of keys of every model that has blocks of this table
};
const std::vector<FeedForwardKind>& feed_forward_kinds();
// Returns null if the layers of a model have no feed-forward block.
std::unique_ptr<FeedForward> make_feed_forward(const ModelConfig& config, int layer);

}  // namespace some
