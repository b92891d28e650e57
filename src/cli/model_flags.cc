#include "cli/model_flags.h"

#include "cli/terminal.h"
#include "runs/run.h"

namespace some {

void add_model_flags(Command& command, ModelFlags& flags) {
  command.add_option("RUN", flags.run, "run, by name (in runs) or folder")->run_folder()->required();
  command.add_option("--checkpoint", flags.checkpoint, "checkpoint: latest, best, or a step number")
      ->capture_default_str();
  command.add_option("--device", flags.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--precision", flags.precision, "fp32, bf16 or f64 (CPU); default: as trained");
  command.add_option("--threads", flags.threads, "CPU threads; 0 = all available")
      ->range(0, max_threads)
      ->capture_default_str();
}

OpenedRun open_run(const ModelFlags& flags, const Group& group) {
  const Log log = group.root() ? terminal_log() : Log();
  return open_run(flags.run, {flags.checkpoint, device_choice(flags.device), parse_optional_precision(flags.precision),
                              make_host(flags.threads, log, group)});
}

}  // namespace some
