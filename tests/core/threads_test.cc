#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/cpus.h"
#include "temporary_folder.h"

namespace some {
namespace {

class Pool : public testing::TestWithParam<int> {
 protected:
  Threads threads_{GetParam()};
};

TEST_P(Pool, EveryPieceOnce) {
  for (const std::int64_t pieces : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(pieces));
    parallel_for(threads_, pieces, [&](std::int64_t i) { seen[static_cast<std::size_t>(i)] += 1; });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

// Threads that fall asleep, wake too late, or are still busy with the last piece when the next work starts.
TEST_P(Pool, ManyShortWorksOneAfterAnother) {
  std::int64_t total = 0;
  std::vector<std::int64_t> parts(7);
  for (std::int64_t round = 0; round < 5000; ++round) {
    parallel_for(threads_, 1 + round % 7, [&](std::int64_t i) {
      parts[static_cast<std::size_t>(i)] = round + i;
      for (std::int64_t n = 0; round % 3 == 0 && n < 500 * i; ++n) relax_cpu();  // some take longer
    });
    for (std::int64_t i = 0; i < 1 + round % 7; ++i) total += parts[static_cast<std::size_t>(i)] - round - i;
    if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(total, 0);
}

TEST_P(Pool, ChunksCoverWithoutOverlap) {
  for (const std::int64_t n : {0, 1, 9, 10, 11, 1003}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
    parallel_chunks(threads_, n, 10, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin % 10, 0);
      EXPECT_LE(end - begin, 10);
      for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)] += 1;
    });
    for (const auto& count : seen) EXPECT_EQ(count, 1);
  }
}

TEST_P(Pool, ExceptionsComeOut) {
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(parallel_for(threads_, 100,
                              [](std::int64_t i) {
                                if (i == 57) throw std::runtime_error("57");
                              }),
                 std::runtime_error);
  }
  EXPECT_THROW(parallel_for(threads_, 1, [](std::int64_t) { throw std::runtime_error("one"); }), std::runtime_error);
  std::atomic<int> after{0};
  parallel_for(threads_, 3, [&](std::int64_t) { after += 1; });
  EXPECT_EQ(after, 3);
}

TEST_P(Pool, NestedRunsSerially) {
  std::atomic<int> total{0};
  parallel_for(threads_, 4, [&](std::int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(threads_, 8, [&](std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      total += 1;
    });
  });
  EXPECT_EQ(total, 32);
}

TEST_P(Pool, MayBeUsedFromSeveralThreads) {
  std::vector<std::thread> users;
  std::atomic<std::int64_t> total{0};
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&] {
      for (int round = 0; round < 500; ++round) parallel_for(threads_, 5, [&](std::int64_t i) { total += i; });
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(total, 4 * 500 * 10);
}

INSTANTIATE_TEST_SUITE_P(Counts, Pool, testing::Values(1, 2, 5));

TEST(Threads, AllOfThemWork) {
  Threads threads(3);
  // The first piece shows that the work is long, so it is shared from then on.
  std::mutex mutex;
  std::set<std::thread::id> workers;
  for (int round = 0; round < 100 && workers.size() < 3; ++round) {
    parallel_for(threads, 12, [&](std::int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const std::lock_guard lock(mutex);
      workers.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(workers.size(), 3u);
}

TEST(Threads, CountIsTheirOwn) {
  EXPECT_EQ(Threads().count(), usable_cpus());
  const Threads one(1), three(3);
  EXPECT_EQ(one.count(), 1);
  EXPECT_EQ(three.count(), 3);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(Threads, SleepWhileTheyWait) {
  Threads threads(4);
  std::atomic<int> done{0};
  parallel_for(threads, 100, [&](std::int64_t) { done += 1; });
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.05);
  // The caller too, while another thread has the last piece.
  const double start = cpu_seconds();
  parallel_for(threads, 2, [&](std::int64_t i) {
    done += 1;
    if (i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  EXPECT_LT(cpu_seconds() - start, 0.05);
  EXPECT_EQ(done, 102);
}

TEST(UsableCpus, AtLeastOne) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

class Cgroups : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.file(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  double limit(const std::string& groups) {
    write("groups", groups);
    return cgroup_cpu_limit(folder_.file("groups"), folder_.file("mount"));
  }
  TemporaryFolder folder_;
};

TEST_F(Cgroups, SecondVersion) {
  EXPECT_EQ(limit("0::/\n"), 0);
  write("mount/cpu.max", "max 100000\n");
  EXPECT_EQ(limit("0::/\n"), 0);
  write("mount/cpu.max", "250000 100000\n");
  EXPECT_EQ(limit("0::/\n"), 2.5);
  EXPECT_EQ(limit("0::/out/of/sight\n"), 2.5);
  // The smallest limit of the enclosing groups applies.
  write("mount/jobs/cpu.max", "50000 100000\n");
  write("mount/jobs/one/cpu.max", "max 100000\n");
  EXPECT_EQ(limit("0::/jobs/one\n"), 0.5);
  write("mount/jobs/one/cpu.max", "20000 100000\n");
  EXPECT_EQ(limit("0::/jobs/one\n"), 0.2);
  EXPECT_EQ(limit("0::/jobs\n"), 0.5);
}

TEST_F(Cgroups, FirstVersion) {
  const std::string groups = "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n";
  EXPECT_EQ(limit(groups), 0);
  write("mount/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(groups), 0);
  write("mount/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(limit(groups), 1.5);
  // A group of another controller does not limit this one.
  EXPECT_EQ(limit("5:cpuset:/box\n"), 0);
  // Inside a container the path often does not exist, and the mounted root is the container's own group.
  write("mount/cpu/cpu.cfs_quota_us", "300000\n");
  write("mount/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit("4:cpu,cpuacct:/docker/0123\n"), 3);
}

TEST_F(Cgroups, NonsenseIsNoLimit) {
  write("mount/cpu.max", "lots\n");
  EXPECT_EQ(limit("0::/\n"), 0);
  write("mount/cpu.max", "100000 0\n");
  EXPECT_EQ(limit("0::/\n"), 0);
  EXPECT_EQ(limit("what is this\n\n:\n"), 0);
  EXPECT_EQ(cgroup_cpu_limit(folder_.file("not there"), folder_.file("mount")), 0);
}

}  // namespace
}  // namespace some
