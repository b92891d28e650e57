// Which group a process was started in, and the library that links its ranks.
#include <dlfcn.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/group.h"

namespace some {
namespace {

std::optional<int> number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::string_view(text).size();
  const auto read = std::from_chars(text, end, value);
  return read.ec == std::errc() && read.ptr == end && value >= 0 ? std::optional(value) : std::nullopt;
}

// Beside the program, or where it is installed.
std::vector<std::string> places_of(const std::string& library) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {(program / library).string(), (program.parent_path() / SOME_PLUGIN_FOLDER / library).string()};
}

OpenLink find_backend(const std::string& library) {
  std::string problem;
  for (const std::string& place : places_of(library)) {
    if (!std::filesystem::exists(place)) continue;
    // MPI opens libraries of its own, which look for its symbols.
    if (void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      if (const auto open = reinterpret_cast<OpenLink>(dlsym(handle, open_link_symbol))) return open;
    }
    if (const char* const reason = dlerror()) problem = reason;
  }
  if (!problem.empty())
    failed("several ranks were started, and MPI cannot be used here: {}; install it (Debian: openmpi-bin)", problem);
  failed(
      "several ranks were started, but this program was built without MPI: install it (Debian: libopenmpi-dev, "
      "openmpi-bin), run cmake again and build; or start one process, without mpirun or srun");
}

}  // namespace

RankEnvironment rank_environment() {
  struct Names {
    const char *rank, *size;
  };
  // Open MPI's mpirun; those of MPICH, Intel and others; srun (in a job script itself SLURM_NTASKS is set too, but
  // there is only one process).
  for (const Names& names : {Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, Names{"PMI_RANK", "PMI_SIZE"},
                             Names{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
    const auto rank = number_in_environment(names.rank), size = number_in_environment(names.size);
    if (rank && size && *size > 1) return {*rank, *size};
  }
  return {};
}

Group open_group(std::function<void(const std::string&)> last_words) {
  const RankEnvironment started = rank_environment();
  if (started.size == 1) return {};
  // Lives as long as the process: the link's own thread may speak up at any time.
  struct Listener {
    std::function<void(const std::string&)> last_words;
    Group group;
    std::atomic<bool> opened{false};
  };
  auto* const listener = new Listener;
  listener->last_words = std::move(last_words);
  LinkOptions options;
  options.whose = listener;
  options.lost = [](void* whose, int rank, double seconds) {
    const Listener& all = *static_cast<Listener*>(whose);
    const std::string host = all.opened ? " on " + all.group.host(rank) : "";
    if (all.last_words)
      all.last_words(
          fmt::format("rank {}{} was not heard of for {:.0f} seconds: its process was stopped or hangs, or its "
                      "machine cannot be reached; all ranks end, the last checkpoint is as it was",
                      rank, host, seconds));
  };
  if (const auto seconds = number_in_environment("SOME_RANK_PATIENCE"); seconds && *seconds > 0)
    options.patience_seconds = *seconds;
  std::string problem;
  std::shared_ptr<Link> link(find_backend("libsome_mpi.so")(options, problem));
  if (!link) failed("MPI cannot begin: {}", problem);
  if (link->size() != started.size)
    failed(
        "{} processes were started, but MPI sees {}: start them with the mpirun of the MPI this program was built "
        "with, or with srun --mpi=pmix",
        started.size, link->size());
  listener->group = Group(std::move(link));
  listener->opened = true;
  return listener->group;
}

}  // namespace some
