// `some doctor`: lists the optional parts in this program, the missing ones, and the command that adds each.
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "cli/places.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "comm/backends.h"
#include "core/cpus.h"
#include "core/error.h"
#include "core/files/folders.h"
#include "core/instruction_set.h"
#include "core/system_memory.h"
#include "core/version.h"
#include "plot/assets.h"
#include "runs/run.h"

namespace some {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string part;
  bool found = false;
  std::string what;     // what it is, or what is missing without it
  std::string command;  // adds it; empty if it is found
};

fs::path program_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

// True for a program in a build folder, which can be rebuilt with other parts.
bool is_build() { return exists_path((program_folder() / "CMakeCache.txt").string()); }

// Returns the command that adds a part: a rebuild, or a package for an installed program.
std::string added_by(const std::string& packages, const std::string& build) {
  return is_build() ? build : "apt-get install " + packages;
}

Finding cpu() {
  return {"CPU", true,
          fmt::format("{} usable, {} of memory, instruction set {}", usable_cpus(), format_bytes(memory_limit()),
                      instruction_set()),
          ""};
}

Finding matrix_products() {
  std::string library = computed_by(*recipe_context({.device = on_cpu}, Host()));
  // The number of oneDNN's instruction set identifies a result; it tells a reader nothing.
  if (const std::size_t at = library.find(", instruction set 0x"); at != std::string::npos)
    library.erase(at, library.find(' ', at + 20) - at);
  const bool found = library.starts_with("oneDNN");
  return {"oneDNN", found, found ? "matrix products on the CPU by " + library : library,
          found ? "" : "apt-get install libdnnl-dev"};
}

Finding gpu() {
  try {
    choose_device(DeviceChoice{DeviceChoice::Kind::cuda, std::nullopt});
    return {"GPU", true, "CUDA, and a GPU to compute on", ""};
  } catch (const Error& error) {
    const char* const command =
        SOME_HAVE_CUDA ? "" : "on a machine with a GPU: install CUDA (nvcc), then ./quickstart -DSOME_CUDA=ON";
    return {"GPU", false, error.what(), command};
  }
}

Finding charts() {
  if (!embedded_assets().script.empty()) return {"charts", true, "pages and the board have charts", ""};
  return {"charts", false, "pages contain text and tables only", "./quickstart -DSOME_WEB=ON"};
}

Finding ranks() {
  const std::string problem = mpi_problem();
  if (problem.empty()) return {"MPI", true, "training on several machines (mpirun, srun)", ""};
  return {"MPI", false, "training on one machine only",
          added_by("some-mpi openmpi-bin", "apt-get install libopenmpi-dev openmpi-bin && ./quickstart")};
}

Finding nccl() {
  const std::string problem = nccl_problem();
  if (problem.empty()) return {"NCCL", true, "exchange between GPUs", ""};
  return {"NCCL", false, "ranks exchange through the host instead of from GPU to GPU",
          added_by("some-nccl libnccl2", "apt-get install libnccl-dev && ./quickstart")};
}

// Returns the folder of the Python package: next to the program in a build folder, or where `cmake --install` puts it.
Finding python() {
  for (const fs::path& place :
       {program_folder() / "python", program_folder().parent_path() / "lib/python3/dist-packages"}) {
    const std::string package = (place / "some").string();
    if (!folder_exists(package)) continue;
    for (const std::string& name : list_folder(package)) {
      if (name.starts_with("_some") && name.ends_with(".so"))
        return {"Python", true, fmt::format("import some, with PYTHONPATH={}", place.lexically_normal().string()), ""};
    }
  }
  return {"Python", false, "'import some' does not work", "./quickstart --python, or pip install . in the checkout"};
}

Finding editing() {
  for (const char* name : {"libedit.so.2", "libedit.so.0"}) {
    if (dlopen(name, RTLD_NOW | RTLD_LOCAL) != nullptr) return {"libedit", true, "line editing in 'some chat'", ""};
  }
  return {"libedit", false, "'some chat' reads plain lines", "apt-get install libedit2"};
}

Finding recipes() {
  const std::vector<std::string> folders = recipe_folders(), names = recipe_names();
  if (!names.empty()) return {"recipes", true, fmt::format("{} in {}", names.size(), fmt::join(folders, ", ")), ""};
  return {"recipes", false, "no recipe is found by its name",
          is_build() ? "run some in the checkout" : "install the program again with cmake --install"};
}

void run(bool json) {
  std::vector<Finding> findings = {cpu(), matrix_products(), gpu(), charts(), recipes(), python(), ranks(), editing()};
  if (SOME_HAVE_CUDA) findings.push_back(nccl());
  if (json) {
    nlohmann::json parts = nlohmann::json::array();
    for (const Finding& one : findings)
      parts.push_back({{"part", one.part}, {"found", one.found}, {"what", one.what}, {"command", one.command}});
    print_json({{"program", program_version()}, {"parts", parts}});
    return;
  }
  fmt::print("{}\n", program_version());
  bool missing = false;
  for (const Finding& one : findings) {
    const std::string name = padded(one.part, 9);
    const std::string head = fmt::format("{} {}  ", one.found ? "yes" : "no ", name);
    fmt::print("{}", wrapped(one.what, table_columns(), std::string(head.size(), ' ')).replace(0, head.size(), head));
    if (!one.command.empty()) fmt::print("               to add it: {}\n", one.command);
    missing |= !one.found;
  }
  if (missing) fmt::print("Missing parts are optional; each line states their purpose.\n");
}

void set_up_doctor(Command& command) {
  auto json = std::make_shared<bool>(false);
  command.add_json(*json);
  command.callback([json] { run(*json); });
}

}  // namespace

CommandSpec doctor_command() {
  return {
      .name = "doctor",
      .group = CommandGroup::find_things,
      .summary = "show what this program was built with, what is missing, and how to add it",
      .examples = {{"doctor", ""}},
      .json = "the parts",
      .set_up = set_up_doctor,
  };
}

}  // namespace some
