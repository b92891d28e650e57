// The router: computes a query per token, its nearest keys, and the gates of the selected experts (spec 3.1 - 3.4).
#pragma once

#include "core/setting.h"
#include "keys/key_store.h"
#include "model/declaration.h"
#include "model/pass.h"
#include "ops/linear.h"
#include "ops/route.h"
#include "ops/router_backward.h"
#include "runtime/context.h"

namespace some {

struct RouterTape {
  Tensor pre, act;  // only for router = "mlp"
  Tensor raw, query, norms;
  Tensor temperature;  // [1] master
  Routing routing;
};

// Another layer with the router's input: y = x W^T. Its GEMM is fused with the router's first one.
struct SecondReader {
  const Param& weight;
  Tensor y;  // output; in the backward pass its gradient
};

class Router {
 public:
  Router(const ModelConfig& config, int layer) : config_(&config), layer_(layer) {}
  static void settings(SettingList<ModelConfig>& list);
  static void gate_settings(SettingList<ModelConfig>& list);
  static void check(const ModelConfig& config);
  static void check_partitions(const ModelConfig& config);
  static void check_gates(const ModelConfig& config);
  void declare(Declaration& declare);
  void declare_temperature(Declaration& declare);

  bool is_mlp() const { return config_->router == RouterKind::mlp; }
  const Tensor& log_temperature() const { return log_temperature_.value; }  // empty with temperature = "fixed"

  // previous_query: query of the layer below, null if there is none. second: only for router = "mlp"; may be null.
  void forward(Context& ctx, const Pass& pass, const Tensor& x, const Tensor* previous_query, SecondReader* second,
               RouterTape& tape) const;
  // Backward pass in two steps. The result of begin_backward() is completed by router_backward()
  // (ops/router_backward.h), which can run concurrently with the experts' backward pass; otherwise backward() does this
  // too. dx is ADDED to.
  RouterBackward begin_backward(Context& ctx, const Pass& pass, const RouterTape& tape, const Tensor* dquery,
                                Tensor* dprevious_query) const;
  void backward(Context& ctx, RouterBackward& rest, const Tensor& x, const SecondReader* second, Tensor& dx) const;

  KeyState keys;  // moved by the key update, not trained by gradients

 private:
  const ModelConfig* config_;
  int layer_;
  Param weight_[2], bias_[2];  // the second pair only with router = "mlp"
  Param log_temperature_;      // temperature = "learned"
};

}  // namespace some
