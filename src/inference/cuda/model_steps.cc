// Computes steps of every form of the model by Model::decode, with matrix products row by row (steps.h).
#include "inference/cuda/step_model.h"

#if SOME_HAVE_CUDA

#include <algorithm>

#include "runtime/row_products.h"
#include "tensor/cuda_state.h"

namespace some::decoding {
namespace {

class ModelSteps : public StepModel {
 public:
  ModelSteps(Model& model, const Model::Cache& cache, const DecoderOptions& options)
      : model_(model), cache_(cache), spare_(static_cast<std::int32_t>(options.slots)) {
    settings_.temperature = options.router_temperature;
    products_.on_gpu = multiply_rows;
    products_.attention_on_gpu = attend_rows;
  }

  void prepare(const StepShape& shape) override {
    if (model_.key_memory() != key_memory_) {
      key_memory_ = model_.key_memory();
      ++generation_;
    }
    if (slots_ && slots_.elements() >= shape.rows) return;
    const Device& device = model_.context().device;
    if (slots_) device_synchronize(device);
    ++generation_;
    for (Tensor* one : {&slots_, &positions_, &places_}) *one = Tensor::zeros({shape.rows}, DType::i32, device);
    before_ = Tensor::zeros({shape.rows * (model_.config().past() + 1)}, DType::i32, device);
  }
  std::int64_t generation() const override { return generation_; }
  bool uses_arena() const override { return true; }
  std::int64_t prompt_rows() const override { return 1024; }  // the results of all layers are in memory at once

  StepOutput run(const StepShape& shape, const StepRows& rows) override {
    Context& ctx = model_.context();
    const std::int64_t past = model_.config().past(), wanted = std::max<std::int64_t>(shape.wanted, 1);
    const auto of_rows = [&](Tensor& all) { return all.view(0, {shape.rows}); };
    const auto wrapped = [&](std::int32_t* data, std::int64_t count) {
      return Tensor::wrap(data, {count}, DType::i32, ctx.device, nullptr);
    };
    CudaState& state = *ctx.cuda;
    launch(state, RowPlaces{rows.slots, rows.positions, static_cast<int>(shape.rows), static_cast<int>(past), spare_,
                            cache_.capacity, slots_.data<std::int32_t>(), positions_.data<std::int32_t>(),
                            places_.data<std::int32_t>(), before_.data<std::int32_t>()});
    Model::DecodeRows in{
        wrapped(rows.tokens, shape.rows), of_rows(slots_), of_rows(positions_), wrapped(rows.row_of, wanted), {}, {}};
    if (past > 0) {
      in.places = of_rows(places_);
      in.past = before_.view(0, {shape.rows, past + 1});
    }
    ForwardObserver observer;
    Tensor states;
    observer.states = &states;
    if (shape.routes) {
      observer.layer = [&](int layer, const RouterTape& tape) {
        RowReport report{tape.routing.indices.data<std::int32_t>(), tape.routing.gates.data<float>(),
                         static_cast<int>(shape.rows), rows.report};
        report.report.layer = layer;
        launch(state, report);
      };
    }
    const RowProductsScope by_row(ctx, products_);
    Tensor logits = model_.decode(cache_, in, settings_, observer);
    return {logits.data<float>(), static_cast<const bf16*>(states.raw()), false};
  }

 private:
  Model& model_;
  Model::Cache cache_;
  std::int32_t spare_;
  StepSettings settings_;
  RowProducts products_;
  std::int64_t key_memory_ = 0, generation_ = 0;
  Tensor slots_, positions_, places_, before_;
};

}  // namespace

bool has_model_steps(Model& model, const DecoderOptions& options) {
  const ModelConfig& config = model.config();
  const Context& ctx = model.context();
  if (!ctx.device.is_cuda() || ctx.compute != DType::bf16 || ctx.expert_group.size() > 1 || ctx.cuda->major != 9)
    return false;
  return options.adapt_window <= 0 && !options.half_weights && config.causal && config.d_model % 8 == 0 &&
         config.vocab % 4 == 0 && config.vocab <= largest_vocab;
}

std::unique_ptr<StepModel> make_model_steps(Model& model, const Model::Cache& cache, const DecoderOptions& options) {
  return std::make_unique<ModelSteps>(model, cache, options);
}

}  // namespace some::decoding

#endif
