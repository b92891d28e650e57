#include "analysis/pages/run_header.h"

#include <fmt/format.h>

#include <filesystem>

namespace some {
namespace {

std::string count(std::int64_t number) {
  if (number >= 1000000) return fmt::format("{:.2f} million", static_cast<double>(number) / 1e6);
  return fmt::format("{:.1f} thousand", static_cast<double>(number) / 1e3);
}

}  // namespace

std::string run_name(const OpenedRun& run) {
  const std::filesystem::path folder = std::filesystem::absolute(run.paths.folder).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

Header run_header(const std::string& kind, const OpenedRun& run) {
  const std::string name = run_name(run);
  const ParameterCounts parameters = count_parameters(run.recipe.model);
  Header header{kind, fmt::format("{} at step {}", name, run.step), {}};
  header.facts.emplace_back("run", run.paths.folder);
  if (!run.recipe.title.empty()) header.facts.emplace_back("what", run.recipe.title);
  header.facts.emplace_back("model", model_sizes(run.recipe.model));
  header.facts.emplace_back(
      "parameters", fmt::format("{}, {} of them trained", count(parameters.total), count(parameters.trainable)));
  return header;
}

}  // namespace some
