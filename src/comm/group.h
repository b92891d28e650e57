// Groups of ranks: processes that compute together, each on its own cores, GPU or machine. In a group of one, which is
// the default, all operations do nothing, so that callers need no special case.
//
// Sums use one fixed tree (comm/mesh.h), whatever the number of ranks, so that results on 1, 2, 4, 8 ranks are
// bit-identical.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/link.h"
#include "core/error.h"
#include "core/log.h"
#include "core/threads.h"
#include "tensor/tensor.h"

namespace some {

// An error that every rank of a group throws with the same message, so that all ranks may continue with other work.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

// Copies refer to the same group. Except for queries, all operations are collective: every rank calls the same ones, in
// the same order.
class Group {
 public:
  Group() = default;
  explicit Group(std::shared_ptr<Link> link);  // collective
  // From now on sends GPU tensors directly between GPUs if every rank has its own GPU and NCCL is available; otherwise
  // through host memory, and the log states the reason. Applies to all copies of the group and to groups split off
  // later.
  void link_gpus(const Device& device, const Log& log) const;
  void link_gpus(std::shared_ptr<GpuLink> link, const Device& device) const;
  bool has_gpu_link() const;

  int rank() const;
  int size() const;
  bool alone() const { return size() == 1; }
  bool root() const { return rank() == 0; }  // the rank that reads and writes run folders, and prints
  const std::string& host(int rank) const;   // host name of the rank
  int local_rank() const;                    // index among the ranks on the same machine
  int cpus() const;  // number of CPUs for this rank: its share of those it may use, which other ranks may use too
  std::string name() const;  // "rank 1 on HOST"; empty in a group of one

  // Replaces every tensor by its sum over the ranks, in tree order. Any element type except bf16, any device.
  void all_reduce_sum(Threads& threads, std::span<const Tensor> tensors) const;
  // All-reduce with a custom merge. `merge(later)` combines `tensors`, which cover this rank and some of the ranks
  // after it, with `later`, which covers the following ranks, and stores the result in `tensors`. At the end every rank
  // has the result.
  void all_reduce_with(std::span<const Tensor> tensors,
                       const std::function<void(std::span<const Tensor> later)>& merge) const;
  // Copies from rank 0 to all ranks.
  void broadcast(std::span<const Tensor> tensors) const;
  void broadcast(std::string& text) const;
  // Returns the texts of all ranks, by rank.
  std::vector<std::string> all_gather(const std::string& mine) const;
  std::int64_t all_reduce_max(std::int64_t mine) const;
  // All-to-all of rows (along the first dimension). `from` contains sent[r] rows for each rank r, in the order of the
  // destination ranks; `to` receives received[r] rows from each rank r, in the order of the source ranks. Any element
  // type, both on one device. Local rows are copied.
  void all_to_all(const Tensor& from, std::span<const std::int64_t> sent, const Tensor& to,
                  std::span<const std::int64_t> received) const;
  // Sends numbers[r] to rank r; returns the number received from each rank.
  std::vector<std::int64_t> all_to_all(std::span<const std::int64_t> numbers) const;
  void barrier() const { all_reduce_max(0); }
  // Runs local work on each rank. If it throws an Error on any rank, all ranks throw CollectiveError, which names the
  // rank unless the error is the same on all ranks. Other exceptions pass through; then the other ranks wait.
  void all_or_none(const std::function<void()>& work) const;
  // Returns a new group of the given ranks, in this order. Called only by those ranks, each with the same list.
  Group split(std::span<const int> ranks) const;

  // Throws bad_input on every rank if a fact (name and value) differs between ranks; the message names it.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  void check_identical(const Facts& facts) const;

  [[noreturn]] void abort_all(int code) const;  // for a rank that cannot continue; in a group of one it only exits
  // Ends all communication and waits for the other ranks. No collective operation may follow, on any copy of this
  // group.
  void finalize() const;

  // Bytes sent by this rank so far, and the time it waited for messages (on a GPU: the time its stream waited).
  struct Traffic {
    std::int64_t bytes = 0, exchanges = 0;
    double seconds = 0;
  };
  Traffic traffic() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: a group of one
};

// Cost of an all-reduce over R ranks, per rank: sequential messages, and bytes sent for a tensor of `bytes`.
double all_reduce_messages(int ranks);
double all_reduce_bytes(int ranks, double bytes);

// Rank and number of ranks of this process if it was started by mpirun or srun, from its environment.
struct RankEnvironment {
  int rank = 0, size = 1;
  std::string problem;  // why these processes cannot communicate, and how to fix it; empty if they can
};
RankEnvironment rank_environment();
// Opens the group that this process was started in; a group of one if it was started without mpirun or srun.
// `on_failure` is called with one line of text, from another thread, just before all ranks end, if this rank makes no
// progress for 40 seconds (or SOME_RANK_PATIENCE seconds, from the environment), or if another rank is lost (silent for
// 1.25 times as long plus two seconds). The environment variable SOME_RANKS_THROUGH = "host" disables NCCL, and "nccl"
// requires it; with either, a single process sends its sums to itself, as a test of the transport.
Group open_group(std::function<void(const std::string&)> on_failure);

}  // namespace some
