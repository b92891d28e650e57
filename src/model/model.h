// The transformer (spec 2): parameters, expert library and keys of every layer, and the passes of a batch through them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "model/config.h"
#include "model/layer.h"
#include "model/parameters.h"
#include "model/parts.h"
#include "model/pass.h"
#include "runtime/schedule.h"

namespace some {

// Called with every layer's queries and assignments during a pass; the tensors are valid only during the call.
using LayerObserver = std::function<void(int layer, const RouterTape& tape)>;

// Additional results of evaluation and generation.
struct ForwardObserver {
  LayerObserver layer{};     // may be empty
  Tensor* states = nullptr;  // receives the input of the head, [T, d] compute; may be null
};

class Model {
 public:
  // training: allocates gradients and optimizer moments. Draws initial parameters, library and keys. make_library:
  // false leaves the experts' weights empty, for callers that provide them (fixtures).
  Model(std::shared_ptr<Context> ctx, const ModelConfig& config, bool training, bool make_library = true);

  // Throws for a batch with token ids outside the vocabulary, because GPU kernels read memory without checking them.
  // The passes below call it; code that replays a recorded pass must call it too.
  void check_ids(const DeviceBatch& batch) const;
  // Forward and backward pass over one micro-batch: adds to the gradients and the key sums. Returns nll [T] (master, on
  // the device, valid until the arena is reset). `ready` is called from the last layer to the first when the gradients
  // of a layer's matrices are complete; before that with layer number `layers`, for those of the head.
  using MatricesReady = std::function<void(int layer)>;
  Tensor train_pass(Schedule& schedule, const DeviceBatch& batch, const StepSettings& settings,
                    const MatricesReady& ready = {});
  // Forward pass only. Returns nll [T] as above.
  Tensor evaluate(const DeviceBatch& batch, const StepSettings& settings, const ForwardObserver& observer = {}) {
    return evaluate(*ctx_, batch, settings, observer);
  }
  // The same on another context, such as a Prefetcher's.
  Tensor evaluate(Context& ctx, const DeviceBatch& batch, const StepSettings& settings,
                  const ForwardObserver& observer = {}) const;
  // Expert parallelism: passes are collective over the ranks that share the experts (Context::expert_group). A rank
  // without tokens calls this to serve a pass of the others; without expert parallelism it does nothing. Training: adds
  // to the gradients of trained experts.
  void serve_pass(bool training);
  // Logits [T, V] in master precision.
  Tensor logits(const DeviceBatch& batch, const StepSettings& settings, const ForwardObserver& observer = {});

  // Generation with a KV cache: new tokens of several sequences, each in a slot. Returns the logits of the rows listed
  // in `wanted`; observer.states: of those rows.
  struct Cache {
    std::vector<Tensor> layers;  // [slots, capacity, 2d] compute
    std::vector<Tensor> states;  // [slots * capacity, d] compute: inputs of feed-forward blocks, if kept
    std::int64_t capacity = 0;
  };
  Cache make_cache(std::int64_t slots, std::int64_t capacity);
  // Rows of a step of generation, on the device; all i32.
  struct DecodeRows {
    Tensor tokens, slots, positions;  // [rows]
    Tensor wanted;                    // [wanted]: rows
    // If a block reads earlier states (ModelConfig::past): the index of each row in the stored states, slot * capacity
    // + position, [rows], and those of 0, 1, ... past tokens earlier, -1 before the text begins, [rows, past + 1].
    Tensor places, past;
  };
  // Checks nothing, uploads nothing and waits for nothing, so that a step on a GPU can be recorded.
  Tensor decode(Cache& cache, const DecodeRows& rows, const StepSettings& settings,
                const ForwardObserver& observer = {});
  Tensor decode(Cache& cache, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& slots,
                const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& wanted,
                const StepSettings& settings, const ForwardObserver& observer = {});

  void clear_gradients(Context& ctx);
  // Chooses the dropout masks of the next training passes, those of this step of the run. Passes before the first call
  // drop nothing (learning in use).
  void set_dropout_step(std::int64_t step);
  void clear_key_sums(Context& ctx);
  // Returns the parameters of the next key update, one plan per layer. The sums and the update depend on settings and
  // time only through these plans. step and progress (0 to 1) are those of the run.
  std::vector<KeyPlan> plan_keys(std::int64_t step, double progress) const;
  bool keys_due(std::int64_t step) const;  // true if this training step has a key update
  // Applies the key update (spec 4) to every layer whose keys learn.
  void update_key_stores(Context& ctx, std::span<const KeyPlan> plans);
  void count_key_update(std::span<const KeyPlan> plans);  // host part of the update of a replayed step
  void set_key_settings(const KeySettings& settings);     // adaptation selects its own rules
  // Replaces settings that do not change weights and keys or their meaning (not SettingRole::model).
  void change_settings(const ModelConfig& config);
  // Returns a number that increases whenever tensors of the key stores are replaced: while it is unchanged, their
  // addresses are unchanged.
  std::int64_t key_memory() const { return key_memory_; }

  Context& context() { return *ctx_; }
  const ModelConfig& config() const { return *parts_.config; }
  ParameterStore& parameters() { return parameters_; }
  std::vector<Layer>& layers() { return parts_.layers; }
  std::vector<KeySums>& key_sums() { return key_sums_; }
  std::vector<Tensor>& epoch_counts() {
    return epoch_counts_;
  }                                    // i64 [E] per layer: assignments in training since it was last cleared
  bool layer_learns(int layer) const;  // true if its keys are updated
  Tensor& auxiliary_loss() { return auxiliary_loss_; }
  std::uint64_t library_hash() const;  // over all layers; 0 without a library

 private:
  struct Stream;
  struct LayerTape;
  struct Tape;
  // Training, evaluation and generation share this loop: embedding, then each layer.
  LayerNorm::Tape embed(Context& ctx, const Pass& pass, Stream& stream) const;  // the norm is empty in post-norm
  void layer_forward(Context& ctx, const Layer& layer, const Pass& pass, const Tensor* previous_query, LayerTape& tape,
                     Stream& stream) const;
  Pass new_pass(Context& ctx, const StepSettings& settings, bool training, const Tensor& tokens,
                const Tensor& positions) const;
  Pass new_pass(Context& ctx, const StepSettings& settings, bool training, const DeviceBatch& batch) const;
  Tensor head_input(Context& ctx, const DeviceBatch& batch, const StepSettings& settings,
                    const ForwardObserver& observer) const;
  Tensor forward(Context& ctx, const Pass& pass, Tape& tape) const;
  // Applies dropout at one of its places (ops/dropout.h), in training.
  void drop(Context& ctx, const Pass& pass, int place, const Tensor& x, Tensor& y) const;
  Tensor dropped_gradient(Context& ctx, const Pass& pass, int place, const Tensor& dy) const;
  void backward(Schedule& schedule, const DeviceBatch& batch, const Pass& pass, Tape& tape, Tensor dy,
                const MatricesReady& ready) const;
  // Returns the norm that follows the feed-forward block of a layer: its own norm2 (post-norm), or the next layer's
  // norm1 or the final norm (pre-norm).
  const LayerNorm& norm_after(int layer) const;
  void make_all_key_sums();

  std::shared_ptr<Context> ctx_;
  ModelParameters parts_;
  ParameterStore parameters_;
  std::vector<KeySums> key_sums_;
  Needs key_needs_;  // what the key sums currently collect
  std::int64_t key_memory_ = 0;
  std::vector<Tensor> epoch_counts_;
  Tensor auxiliary_loss_;
  Tensor dropout_key_;  // [4] master: of the current step; empty without dropout
};

}  // namespace some
