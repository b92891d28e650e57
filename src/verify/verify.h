// Golden fixtures: runs a case through the ordinary code and compares what comes out (formats in docs/verify.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"

namespace some {

struct Comparison {
  std::string name;  // of the expected tensor
  // The largest absolute difference over the expected tensor's largest magnitude; of indices, how many differ.
  double error = 0;
  double tolerance = 0;
  bool passed() const { return error <= tolerance; }
};

struct VerifyReport {
  std::string file, kind;
  std::vector<Comparison> comparisons;
  int choices_differing = 0;  // bf16 only: near ties that fell the other way
  bool passed() const;
  const Comparison* worst() const;  // relative to its tolerance
};

struct VerifyOptions {
  DeviceName device;
  Precision precision = Precision::fp32;
  std::optional<double> tolerance;  // one for everything; otherwise the precision's own
  // Ranks that hold the experts of every layer together (train.expert_ranks). Each is called alike; the first has the
  // tokens and the full report, the others serve it and compare what all of them have.
  Group group{};
};

// Every .safetensors file of a folder, or the file itself. bad_input when there is none or a file is no fixture.
std::vector<std::string> find_fixtures(const std::vector<std::string>& paths);
VerifyReport verify_fixture(const std::string& path, const VerifyOptions& options);

}  // namespace some
