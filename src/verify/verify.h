// Golden fixtures: runs a case through the production code and compares the results (formats in docs/verify.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"

namespace some {

struct Comparison {
  std::string name;  // name of the expected tensor
  // Largest absolute difference divided by the largest magnitude of the expected tensor; for indices, the number that
  // differ.
  double error = 0;
  double tolerance = 0;
  bool passed() const { return error <= tolerance; }
};

struct VerifyReport {
  std::string file, kind;
  std::vector<Comparison> comparisons;
  int choices_differing = 0;  // bf16 only: near ties resolved differently
  bool passed() const;
  const Comparison* worst() const;  // relative to its tolerance
};

struct VerifyOptions {
  DeviceName device;
  Precision precision = Precision::fp32;
  std::optional<double> tolerance;  // one tolerance for all comparisons; none: the default of the precision
  // Ranks that share the experts of every layer (train.expert_ranks). All ranks make the same call; rank 0 has the
  // tokens and the full report, the other ranks serve it and compare the results that all ranks have.
  Group group{};
  int threads = 0;  // 0: all available
};

// Returns every .safetensors file of a folder, or the file itself. Throws (bad_input) if there is none or if a file is
// not a fixture.
std::vector<std::string> find_fixtures(const std::vector<std::string>& paths);
VerifyReport verify_fixture(const std::string& path, const VerifyOptions& options);

}  // namespace some
