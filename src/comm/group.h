// Ranks: processes that compute one thing together, each on its own cores, GPU or machine. A group of one does nothing,
// so that nobody asks whether there are others; it is what everybody has who is given no other.
//
// Sums are taken in one fixed tree (comm/mesh.h), whatever the number of ranks: that is what makes results the same to
// the bit on 1, 2, 4, 8 ranks.
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

// Every rank of a group throws it, in the same words: they may go on to something else together.
class CommonFailure : public Error {
 public:
  using Error::Error;
};

// Copies are the same group. All of it is collective: every rank calls the same, in the same order; but what only asks.
class Group {
 public:
  Group() = default;
  explicit Group(std::shared_ptr<Link> link);  // collective, too
  // Tensors on this rank's GPU go from GPU to GPU from here on, where every rank has one of its own and NCCL is there;
  // otherwise through the host's memory, and the log says why. For all copies of the group. Parts of it that are made
  // later do likewise.
  void use_gpus(const Device& device, const Log& log) const;
  void use_gpus(std::shared_ptr<GpuLink> link, const Device& device) const;
  bool gpu_to_gpu() const;

  int rank() const;
  int size() const;
  bool alone() const { return size() == 1; }
  bool root() const { return rank() == 0; }  // the one that reads and writes run folders, and speaks
  const std::string& host(int rank) const;   // the name of its machine
  int local_rank() const;                    // among the ranks of this machine
  int cpus() const;          // of those this rank may use, its share: others may be allowed the same ones
  std::string name() const;  // "rank 1 on HOST"; empty alone

  // Every tensor becomes the sum over the ranks, by the tree. Any number type but bf16, any device.
  void all_reduce_sum(Threads& threads, std::span<const Tensor> tensors) const;
  // For what merges otherwise than by addition: `merge(later)` makes of `tensors`, which belong to this rank and some
  // behind it, and of `later`, which belong to the next ranks, those of all of them. In the end every rank has the
  // result.
  void all_reduce_with(std::span<const Tensor> tensors,
                       const std::function<void(std::span<const Tensor> later)>& merge) const;
  // From rank 0 to all.
  void broadcast(std::span<const Tensor> tensors) const;
  void broadcast(std::string& text) const;
  // What each rank gives, by rank, for everyone.
  std::vector<std::string> all_gather(const std::string& mine) const;
  std::int64_t all_reduce_max(std::int64_t mine) const;
  // To each rank its part, from each rank one. Rows (along the first dimension) of `from` lie in the order of the ranks
  // they go to, `sent[r]` for rank r; so do those of `to`, by the ranks they come from, `received[r]` from rank r. Any
  // number type, both on one device. What a rank keeps for itself is copied.
  void all_to_all(const Tensor& from, std::span<const std::int64_t> sent, const Tensor& to,
                  std::span<const std::int64_t> received) const;
  // One number to each rank, by rank; what each rank gave this one.
  std::vector<std::int64_t> all_to_all(std::span<const std::int64_t> numbers) const;
  void barrier() const { all_reduce_max(0); }
  // Work that each rank does by itself. Where it throws an Error on any of them, all throw CommonFailure, which says
  // where, if it was not the same everywhere. Other exceptions pass: then the others wait.
  void all_or_none(const std::function<void()>& work) const;
  // Some of the ranks, in this order, as a group of their own: called by those alone, each with the same list.
  Group split(std::span<const int> ranks) const;

  // bad_input, on every rank, where a fact (a name and a value) is not the same on every rank: it says which.
  using Facts = std::vector<std::pair<std::string, std::string>>;
  void check_identical(const Facts& facts) const;

  [[noreturn]] void abort_all(int code) const;  // for a rank that cannot go on; alone, it just exits
  // The end of all common work: waits for the others. Nothing collective may follow, through no copy of this group.
  void finalize() const;

  // What was sent by this rank so far, and how long it waited for messages (on a GPU: how long its stream did).
  struct Traffic {
    std::int64_t bytes = 0, exchanges = 0;
    double seconds = 0;
  };
  Traffic traffic() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: alone
};

// What a sum over R ranks costs each of them: messages one after another, and bytes sent for a tensor of `bytes`.
double all_reduce_messages(int ranks);
double all_reduce_bytes(int ranks, double bytes);

// The number of this process among those that mpirun or srun started, from its environment.
struct RankEnvironment {
  int rank = 0, size = 1;
  std::string problem;  // why these processes cannot communicate, and what to do about it; empty if they can
};
RankEnvironment rank_environment();
// The group this process was started in; a group of one where it was started alone. `on_failure` is told in one line
// when this rank does nothing for 40 seconds (or as many as SOME_RANK_PATIENCE in the environment says), or another is
// lost (not heard of for a quarter longer and two seconds), on another thread, just before everything ends.
// SOME_RANKS_THROUGH in the environment: "host" leaves NCCL alone; "nccl" insists on it; with either, a process that
// was started alone sends what it would add up to itself, as a check of the way there.
Group open_group(std::function<void(const std::string&)> on_failure);

}  // namespace some
