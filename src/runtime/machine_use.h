// Samples the resources that this process uses during training: CPU, memory, and the GPU through NVIDIA's management
// library (NVML), which is loaded on first use and is optional.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tensor/device.h"

namespace some {

struct MachineSample {
  double cpu_cores = 0;     // CPU time of all threads per second, since the previous sample
  double memory_bytes = 0;  // resident set of this process
  // The whole GPU, with all its processes.
  std::optional<double> gpu_utilization;  // fraction of the driver's last sampling period in which a kernel was running
  std::optional<double> gpu_memory_bytes;
  std::optional<double> gpu_watts;
};

class MachineUse {
 public:
  // `nvml`: file name of the library.
  explicit MachineUse(const Device& device, const char* nvml = "libnvidia-ml.so.1");
  // The same for the GPU with this UUID (cuda::identity); empty: none.
  MachineUse(const std::string& gpu_uuid, const char* nvml);
  ~MachineUse();
  MachineUse(const MachineUse&) = delete;
  MachineUse& operator=(const MachineUse&) = delete;

  // Returns a sample if at least `apart` has passed since the previous one, or since construction.
  std::optional<MachineSample> sample(std::chrono::milliseconds apart = std::chrono::seconds(1));

 private:
  class Gpu;
  std::unique_ptr<Gpu> gpu_;
  std::chrono::steady_clock::time_point when_;
  double cpu_seconds_ = 0;
};

}  // namespace some
