// What a group is made of, for src/comm/group*.cc alone.
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

// What was sent, of a group and its parts together. How long exchanges took on a GPU's stream is known when they have
// passed.
struct Ledger {
  Group::Traffic traffic;
  struct Timing {
    std::unique_ptr<cuda::Event> begin, end;
  };
  std::vector<Timing> under_way, spare;
  void refine(bool all);  // or only what has passed
};

struct Group::State {
  std::shared_ptr<Link> link;
  std::shared_ptr<GpuLink> gpu_link;  // may be none
  std::optional<int> gpu;             // the one that it was opened for, or could not be
  int rank = 0, size = 1;
  std::vector<std::string> hosts;
  int local_rank = 0, cpus = 1;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();

  // What is received, and what lies side by side to be sent together: on the host, on the GPU, and on the host for
  // tensors of a GPU (pinned memory, which is copied from and to faster).
  Tensor received_here, received_there, packed_here, packed_there;
  char* pinned = nullptr;
  std::size_t pinned_bytes = 0;
  ~State();

  // Where a device's tensors are sent from: the device itself, or the host on their behalf.
  const Device& way_of(const Device& device) const {
    return device.is_cpu() || gpu_link != nullptr ? device : Device::cpu;
  }
  char* received(const Device& at, std::size_t bytes);
  char* packed(const Device& device, std::size_t bytes);  // where way_of(device) is

  // Between memories of the host, or of GPUs: then on the device's stream, without waiting.
  void exchange(const Device& at, std::span<const Link::Message> sends, std::span<const Link::Message> receives);
  void exchange(const Device& at, const Link::Message& send, const Link::Message& receive) {
    exchange(at, std::span(&send, 1), std::span(&receive, 1));
  }
  void send(const Device& at, const Link::Message& one) { exchange(at, std::span(&one, 1), {}); }
  void receive(const Device& at, const Link::Message& one) { exchange(at, {}, std::span(&one, 1)); }

  // A tree whose root is rank 0: in round d = 1, 2, 4, ... a rank that is an odd multiple of d gives to rank - d.
  // take(from) is called where this rank is given something, give(to) where it gives; that is its last act.
  template <typename Take, typename Give>
  void up(const Take& take, const Give& give) {
    for (int d = 1; d < size; d *= 2) {
      if (rank % (2 * d) == d) return give(rank - d);
      if (rank % (2 * d) == 0 && rank + d < size) take(rank + d);
    }
  }
  // The same tree from the root to the leaves.
  template <typename Take, typename Give>
  void down(const Take& take, const Give& give) {
    for (int d = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; d >= 1; d /= 2) {
      if (rank % (2 * d) == d) take(rank - d);
      if (rank % (2 * d) == 0 && rank + d < size) give(rank + d);
    }
  }
  void broadcast(const Device& at, char* data, std::size_t bytes);

  // Numbers that lie `at` the host or a GPU.
  struct Numbers {
    Threads& threads;
    const Device& at;
    DType type;
    char* data;
    std::int64_t count;
  };
  void sum(const Numbers& x);
  void add(const Numbers& x, const char* from, char* to, std::int64_t count);  // to += from
  void round_trip(const Numbers& x);
  void halve_and_double(const Numbers& x);
  void by_owners(const Numbers& x);
};

}  // namespace some
