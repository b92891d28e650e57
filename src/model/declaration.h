// Declares every parameter of a model once: its name in checkpoints, shape and initialization, whether it is trained,
// how often a token is multiplied by it, and the member of the model that it is bound to. Parameter store, counts,
// FLOPs, memory forecast and checkpoints are derived from this list, so a new parameter is one line and one member of
// its block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace some {

struct Parameter {
  enum class Kind {
    trained,  // trained by gradients: stored in the parameter store and in checkpoints
    library,  // drawn from the expert library and frozen: regenerated, never stored
    absent,   // an expert's bias: always zero and not stored, but included in counts as in the published totals
  };
  std::string name;
  Shape shape;
  Initial initial;  // of trained parameters
  Kind kind = Kind::trained;
  // The layer it belongs to. The head counts as the layer after the last; -1: the embedding and the final norm.
  int layer = -1;
  bool of_expert = false;
  bool row_sums = false;   // its gradient is a sum over rows, which a GPU completes for all layers together
  double uses = 0;         // multiplications per token and number: 1 in a dense layer, k / E in an expert
  Param* bound = nullptr;  // null for parameters without a member

  bool trained() const { return kind == Kind::trained; }
  std::int64_t count() const { return shape.elements(); }
};

Initial uniform(std::int64_t fan_in);  // U(+-1/sqrt(fan_in))

// The list under construction.
class Declaration {
 public:
  explicit Declaration(const ModelConfig& config) : config_(config) {}
  std::vector<Parameter> list;

  // Assigns the following declarations to this layer, which becomes part of their names.
  void in_layer(int layer);
  void outside_of_layers(int layer = -1);  // Parameter::layer
  Parameter& add(Param& bound, const std::string& name, Shape shape, Initial initial, double uses = 0);
  void linear(Param& weight, Param& bias, const std::string& name, std::int64_t out, std::int64_t in,
              Initial initial_weight, Initial initial_bias);
  void linear(Param& weight, Param& bias, const std::string& name, std::int64_t out, std::int64_t in) {
    linear(weight, bias, name, out, in, uniform(in), uniform(in));
  }
  void norm(Param& weight, Param& bias, const std::string& name);
  // Declares one matrix per expert: a token is multiplied by k of the E.
  Parameter& expert(Param& bound, const std::string& name, std::int64_t out, std::int64_t in, Initial initial);
  // Declares an expert's own matrix, drawn from the library; its bias is always zero.
  void library(Param& bound, const std::string& name, std::int64_t out, std::int64_t in);

 private:
  const ModelConfig& config_;
  std::string prefix_;
  int layer_ = -1;
};

// Calls visit(parameter, times) for the parameters of one layer (times = config.layers) and for those outside the
// layers, which is sufficient for sums over all of them.
void visit_parameters(const ModelConfig& config, const std::function<void(const Parameter&, double times)>& visit);

}  // namespace some
