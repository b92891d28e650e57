// Sums over ranks on a GPU: equal to those of the tree, and NCCL transports data unchanged.
#include <gtest/gtest.h>

#include "comm/group.h"
#include "thread_ranks.h"

namespace some {
namespace {

Device open_gpu() { return Device(cuda::open(cuda::first_usable_gpu())); }

// Two streams of one GPU, through the host: NCCL rejects two ranks on one GPU.
class ThreadGpuLink : public GpuLink {
 public:
  ThreadGpuLink(std::shared_ptr<Post> post, int rank, int size, Device device)
      : link_(std::move(post), rank, size), device_(std::move(device)) {}
  std::string exchange(void*, std::span<const Link::Message> sends, std::span<const Link::Message> receives) override {
    const auto on_host = [](std::span<const Link::Message> messages, std::vector<std::string>& memory) {
      std::vector<Link::Message> out;
      for (const Link::Message& one : messages) memory.emplace_back(one.bytes, 0);
      for (std::size_t i = 0; i < messages.size(); ++i)
        out.push_back({messages[i].peer, memory[i].data(), messages[i].bytes});
      return out;
    };
    std::vector<std::string> sent, received;
    const auto outgoing = on_host(sends, sent), incoming = on_host(receives, received);
    for (std::size_t i = 0; i < sends.size(); ++i)
      device_copy(Device::cpu, outgoing[i].data, device_, sends[i].data, sends[i].bytes);
    link_.exchange(outgoing, incoming);
    for (std::size_t i = 0; i < receives.size(); ++i)
      device_copy(device_, receives[i].data, Device::cpu, incoming[i].data, receives[i].bytes);
    return {};
  }

 private:
  ThreadLink link_;
  Device device_;
};

TEST(GroupCuda, SumsByTheTreeOnTheGpu) {
  if (!cuda::available()) GTEST_SKIP() << cuda::unavailable_reason_text();
  for (const int size : {2, 3, 4, 7}) {
    for (const bool staged : {false, true}) {
      const std::vector<std::int64_t> counts{1, 1000, 70001};
      std::vector<std::vector<std::vector<double>>> results(static_cast<std::size_t>(size));
      const auto gpu_post = std::make_shared<Post>();
      on_ranks(size, [&](const Group& group) {
        const Device device = open_gpu();
        if (!staged) group.link_gpus(std::make_shared<ThreadGpuLink>(gpu_post, group.rank(), size, device), device);
        EXPECT_EQ(group.has_gpu_link(), !staged);
        Threads threads(1);
        std::vector<Tensor> tensors;
        for (const std::int64_t count : counts) {
          std::vector<float> values = numbers(group.rank(), count);
          tensors.push_back(Tensor::wrap(values.data(), {count}, DType::f32, Device::cpu, nullptr).to(device));
        }
        Tensor whole = Tensor::zeros({3}, DType::i64);
        for (int i = 0; i < 3; ++i) whole.data<std::int64_t>()[i] = i * group.rank();
        tensors.push_back(whole.to(device));
        group.all_reduce_sum(threads, tensors);
        for (const Tensor& one : tensors) results[static_cast<std::size_t>(group.rank())].push_back(read_vector(one));
        EXPECT_EQ(results[static_cast<std::size_t>(group.rank())].back()[2], size * (size - 1));
        Tensor given = Tensor::zeros({4}, DType::i64);
        if (group.root()) given.data<std::int64_t>()[3] = 11;
        const Tensor there = given.to(device);
        group.broadcast(std::array{there});
        EXPECT_EQ(read_vector(there)[3], 11);
        // Rows: rank r's number is sent to every rank.
        const std::vector<std::int64_t> one_each(static_cast<std::size_t>(size), 1);
        Tensor rows = Tensor::zeros({size}, DType::f32), arrived = Tensor::zeros({size}, DType::f32, device);
        for (int r = 0; r < size; ++r) rows.data<float>()[r] = static_cast<float>(group.rank() * 100 + r);
        group.all_to_all(rows.to(device), one_each, arrived, one_each);
        for (int r = 0; r < size; ++r)
          EXPECT_EQ(read_vector(arrived)[static_cast<std::size_t>(r)], r * 100 + group.rank());
        device_synchronize(device);
      });
      expect_tree_sums(results, counts);
    }
  }
}

TEST(GroupCuda, NcclCarriesWhatItIsGiven) {
  if (!cuda::available()) GTEST_SKIP() << cuda::unavailable_reason_text();
  std::string lines;
  const Log log([&](const LogMessage& line) { lines += line.text + "\n"; });
  on_ranks(1, [&](const Group& group) {
    const Device device = open_gpu();
    group.link_gpus(device, log);
    if (!group.has_gpu_link()) GTEST_SKIP() << lines;
    EXPECT_EQ(lines, "");
    Threads threads(1);
    std::vector<float> small = numbers(0, 7), large = numbers(1, 300001);
    const auto there = [&](std::vector<float>& values) {
      return Tensor::wrap(values.data(), {static_cast<std::int64_t>(values.size())}, DType::f32, Device::cpu, nullptr)
          .to(device);
    };
    const Tensor first = there(small), second = there(large);
    group.all_reduce_sum(threads, std::array{first, second});
    const std::vector<double> small_now = read_vector(first), large_now = read_vector(second);
    EXPECT_EQ(small_now, std::vector<double>(small.begin(), small.end()));
    EXPECT_EQ(large_now, std::vector<double>(large.begin(), large.end()));
    EXPECT_EQ(group.traffic().bytes, 4 * (7 + 300001));
    EXPECT_GT(group.traffic().seconds, 0);
    device_synchronize(device);
    group.finalize();
  });
}

// With two ranks on one GPU, the log reports transport through the host.
TEST(GroupCuda, ASharedGpuIsNotForNccl) {
  if (!cuda::available()) GTEST_SKIP() << cuda::unavailable_reason_text();
  std::string lines;
  std::mutex mutex;
  const Log log([&](const LogMessage& message) {
    const std::lock_guard lock(mutex);
    lines += message.text + "\n";
  });
  on_ranks(2, [&](const Group& group) {
    const Device device = open_gpu();
    group.link_gpus(device, log);
    EXPECT_FALSE(group.has_gpu_link());
    group.link_gpus(device, log);  // opened again, reported once
  });
  EXPECT_EQ(lines,
            "ranks 0 and 1 share a GPU, which NCCL does not support: GPU tensors are sent through host memory\n");
}

}  // namespace
}  // namespace some
