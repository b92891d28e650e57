#include "verify/verify.h"

#include <fmt/format.h>

#include "cli/program.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "core/error.h"

namespace some {
namespace {

struct VerifyFlags {
  std::vector<std::string> paths;
  std::string device = "cpu", precision = "fp32";
  double tolerance = 0;
  bool json = false, all = false;
};

void run(const VerifyFlags& options) {
  nlohmann::json files = nlohmann::json::array();
  int failed_files = 0;
  double worst_overall = 0;
  const Group& group = join_ranks();
  VerifyOptions how{choose_device(options.device), parse_precision(options.precision), std::nullopt, group};
  if (options.tolerance > 0) how.tolerance = options.tolerance;
  for (const std::string& path : find_fixtures(options.paths)) {
    const VerifyReport report = verify_fixture(path, how);
    const Comparison* worst = report.worst();
    // Other ranks hold only part of what rank 0 compares, but that part must match the file.
    const bool passed = group.all_reduce_max(report.passed() ? 0 : 1) == 0;
    failed_files += !passed;
    if (!group.root()) continue;
    nlohmann::json tensors = nlohmann::json::array();
    for (const Comparison& c : report.comparisons) {
      tensors.push_back({{"name", c.name}, {"error", c.error}, {"tolerance", c.tolerance}, {"passed", c.passed()}});
      if (c.error != 0.0) worst_overall = std::max(worst_overall, c.error);
    }
    files.push_back({{"file", path},
                     {"kind", report.kind},
                     {"passed", passed},
                     {"choices_differing", report.choices_differing},
                     {"tensors", tensors}});
    if (options.json) continue;
    fmt::print("{}  {:<6} {:<40} {:3} tensors  worst {:.1e} of {:.1e} allowed ({})\n", passed ? "ok  " : "FAIL",
               report.kind, path.substr(path.find_last_of('/') + 1), report.comparisons.size(),
               worst ? worst->error : 0.0, worst ? worst->tolerance : 0.0, worst ? worst->name : "-");
    if (report.choices_differing > 0)
      fmt::print("      {} assignments differ at near ties; later results are not compared\n",
                 report.choices_differing);
    for (const Comparison& c : report.comparisons) {
      if (options.all || !c.passed())
        fmt::print("      {} {:<44} {:.3e} of {:.1e}\n", c.passed() ? "ok  " : "FAIL", c.name, c.error, c.tolerance);
    }
  }
  const bool all_passed = failed_files == 0;
  if (!all_passed) exit_code = 1;
  if (!group.root()) return;
  if (options.json) {
    nlohmann::json out{
        {"passed", all_passed}, {"device", options.device}, {"precision", options.precision}, {"files", files}};
    if (!group.alone()) out["expert_ranks"] = group.size();
    print_json(out);
  } else {
    fmt::print("{}: {} files, {} failed ({}, {}{})\n", all_passed ? "passed" : "FAILED", files.size(), failed_files,
               options.device, options.precision,
               group.alone() ? "" : fmt::format(", experts on {} ranks", group.size()));
  }
}

void set_up_verify(Command& command) {
  auto options = std::make_shared<VerifyFlags>();
  command.add_option("PATHS", options->paths, "fixture files or folders of them")->required();
  command.add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--precision", options->precision, "fp32, bf16 or f64 (CPU)")->capture_default_str();
  command.add_option("--tolerance", options->tolerance, "tolerance for all tensors (default: per precision)");
  command.add_flag("--all", options->all, "show every tensor");
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec verify_command() {
  return {
      .name = "verify",
      .group = CommandGroup::experiments,
      .summary = "compare results with reference fixtures",
      .examples = {{"verify tests/reference/fixtures --precision f64", "see docs/verify.md"}},
      .works_on_ranks = true,
      .json = "the result",
      .set_up = set_up_verify,
  };
}

}  // namespace some
