// A golden fixture as it comes from disk (formats in docs/verify.md): what its header says, checked, and its tensors,
// handed out only in the shape and with the ids that the case calls for. Nothing that a file says is used before it is
// checked here.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "model/config.h"
#include "tensor/safetensors.h"

namespace some {

class Fixture {
 public:
  explicit Fixture(const std::string& path);  // bad_input when it is no fixture

  const std::string& path() const { return file_.path(); }
  const std::string& kind() const { return kind_; }
  const JsonObject& config() const { return config_; }
  ModelConfig model_config() const;          // every number within its bounds
  ModelConfig checked_model_config() const;  // and all of them together a model
  // Refuses a case that would take far more memory than its own tensors do: a size in its config is wrong. `rows`:
  // tokens of one pass.
  void check_proportion(const ModelConfig& config, std::int64_t rows) const;

  bool has(const std::string& name) const { return file_.has(name); }
  std::vector<std::string> names() const { return file_.names(); }
  Shape shape(const std::string& name, int rank) const;  // of a tensor with so many axes, none of them empty
  Tensor numbers(const std::string& name, const Shape& shape) const;  // a tensor of numbers as stored
  // Whole numbers from `low` to `high`, as i32.
  Tensor ids(const std::string& name, const Shape& shape, std::int64_t low, std::int64_t high) const;
  // What must come out under this name (expect.NAME), as many numbers as did come out.
  std::vector<double> expected(const std::string& name, std::size_t size) const;
  std::optional<double> expected_measure(const std::string& name) const;  // a number of the metadata

 private:
  Tensor load(const std::string& name, const Shape& shape) const;
  SafetensorsFile file_;
  std::string kind_;
  JsonObject config_;
};

}  // namespace some
