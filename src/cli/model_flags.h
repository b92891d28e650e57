// Options shared by the commands that open a run.
#pragma once

#include <string>

#include "cli/command.h"
#include "comm/group.h"

namespace some {
struct OpenedRun;  // runs/run.h
}

namespace some {

constexpr int max_threads = 4096;

struct ModelFlags {
  std::string run, checkpoint = "latest", device = "auto", precision;
  int threads = 0;
};
void add_model_flags(Command& command, ModelFlags& flags);
OpenedRun open_run(const ModelFlags& flags, const Group& group = {});

}  // namespace some
