// What carries bytes between the ranks of a group (comm/group.h). A backend is one class, in a library of its own that
// is opened when it is needed, so that the program runs where that backend is not installed. This header includes
// nothing of the program: a backend is linked with nothing of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace some {

class Link {
 public:
  struct Message {
    int peer = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  virtual ~Link() = default;  // waits for the other ranks
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // All at once; returns when everything has arrived and what was sent may be written again. Host memory. Messages from
  // one rank to another arrive in the order they were sent in. Only ever called by one thread.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives) = 0;
  // Ends the processes of all ranks.
  [[noreturn]] virtual void abort_all(int code) noexcept = 0;
};

struct LinkOptions {
  // A rank that is not heard of for so long is taken for lost: its process is dead or stopped, or nothing comes
  // through.
  double timeout_seconds = 40;
  // Told on a thread of the link's own; afterwards the link ends all ranks.
  void (*lost)(void* whose, int rank, double seconds) = nullptr;
  // Told again and again by a thread that waits for messages: it does so, and does not hang.
  void (*waits)(void* whose) = nullptr;
  void* whose = nullptr;
};

// What a backend's library exports. Null where it cannot begin; then `problem` says why.
using OpenLink = Link* (*)(const LinkOptions& options, std::string& problem);
inline constexpr const char* open_link_symbol = "some_open_link";

// What carries bytes between the memories of GPUs without the host's (NCCL): likewise a library of its own, opened
// beside a Link, which hands round the id that the ranks find each other by.
class GpuLink {
 public:
  virtual ~GpuLink() = default;
  // Puts the messages on `stream` (a cudaStream_t), behind what stands there, and waits for nothing. All at once, in
  // order from one rank to another, as above. What went wrong; empty: nothing.
  virtual std::string exchange(void* stream, std::span<const Link::Message> sends,
                               std::span<const Link::Message> receives) = 0;
};

using MakeGpuId = std::string (*)(std::string& problem);  // on rank 0
inline constexpr const char* make_gpu_id_symbol = "some_make_gpu_id";
// Collective; for the GPU that the calling thread uses.
using OpenGpuLink = GpuLink* (*)(int rank, int size, const std::string& id, std::string& problem);
inline constexpr const char* open_gpu_link_symbol = "some_open_gpu_link";

}  // namespace some
