// Compares the measured CPU time and memory with work of known size, and those of the GPU with a fake NVML.
#include "runtime/machine_use.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "temporary_folder.h"

namespace some {
namespace {

using std::chrono::milliseconds;

double burn(milliseconds time) {
  double sum = 0;
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 1; i < 1000; ++i) sum += 1.0 / i;
  }
  return sum;
}

TEST(MachineUse, CountsTheCpuTimeOfThisProcess) {
  MachineUse use(Device::cpu);
  EXPECT_FALSE(use.sample(std::chrono::hours(1))) << "too soon";
  std::this_thread::sleep_for(milliseconds(200));
  const auto idle = use.sample(milliseconds(100));
  ASSERT_TRUE(idle);
  EXPECT_LT(idle->cpu_cores, 0.2);
  EXPECT_FALSE(idle->gpu_utilization);
  // On a busy machine this process gets less than one core: as much as the clock of the process says.
  const std::clock_t before = std::clock();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_GT(burn(milliseconds(300)), 0);
  const auto busy = use.sample(milliseconds(100));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const double cores = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC / seconds;
  ASSERT_TRUE(busy);
  EXPECT_NEAR(busy->cpu_cores, cores, 0.1);
  EXPECT_GT(busy->cpu_cores, 0.02);
}

TEST(MachineUse, CountsTheMemoryOfThisProcess) {
  MachineUse use(Device::cpu);
  std::this_thread::sleep_for(milliseconds(10));
  const double before = use.sample(milliseconds(1)).value().memory_bytes;
  EXPECT_GT(before, 1e6);
  constexpr std::size_t bytes = std::size_t{200} << 20;
  std::vector<char> touched(bytes, 1);
  std::this_thread::sleep_for(milliseconds(10));
  const double after = use.sample(milliseconds(1)).value().memory_bytes;
  EXPECT_NEAR(after - before, bytes, 20e6);
  EXPECT_EQ(touched[bytes / 2], 1);
}

TEST(MachineUse, ReadsTheGpuThroughNvml) {
  if (std::system("command -v cc >/dev/null") != 0) GTEST_SKIP() << "needs a C compiler";
  TemporaryFolder folder;
  const std::string source = folder.write("nvml.c", R"(
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** gpu) {
  *gpu = (void*)1;
  return strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
}
int nvmlDeviceGetUtilizationRates(void* gpu, unsigned* rates) { rates[0] = 87; rates[1] = 30; return 0; }
int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* bytes) {
  bytes[0] = 150; bytes[1] = 100; bytes[2] = 50;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) { *milliwatts = 412500; return 0; }
)");
  const std::string library = folder / "nvml.so";
  ASSERT_EQ(std::system(("cc -shared -fPIC -o '" + library + "' '" + source + "'").c_str()), 0);
  const auto sampled = [&](const std::string& uuid, const char* file) {
    MachineUse use(uuid, file);
    std::this_thread::sleep_for(milliseconds(10));
    return use.sample(milliseconds(1)).value();
  };
  const MachineSample with = sampled("000102030405060708090a0b0c0d0e0f", library.c_str());
  EXPECT_EQ(with.gpu_utilization, 0.87);
  EXPECT_EQ(with.gpu_memory_bytes, 50);
  EXPECT_EQ(with.gpu_watts, 412.5);
  EXPECT_FALSE(sampled("ff0102030405060708090a0b0c0d0e0f", library.c_str()).gpu_watts) << "another GPU";
  EXPECT_FALSE(sampled("000102030405060708090a0b0c0d0e0f", "/nowhere/nvml.so").gpu_watts) << "no NVML here";
}

TEST(CudaMachineUse, ReadsTheGpuOfItsDevice) {
  if (!cuda::available()) GTEST_SKIP() << "needs a GPU";
  const Device device(cuda::open(cuda::first_usable_gpu()));
  constexpr std::size_t bytes = std::size_t{1} << 30;
  void* const held = device_allocate(device, bytes);
  MachineUse use(device);
  std::this_thread::sleep_for(milliseconds(300));
  const MachineSample sample = use.sample(milliseconds(1)).value();
  device_release(device, held, bytes);
  ASSERT_TRUE(sample.gpu_memory_bytes) << "NVML is part of the driver";
  EXPECT_GE(*sample.gpu_memory_bytes, static_cast<double>(bytes));
  ASSERT_TRUE(sample.gpu_utilization);
  EXPECT_GE(*sample.gpu_utilization, 0);
  EXPECT_LE(*sample.gpu_utilization, 1);
}

}  // namespace
}  // namespace some
