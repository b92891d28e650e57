// The transformer (spec 2): parameters, library and keys of every layer, and the walk of a batch through them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "model/config.h"
#include "model/declaration.h"
#include "model/layer.h"
#include "model/parameters.h"
#include "runtime/context.h"

namespace some {

// A batch on the context's device. Memory comes from the arena: it lives until the arena is reset.
struct DeviceBatch {
  Tensor tokens, targets, positions;  // i32 [T]
  Sequences sequences;
  std::int64_t predicted = 0;
  std::int32_t smallest_id = 0, largest_id = -1;  // of the tokens; largest_id of the targets too
};
DeviceBatch upload(Context& ctx, const Batch& batch);

// Everything a training pass is given by value. A recorded step (train/step.h) is played again only where this is
// equal.
struct TrainPass {
  int top_k = 0;                    // 0: the configured one
  double temperature = 0;           // 0: train_temp
  double loss_scale = 1;            // the loss is loss_scale * sum of nll: 1 / predicted positions of the whole step
  bool count_pads = false;          // every position takes part in the key update
  std::vector<KeyPlan> keys;        // Model::plan_keys; empty: no key sums are collected
  std::int64_t first_position = 0;  // positions of the step's micro-batches before this one
  bool operator==(const TrainPass&) const = default;
};

// Told of every layer's queries and choices during an evaluation pass; tensors are valid only during the call.
using LayerObserver = std::function<void(int layer, const SomeTape& tape)>;

struct EvalPass {
  double temperature = 0;  // 0: eval_temp
  LayerObserver observe;   // may be empty
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
  Tensor train_pass(const DeviceBatch& batch, const TrainPass& pass, const MatricesReady& ready = {});
  // Forward only. nll [T] as above; `states`, where given, becomes what enters the head, [T, d] compute.
  Tensor evaluate(const DeviceBatch& batch, const EvalPass& pass, Tensor* states = nullptr);
  // Where the layers' experts are shared out among ranks (Context::expert_group), every pass is one that all of them
  // make at the same time. One that has no tokens for a pass of the others serves them in it; elsewhere this does
  // nothing. Training: gradients of experts that learn are added to.
  void serve_pass(bool training);
  // Logits [T, V] in master precision.
  Tensor logits(const DeviceBatch& batch, const EvalPass& pass);

  // Generation with a key/value cache: new tokens of several sequences, each in a slot. Returns the logits of the rows
  // named in `wanted`; `states` as above, of those rows.
  struct Cache {
    std::vector<Tensor> layers;  // [slots, capacity, 2d] compute
    std::vector<Tensor> states;  // [slots * capacity, d] compute: what feed-forward blocks read; where they look back
    std::int64_t capacity = 0;
  };
  Cache make_cache(std::int64_t slots, std::int64_t capacity);
  Tensor decode(Cache& cache, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& slots,
                const std::vector<std::int32_t>& positions, const std::vector<std::int32_t>& wanted,
                const EvalPass& pass, Tensor* states = nullptr);

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
  const ModelConfig& config() const { return config_; }
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
  struct Block;
  struct Tape;
  // Training, evaluation and generation walk alike: embed, then for each layer its attention and after_attention.
  NormTape embed(const Tensor& tokens, const Tensor& positions, Stream& stream);  // the norm is empty in post-norm
  void after_attention(const Layer& layer, const Pass& pass, const Tensor* previous_query, Block& block,
                       Stream& stream);
  Tensor conv_table(const DeviceBatch& batch);  // ops/conv.h; empty where no block looks back
  Pass eval_settings(const EvalPass& options, const Tensor& tokens);
  Tensor head_input(const DeviceBatch& batch, const EvalPass& pass);
  Tensor forward(const DeviceBatch& batch, const Pass& pass, Tape& tape);
  void backward(const DeviceBatch& batch, const Pass& pass, Tape& tape, Tensor dy, const MatricesReady& ready);
  // The norm that follows the feed-forward block of a layer: its own norm2 (post), or the next layer's norm1 or the
  // final norm (pre).
  std::pair<Param, Param> norm_after(int layer) const;
  Tensor temperature_tensor(double value);
  void make_all_key_sums();

  std::shared_ptr<Context> ctx_;
  ModelConfig config_;
  ParameterStore parameters_;
  ModelParameters parts_;
  std::vector<KeySums> key_sums_;
  Needs key_needs_;  // what the sums have
  std::int64_t key_memory_ = 0;
  std::vector<Tensor> epoch_counts_;
  Tensor auxiliary_loss_;
};

}  // namespace some
