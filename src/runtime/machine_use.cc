#include "runtime/machine_use.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace some {
namespace {

double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// Returns the second number of /proc/self/statm, in pages; 0 if it cannot be read.
double resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long long whole = 0, resident = 0;
  const int found = std::fscanf(file, "%lld %lld", &whole, &resident);
  std::fclose(file);
  return found == 2 ? static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) : 0;
}

// Returns NVML's form of a UUID of 32 hexadecimal digits: "GPU-01234567-89ab-...".
std::string nvml_uuid(const std::string& digits) {
  std::string out = "GPU-";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) out += '-';
    out += digits[i];
  }
  return out;
}

// The part of NVML's interface that is used here, which all drivers have had since 2013.
struct Utilization {
  unsigned gpu = 0, memory = 0;  // percent
};
struct GpuMemory {
  unsigned long long total = 0, free = 0, used = 0;  // bytes
};
using GpuHandle = void*;
constexpr int nvml_success = 0;

}  // namespace

class MachineUse::Gpu {
 public:
  Gpu(const std::string& uuid, const char* file) {
    library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    int (*start)() = nullptr;
    int (*find_gpu)(const char*, GpuHandle*) = nullptr;
    find("nvmlInit_v2", start);
    find("nvmlShutdown", stop_);
    find("nvmlDeviceGetHandleByUUID", find_gpu);
    find("nvmlDeviceGetUtilizationRates", utilization_);
    find("nvmlDeviceGetMemoryInfo", memory_);
    find("nvmlDeviceGetPowerUsage", power_);
    if (start == nullptr || stop_ == nullptr || find_gpu == nullptr || start() != nvml_success) return;
    started_ = true;
    if (find_gpu(nvml_uuid(uuid).c_str(), &gpu_) != nvml_success) gpu_ = nullptr;
  }
  ~Gpu() {
    if (started_) stop_();
    if (library_ != nullptr) dlclose(library_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void add(MachineSample& sample) const {
    if (gpu_ == nullptr) return;
    if (Utilization now; utilization_ != nullptr && utilization_(gpu_, &now) == nvml_success)
      sample.gpu_utilization = now.gpu / 100.0;
    if (GpuMemory now; memory_ != nullptr && memory_(gpu_, &now) == nvml_success)
      sample.gpu_memory_bytes = static_cast<double>(now.used);
    if (unsigned milliwatts = 0; power_ != nullptr && power_(gpu_, &milliwatts) == nvml_success)
      sample.gpu_watts = milliwatts / 1000.0;
  }

 private:
  template <typename Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_ = nullptr;
  bool started_ = false;
  int (*stop_)() = nullptr;
  int (*utilization_)(GpuHandle, Utilization*) = nullptr;
  int (*memory_)(GpuHandle, GpuMemory*) = nullptr;
  int (*power_)(GpuHandle, unsigned*) = nullptr;
  GpuHandle gpu_ = nullptr;
};

MachineUse::MachineUse(const Device& device, const char* nvml)
    : MachineUse(device.is_cuda() ? cuda::identity(device) : "", nvml) {}

MachineUse::MachineUse(const std::string& gpu_uuid, const char* nvml)
    : when_(std::chrono::steady_clock::now()), cpu_seconds_(cpu_seconds()) {
  if (!gpu_uuid.empty()) gpu_ = std::make_unique<Gpu>(gpu_uuid, nvml);
}

MachineUse::~MachineUse() = default;

std::optional<MachineSample> MachineUse::sample(std::chrono::milliseconds apart) {
  const auto now = std::chrono::steady_clock::now();
  if (now - when_ < apart || now == when_) return std::nullopt;
  const double used = cpu_seconds();
  MachineSample sample;
  sample.cpu_cores = (used - cpu_seconds_) / std::chrono::duration<double>(now - when_).count();
  sample.memory_bytes = resident_bytes();
  if (gpu_) gpu_->add(sample);
  when_ = now;
  cpu_seconds_ = used;
  return sample;
}

}  // namespace some
