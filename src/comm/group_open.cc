// Opens the group that a process was started in, and the library that connects its ranks.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/backends.h"
#include "comm/group_state.h"
#include "comm/launcher.h"
#include "comm/watchdog.h"
#include "core/error.h"
#include "core/heartbeat.h"

namespace some {
namespace {

std::optional<int> environment_number(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::string_view(text).size();
  const auto read = std::from_chars(text, end, value);
  return read.ec == std::errc() && read.ptr == end && value >= 0 ? std::optional(value) : std::nullopt;
}

// Returns the watchdog timeout: the seconds without a heartbeat after which a rank counts as lost.
double watchdog_timeout_from_environment() {
  const char* const name = "SOME_RANK_PATIENCE";
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == 0) return 40;
  const std::optional<int> value = environment_number(name);
  if (!value || *value < 1)
    bad_input(Code::rank_environment, "environment variable {} = '{}': must be an integer >= 1, in seconds", name,
              text);
  return *value;
}

// Returns the possible paths of a library: in the directory of the program, and where it is installed.
std::vector<std::string> places_of(const std::string& library) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {(program / library).string(), (program.parent_path() / SOME_PLUGIN_FOLDER / library).string()};
}

// Opens a plugin library. Returns null if it is not found, or if it cannot be opened; then `problem` is the reason.
void* open_library(const std::string& library, int flags, std::string& problem) {
  for (const std::string& place : places_of(library)) {
    if (!std::filesystem::exists(place)) continue;
    if (void* const handle = dlopen(place.c_str(), flags)) return handle;
    if (const char* const reason = dlerror()) problem = reason;
  }
  return nullptr;
}

template <typename Function>
Function library_function(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

OpenLink find_mpi() {
  std::string problem;
  // RTLD_GLOBAL: MPI loads plugins, which look up its symbols.
  if (void* const library = open_library("libsome_mpi.so", RTLD_NOW | RTLD_GLOBAL, problem)) {
    if (const auto open = library_function<OpenLink>(library, open_link_symbol)) return open;
    problem = "libsome_mpi.so belongs to another version of this program";
  }
  if (!problem.empty())
    failed(Code::ranks_unsupported,
           "several ranks were started, but MPI cannot be used: {}; install it (Debian: openmpi-bin)", problem);
  failed(Code::ranks_unsupported,
         "several ranks were started, but this program was built without MPI, or its library libsome_mpi.so is not "
         "installed (Debian: package some-mpi; to build it, libopenmpi-dev and openmpi-bin); install it, or start one "
         "process, without mpirun or srun");
}

struct NcclLibrary {
  MakeGpuId make_id = nullptr;
  OpenGpuLink open = nullptr;
};

NcclLibrary find_nccl(std::string& problem) {
  void* const library = open_library("libsome_nccl.so", RTLD_NOW | RTLD_LOCAL, problem);
  if (library == nullptr) {
    problem = problem.empty() ? "this program was built without NCCL, or its library libsome_nccl.so is not installed "
                                "(Debian: package some-nccl)"
                              : "NCCL cannot be used here: " + problem + " (Debian: package libnccl2)";
    return {};
  }
  const NcclLibrary out{library_function<MakeGpuId>(library, make_gpu_id_symbol),
                        library_function<OpenGpuLink>(library, open_gpu_link_symbol)};
  if (out.make_id == nullptr || out.open == nullptr)
    problem = "libsome_nccl.so belongs to another version of this program";
  return out;
}

}  // namespace

std::string mpi_problem() {
  try {
    find_mpi();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string nccl_problem() {
  std::string problem;
  find_nccl(problem);
  return problem;
}

namespace {

// Loopback: a single process sends to itself.
class LoopbackLink : public Link {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    for (std::size_t i = 0; i < sends.size(); ++i) std::memcpy(receives[i].data, sends[i].data, sends[i].bytes);
  }
  [[noreturn]] void abort_all(int code) noexcept override { std::_Exit(code); }
};

// Watchdog thread: ends all ranks if this rank makes no progress, since the other ranks would only wait for it. Runs
// until the process ends.
void run_watchdog(const Group& group, double patience, const std::function<void(const std::string&)>& on_failure) {
  using Clock = std::chrono::steady_clock;
  const double every = std::min(2.0, patience / 8);
  SilenceTimer quiet(every, Clock::now());
  for (std::int64_t known = -1;;) {
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
    const std::int64_t signs = heartbeat_count();
    if (const double silence = quiet.record_poll(signs != known || watchdog_paused(), Clock::now());
        silence > patience) {
      if (on_failure)
        on_failure(
            fmt::format("{} made no progress for {:.0f} seconds although its process is alive; all ranks stop, and the "
                        "last checkpoint is unchanged",
                        group.name(), silence));
      group.abort_all(1);
    }
    known = signs;
  }
}

// Watchdog for MPI startup. There are no heartbeats while MPI connects the ranks, so a rank that was stopped would be
// waited for forever. Lower ranks time out first; when one is gone, mpirun or srun ends the others. Each rank also ends
// the launcher of its own machine, which would wait for the daemon of an unreachable one.
class StartupWatchdog {
 public:
  StartupWatchdog(int rank, int size, double patience, std::function<void(const std::string&)> on_failure)
      : thread_([this, rank, size, patience, seconds = 1.25 * patience + (rank > 0 ? 2 + 0.25 * std::min(rank, 20) : 0),
                 words = std::move(on_failure)] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; })) return;
          if (words)
            words(fmt::format(
                "rank {} of {} has waited {:.0f} seconds for MPI to connect the ranks; check that all ranks run and "
                "their machines are reachable (timeout: SOME_RANK_PATIENCE, now {:.0f} seconds)",
                rank, size, seconds, patience));
          end_launcher_later();
          std::_Exit(1);
        }) {}
  ~StartupWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  StartupWatchdog(const StartupWatchdog&) = delete;
  StartupWatchdog& operator=(const StartupWatchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // declared last, after the members it uses
};

// Transport for GPU tensors.
enum class GpuTransport { best, host, nccl };

GpuTransport requested_transport() {
  const char* const text = std::getenv("SOME_RANKS_THROUGH");
  if (text == nullptr || *text == 0) return GpuTransport::best;
  if (std::string_view(text) == "host") return GpuTransport::host;
  if (std::string_view(text) == "nccl") return GpuTransport::nccl;
  bad_input(Code::rank_environment, "environment variable {} = '{}': must be host or nccl", "SOME_RANKS_THROUGH", text);
}

}  // namespace

// All ranks reach the same decision: each result is shared with all ranks before the next step.
void Group::link_gpus(const Device& device, const Log& log) const {
  if (!state_) return;
  const std::optional<int> gpu = device.is_cuda() ? std::optional(cuda::index_of(device.cuda())) : std::nullopt;
  // The same on every rank, because contexts are created collectively.
  if (state_->gpu == gpu) return;
  state_->gpu = gpu;
  state_->gpu_link.reset();
  const GpuTransport way = requested_transport();
  if (!gpu || way == GpuTransport::host) return;
  const auto give_up = [&](const std::string& reason) {
    if (way == GpuTransport::nccl) failed(Code::ranks_unsupported, "{}=nccl: {}", "SOME_RANKS_THROUGH", reason);
    if (root()) log.info("{}: GPU tensors are sent through host memory", reason);
  };
  const std::vector<std::string> gpus = all_gather(cuda::identity(device));
  for (std::size_t r = 1; r < gpus.size(); ++r) {
    const auto first = std::find(gpus.begin(), gpus.end(), gpus[r]);
    if (static_cast<std::size_t>(first - gpus.begin()) < r)
      return give_up(fmt::format("ranks {} and {} share a GPU, which NCCL does not support", first - gpus.begin(), r));
  }
  const auto first_problem = [&](const std::string& problem) -> std::string {
    const std::vector<std::string> all = all_gather(problem);
    for (int r = 0; r < size(); ++r) {
      const std::string& one = all[static_cast<std::size_t>(r)];
      if (!one.empty()) return size() == 1 ? one : fmt::format("rank {} on {}: {}", r, host(r), one);
    }
    return {};
  };
  std::string problem;
  const NcclLibrary nccl = find_nccl(problem);
  const cuda::CudaDeviceGuard on(device.cuda());
  std::string id = root() && problem.empty() ? nccl.make_id(problem) : "";
  if (problem = first_problem(problem); !problem.empty()) return give_up(problem);
  broadcast(id);
  std::shared_ptr<GpuLink> link(nccl.open(rank(), size(), id, problem));
  if (problem = first_problem(problem); !problem.empty()) return give_up(problem);
  link_gpus(std::move(link), device);
}

RankEnvironment rank_environment() {
  struct Names {
    const char *rank, *size;
  };
  // Depends on the launcher: Open MPI's mpirun, or those of MPICH, Intel and others (and srun --mpi=pmi2).
  for (const Names& names : {Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, Names{"PMI_RANK", "PMI_SIZE"}}) {
    const auto rank = environment_number(names.rank), size = environment_number(names.size);
    if (rank && size) return {*rank, *size, ""};
  }
  // srun numbers its tasks without MPI too; they can communicate only if srun provides MPI startup (--mpi=pmix, pmi2,
  // or by configuration). A job script itself has SLURM_NTASKS, but no step.
  const auto rank = environment_number("SLURM_PROCID"), size = environment_number("SLURM_STEP_NUM_TASKS");
  if (!rank || !size || *size == 1) return {};
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "PMI_FD"}) {
    if (std::getenv(name) != nullptr) return {*rank, *size, ""};
  }
  return {*rank, *size,
          fmt::format("srun started {} tasks without PMIx, so they cannot communicate: use 'srun --mpi=pmix' (if "
                      "'srun --mpi=list' does not list pmix, use mpirun), or one 'srun -n 1' for each independent run",
                      *size)};
}

Group open_group(std::function<void(const std::string&)> on_failure) {
  const RankEnvironment started = rank_environment();
  if (!started.problem.empty()) bad_input(Code::rank_environment, "{}", started.problem);
  if (started.size == 1)
    return requested_transport() == GpuTransport::best ? Group() : Group(std::make_shared<LoopbackLink>());
  // Never deleted: the link's thread may call it at any time.
  struct Listener {
    std::function<void(const std::string&)> on_failure;
    Group group;
    std::atomic<bool> opened{false};
  };
  auto* const listener = new Listener;
  listener->on_failure = std::move(on_failure);
  LinkOptions options;
  options.whose = listener;
  options.lost = [](void* whose, int rank, double seconds) {
    const Listener& all = *static_cast<Listener*>(whose);
    const std::string host = all.opened ? " on " + all.group.host(rank) : "";
    if (all.on_failure)
      all.on_failure(
          fmt::format("rank {}{} sent no heartbeat for {:.0f} seconds: its process was stopped or hangs, or its "
                      "machine is unreachable; all ranks stop, and the last checkpoint is unchanged",
                      rank, host, seconds));
  };
  options.waits = [](void*) { beat(); };
  const double patience = watchdog_timeout_from_environment();
  // A hanging rank knows more about the problem than the ranks that hear nothing from it, so its own watchdog fires
  // first. Its heartbeat may hang too, because MPI has locks. The two extra seconds are for mpirun, which takes a
  // second to end the other ranks.
  options.timeout_seconds = 1.25 * patience + 2;
  std::string problem;
  std::shared_ptr<Link> link;
  {
    const OpenLink open_mpi = find_mpi();
    const StartupWatchdog watch(started.rank, started.size, patience, listener->on_failure);
    link.reset(open_mpi(options, problem));
    if (!link) failed(Code::ranks_unsupported, "MPI cannot start: {}", problem);
  }
  if (link->size() != started.size)
    failed(Code::ranks_unsupported,
           "{} processes were started, but MPI sees {}: start them with the mpirun of the MPI this program was built "
           "with, or with 'srun --mpi=pmix'",
           started.size, link->size());
  listener->group = Group(std::move(link));
  listener->opened = true;
  std::thread([listener, patience] { run_watchdog(listener->group, patience, listener->on_failure); }).detach();
  return listener->group;
}

}  // namespace some
