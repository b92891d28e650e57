// Every number a model is made of, declared once: its name in checkpoints, its shape and first values, whether it
// learns, how often a token meets it, and the member of the model it is bound to. The store, the counts, the
// operations, the memory and the checkpoints all follow from this list, so a new parameter is one line and one member
// of its block.
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
    trained,  // by gradient: it is in the store and in checkpoints
    library,  // drawn from the expert library and left as it is: rebuilt, never stored
    absent,   // an expert's bias: always zero and nowhere kept, but counted as the published totals count it
  };
  std::string name;
  Shape shape;
  Initial initial;  // of trained ones
  Kind kind = Kind::trained;
  // The layer it belongs to. The head counts as the layer after the last; -1: the embedding and the final norm.
  int layer = -1;
  bool of_expert = false;
  bool row_sums = false;   // its gradient is a sum over rows, which a GPU completes for all layers together
  double uses = 0;         // how often a token is multiplied by each number: 1 in a dense layer, k / E in an expert
  Param* bound = nullptr;  // null for absent ones

  bool trained() const { return kind == Kind::trained; }
  std::int64_t count() const { return shape.elements(); }
};

Initial uniform(std::int64_t fan_in);  // U(+-1/sqrt(fan_in))

// The list as it is being made.
class Declaration {
 public:
  explicit Declaration(const ModelConfig& config) : config_(config) {}
  std::vector<Parameter> list;

  // Parameters declared from here on belong to this layer, which is part of their names.
  void in_layer(int layer);
  void outside_of_layers(int layer = -1);  // Parameter::layer
  Parameter& add(Param& bound, const std::string& name, Shape shape, Initial initial, double uses = 0);
  void linear(Param& weight, Param& bias, const std::string& name, std::int64_t out, std::int64_t in,
              Initial initial_weight, Initial initial_bias);
  void linear(Param& weight, Param& bias, const std::string& name, std::int64_t out, std::int64_t in) {
    linear(weight, bias, name, out, in, uniform(in), uniform(in));
  }
  void norm(Param& weight, Param& bias, const std::string& name);
  // A matrix of every expert: a token is multiplied by k of the E.
  Parameter& expert(Param& bound, const std::string& name, std::int64_t out, std::int64_t in, Initial initial);
  // An expert's own matrix, drawn from the library; its bias is always zero.
  void library(Param& bound, const std::string& name, std::int64_t out, std::int64_t in);

 private:
  const ModelConfig& config_;
  std::string prefix_;
  int layer_ = -1;
};

// Calls visit(parameter, times) for the parameters of one layer (times = config.layers) and those outside of the
// layers: enough for sums over all of them.
void visit_parameters(const ModelConfig& config, const std::function<void(const Parameter&, double times)>& visit);

}  // namespace some
