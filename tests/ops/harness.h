// One table of cases per operation, used in several ways (harness.cc): a naive reference in double precision, gradients
// by finite differences, equal bits for any number of threads, and every other precision and device against the CPU in
// double.
//
// A case defines the inputs (numbers that are all representable in bfloat16, so that every precision starts from the
// same ones), how the operation is run on them, and the result of a plain implementation. Adding a case to a table adds
// all the tests.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/random.h"
#include "runtime/context.h"
#include "tensor/param.h"
#include "tensor/tensor.h"

namespace some::test {

struct Array {
  Shape shape;
  std::vector<double> values;

  double& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  std::int64_t dim(int axis) const { return shape[axis]; }
};
using Arrays = std::map<std::string, Array>;

Array zeros(Shape shape);
// Returns normally distributed numbers times `scale`, from the stream with this name.
Array normals(Shape shape, const std::string& name, double scale = 1.0);
Array whole_numbers(Shape shape, const std::string& name, int below);

// The context an operation runs in, with conversions between Arrays and its tensors. Tensors for results are first
// filled with NaN, which exposes any element that the operation did not write.
class Lab {
 public:
  Lab(const std::string& device, const std::string& precision, int threads = 0)
      : context_(make_context(device, precision, make_host(threads))) {}
  Context& context() { return *context_; }

  Tensor compute(const Array& array) { return put(array, context_->compute); }
  Tensor master(const Array& array) { return put(array, context_->master); }
  Tensor whole(const Array& array) { return put(array, DType::i32); }
  Tensor new_compute(Shape shape) { return unset(std::move(shape), context_->compute); }
  Tensor new_master(Shape shape) { return unset(std::move(shape), context_->master); }
  Tensor new_whole(Shape shape) { return Tensor::zeros(std::move(shape), DType::i32, context_->device); }
  // Returns a parameter whose gradient starts as `gradient`, or that has no gradient.
  Param param(const Array& value);
  Param param(const Array& value, const Array& gradient);

 private:
  Tensor put(const Array& array, DType type);
  Tensor unset(Shape shape, DType type);
  std::unique_ptr<Context> context_;
};

Array read(const Tensor& tensor);  // from any device and type

// `result` is the gradient of the case's loss with respect to the input `input`, plus the input `start` if the
// operation adds to existing values.
struct Gradient {
  std::string input, result, start = "";
};
// One term of a case's loss, which is the sum of the inner products of input `weight` and result `result`; without a
// weight, the result itself.
struct LossTerm {
  std::string result, weight;
};

struct OpCase {
  std::string name;  // letters, digits and _ only
  std::function<Arrays()> inputs;
  std::function<Arrays(Lab&, const Arrays&)> run;
  std::function<Arrays(const Arrays&)> reference;  // some or all of the results, by plain loops in double
  std::vector<LossTerm> loss;
  std::vector<Gradient> gradients;
  std::vector<std::string> exact;  // results that must be equal in every precision (indices)
  double bf16_tolerance = 2e-2;    // relative to the largest magnitude of the result
};

void PrintTo(const OpCase& one, std::ostream* stream);  // prints the name, in messages of failed tests

std::vector<OpCase>& all_cases();
// At namespace scope: `const bool added = add_cases({...});`
bool add_cases(std::vector<OpCase> cases);

// Returns the largest difference, relative to the largest magnitude of `expected` (at least 1e-30); infinity if a value
// is NaN or shapes differ.
double difference(const Array& expected, const Array& actual);

}  // namespace some::test
