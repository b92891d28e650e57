// Stores all trainable parameters of a model in flat buffers: one pass serves the optimizer, the gradient norm and the
// compute copy.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "tensor/param.h"

namespace some {

// Initialization of a parameter (spec 2, "Initial values"); each parameter has its own random stream, with its name.
struct Initial {
  enum class Kind { zero, one, uniform, normal, identity, constant, library } kind = Kind::zero;
  double scale = 0;  // half-width of uniform, standard deviation of normal, value of constant
};

struct Parameter;  // model/declaration.h

class ParameterStore {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    std::int64_t offset;
    Initial initial;
    // As in Parameter (model/declaration.h).
    int layer = -1;
    bool row_sums = false;
  };

  void declare(const Parameter& parameter);
  // Allocates the buffers. Gradients and optimizer moments exist only for training.
  void allocate(Context& ctx, bool training);
  void draw_initial_values(Context& ctx, std::uint64_t seed);

  Param param(const std::string& name) const;  // throws if it is not found
  bool has(const std::string& name) const { return index_.count(name) != 0; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::int64_t parameters() const { return parameters_; }  // number of elements, without padding between tensors
  std::int64_t flat_size() const { return size_; }

  Tensor view(const Tensor& flat, const Entry& entry) const { return flat.view(entry.offset, entry.shape); }
  void set(Context& ctx, const std::string& name, const Tensor& values);  // any float type, any device
  void refresh_compute(Context& ctx);                                     // converts values to the compute copy

  Tensor value, compute, grad, first, second;  // flat

 private:
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;
  std::int64_t size_ = 0;
  std::int64_t parameters_ = 0;
};

}  // namespace some
