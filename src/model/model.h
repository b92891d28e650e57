// The transformer (spec 2): parameters, library and keys of every layer, and the walk of a batch through them.
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
#include "runtime/context.h"

namespace some {

// Called with every layer's queries and choices during a pass; the tensors are valid only during the call.
using LayerObserver = std::function<void(int layer, const RouterTape& tape)>;

// Data that the caller of an evaluation or of generation receives besides the result.
struct ForwardObserver {
  LayerObserver layer{};     // may be empty
  Tensor* states = nullptr;  // becomes what enters the head, [T, d] compute; may be null
};

class Model {
 public:
  // training: gradients and optimizer moments exist. Draws initial values, the library and the keys. make_library:
  // false leaves the experts' weights empty, for callers that bring their own (fixtures).
  Model(std::shared_ptr<Context> ctx, const ModelConfig& config, bool training, bool make_library = true);

  // Refuses a batch with ids outside of the vocabulary: on a GPU nothing looks at them again before memory is read
  // there. The passes below call it; so does whoever replays a recorded pass.
  void check_ids(const DeviceBatch& batch) const;
  // Forward and backward over one micro-batch: adds to the gradients and the key sums. Returns nll [T] (master, on the
  // device, until the arena is reset). `ready` is told on the way, from the last layer to the first, when nothing more
  // will be added to the gradients of a layer's matrices; before that, as layer number `layers`, to those of the
  // head's.
  using MatricesReady = std::function<void(int layer)>;
  Tensor train_pass(const DeviceBatch& batch, const StepSettings& settings, const MatricesReady& ready = {});
  // Forward only. nll [T] as above.
  Tensor evaluate(const DeviceBatch& batch, const StepSettings& settings, const ForwardObserver& observer = {});
  // Where the layers' experts are shared out among ranks (Context::expert_group), every pass is one that all of them
  // make at the same time. One that has no tokens for a pass of the others serves them in it; elsewhere this does
  // nothing. Training: gradients of experts that learn are added to.
  void serve_pass(bool training);
  // Logits [T, V] in master precision.
  Tensor logits(const DeviceBatch& batch, const StepSettings& settings, const ForwardObserver& observer = {});

  // Generation with a key/value cache: new tokens of several sequences, each in a slot. Returns the logits of the rows
  // named in `wanted`; observer.states: of those rows.
  struct Cache {
    std::vector<Tensor> layers;  // [slots, capacity, 2d] compute
    std::vector<Tensor> states;  // [slots * capacity, d] compute: what feed-forward blocks read; where they look back
    std::int64_t capacity = 0;
  };
  Cache make_cache(std::int64_t slots, std::int64_t capacity);
  // The rows of a step of generation, on the device; all i32.
  struct DecodeRows {
    Tensor tokens, slots, positions;  // [rows]
    Tensor wanted;                    // [wanted]: rows
    // If a block looks back (ModelConfig::past): each row's index among the kept states, slot * capacity + position,
    // [rows]; and that of 0, 1, ... past tokens before, -1 if the text has no such token, [rows, past + 1].
    Tensor places, past;
  };
  // Nothing is checked, uploaded or waited for, so that a step on a GPU can be recorded.
  Tensor decode(Cache& cache, const DecodeRows& rows, const StepSettings& settings,
                const ForwardObserver& observer = {});
  Tensor decode(Cache& cache, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& slots,
                const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& wanted,
                const StepSettings& settings, const ForwardObserver& observer = {});

  void clear_gradients();
  void clear_key_sums();
  // The numbers of the next key update, one plan a layer; the sums and the update are given these and nothing else of
  // the settings and the time. step and progress (0 to 1) are those of the run.
  std::vector<KeyPlan> plan_keys(std::int64_t step, double progress) const;
  bool keys_due(std::int64_t step) const;  // whether this step of training has a key update
  // The update of spec 4 for every layer that learns.
  void update_key_stores(std::span<const KeyPlan> plans);
  void count_key_update(std::span<const KeyPlan> plans);  // the host's part of it, where a recording is played
  void set_key_settings(const KeySettings& settings);     // adaptation chooses its own rules
  // Other settings for the same weights and keys: none of those that decide what they are (SettingRole::model).
  void change_settings(const ModelConfig& config);
  // Goes up whenever tensors of the key stores are replaced: while it stays the same, they are where they were.
  std::int64_t key_memory() const { return key_memory_; }

  Context& context() { return *ctx_; }
  const ModelConfig& config() const { return *parts_.config; }
  ParameterStore& parameters() { return parameters_; }
  std::vector<Layer>& layers() { return parts_.layers; }
  std::vector<KeySums>& key_sums() { return key_sums_; }
  std::vector<Tensor>& epoch_counts() {
    return epoch_counts_;
  }                                    // i64 [E] a layer: choices in training since it was last cleared
  bool layer_learns(int layer) const;  // its keys move
  Tensor& auxiliary_loss() { return auxiliary_loss_; }
  std::uint64_t library_hash() const;  // of all layers; 0 without a library

 private:
  struct Stream;
  struct LayerTape;
  struct Tape;
  // Training, evaluation and generation walk alike: embed, then each layer.
  LayerNorm::Tape embed(const Pass& pass, Stream& stream) const;  // the norm is empty in post-norm
  void layer_forward(const Layer& layer, const Pass& pass, const Tensor* previous_query, LayerTape& tape,
                     Stream& stream) const;
  Pass new_pass(const StepSettings& settings, bool training, const Tensor& tokens, const Tensor& positions);
  Pass new_pass(const StepSettings& settings, bool training, const DeviceBatch& batch);
  Tensor head_input(const DeviceBatch& batch, const StepSettings& settings, const ForwardObserver& observer);
  Tensor forward(const Pass& pass, Tape& tape) const;
  void backward(const DeviceBatch& batch, const Pass& pass, Tape& tape, Tensor dy, const MatricesReady& ready);
  // The norm that follows the feed-forward block of a layer: its own norm2 (post), or the next layer's norm1 or the
  // final norm (pre).
  const LayerNorm& norm_after(int layer) const;
  void make_all_key_sums();

  std::shared_ptr<Context> ctx_;
  ModelParameters parts_;
  ParameterStore parameters_;
  std::vector<KeySums> key_sums_;
  Needs key_needs_;  // what the sums have
  std::int64_t key_memory_ = 0;
  std::vector<Tensor> epoch_counts_;
  Tensor auxiliary_loss_;
};

}  // namespace some
