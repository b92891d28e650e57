// Internal state of a group, only for src/comm/group*.cc.
#pragma once

#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "tensor/device.h"

namespace some {

// Statistics of a group and of the groups split from it. The duration of exchanges on a GPU's stream is known only
// after they have completed.
struct TrafficLog {
  Group::Traffic traffic;
  struct Timing {
    std::unique_ptr<cuda::Event> begin, end;
  };
  std::vector<Timing> in_flight, spare;
  void refine(bool all);  // collects timings: all, or only those of completed exchanges
};

struct Group::State {
  std::shared_ptr<Link> link;
  std::shared_ptr<GpuLink> gpu_link;  // may be null
  std::optional<int> gpu;             // the GPU for which gpu_link was last opened or attempted
  int rank = 0, size = 1;
  std::vector<std::string> hosts;
  int local_rank = 0, cpus = 1;
  std::shared_ptr<TrafficLog> ledger = std::make_shared<TrafficLog>();

  // Buffers for received data and for data packed into one message: on the host, on the GPU, and on the host for GPU
  // tensors (pinned memory, which copies faster).
  Tensor received_host, received_gpu, packed_host, packed_gpu;
  char* pinned = nullptr;
  std::size_t pinned_bytes = 0;
  ~State();

  // Returns the device from which tensors of `device` are sent: the device itself, or the host if GPUs are not linked.
  const Device& transport_device(const Device& device) const {
    return device.is_cpu() || gpu_link != nullptr ? device : Device::cpu;
  }
  char* received(const Device& at, std::size_t bytes);
  char* packed(const Device& device, std::size_t bytes);  // in memory of transport_device(device)

  // Exchanges messages between host memories, or between GPU memories: then on the device's stream, without waiting.
  void exchange(const Device& at, std::span<const Link::Message> sends, std::span<const Link::Message> receives);
  void exchange(const Device& at, const Link::Message& send, const Link::Message& receive) {
    exchange(at, std::span(&send, 1), std::span(&receive, 1));
  }
  void send(const Device& at, const Link::Message& one) { exchange(at, std::span(&one, 1), {}); }
  void receive(const Device& at, const Link::Message& one) { exchange(at, {}, std::span(&one, 1)); }

  // Traverses a binomial tree with root rank 0 from the leaves up: in round d = 1, 2, 4, ... a rank that is an odd
  // multiple of d sends to rank - d. Calls take(from) to receive and give(to) to send, which is the last action of a
  // rank.
  template <typename Take, typename Give>
  void up(const Take& take, const Give& give) {
    for (int d = 1; d < size; d *= 2) {
      if (rank % (2 * d) == d) return give(rank - d);
      if (rank % (2 * d) == 0 && rank + d < size) take(rank + d);
    }
  }
  // Traverses the same tree from the root down.
  template <typename Take, typename Give>
  void down(const Take& take, const Give& give) {
    for (int d = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; d >= 1; d /= 2) {
      if (rank % (2 * d) == d) take(rank - d);
      if (rank % (2 * d) == 0 && rank + d < size) give(rank + d);
    }
  }
  void broadcast(const Device& at, char* data, std::size_t bytes);

  // Numbers in host memory or in memory of the GPU `at`.
  struct Numbers {
    Threads& threads;
    const Device& at;
    DType type;
    char* data;
    std::int64_t count;
  };
  void sum(const Numbers& x);
  void add(const Numbers& x, const char* from, char* to, std::int64_t count);  // to += from
  void loopback(const Numbers& x);
  void recursive_halving_doubling(const Numbers& x);
  void reduce_scatter_all_gather(const Numbers& x);
};

}  // namespace some
