// A golden fixture read from disk (formats in docs/verify.md). Validates the header, and returns tensors only with the
// shape and the id range that the case requires. Nothing from the file is used before it is checked here.
#pragma once

#include <string>
#include <vector>

#include "core/files/json.h"
#include "model/config.h"
#include "tensor/safetensors.h"

namespace some {

class Fixture {
 public:
  explicit Fixture(const std::string& path);  // throws (bad_input) if the file is not a fixture

  const std::string& path() const { return file_.path(); }
  const std::string& kind() const { return kind_; }
  const JsonObject& config() const { return config_; }
  ModelConfig model_config() const;          // checks every number against its bounds
  ModelConfig checked_model_config() const;  // also checks that together they form a valid model
  // Throws if a case would need far more memory than its own tensors, which means that a size in its config is wrong.
  // `rows`: tokens per pass.
  void check_proportion(const ModelConfig& config, std::int64_t rows) const;

  bool has(const std::string& name) const { return file_.has(name); }
  std::vector<std::string> names() const { return file_.names(); }
  Shape shape(const std::string& name, int rank) const;  // shape of a tensor with `rank` axes, none of them empty
  Tensor numbers(const std::string& name, const Shape& shape) const;  // floating-point tensor as stored
  // Returns integers from `low` to `high`, as i32.
  Tensor ids(const std::string& name, const Shape& shape, std::int64_t low, std::int64_t high) const;
  // Returns the expected result with this name (expect.NAME), which must have `size` elements.
  std::vector<double> expected(const std::string& name, std::size_t size) const;
  std::optional<double> expected_measure(const std::string& name) const;  // a number from the metadata

 private:
  Tensor load(const std::string& name, const Shape& shape) const;
  SafetensorsFile file_;
  std::string kind_;
  JsonObject config_;
};

}  // namespace some
