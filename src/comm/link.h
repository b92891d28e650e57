// Transport of bytes between the ranks of a group (comm/group.h). A backend is one class in a separate library, loaded
// on demand, so that the program runs on machines without that backend. This header includes nothing of the program,
// and a backend links nothing of it.
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
  // Exchanges all messages concurrently; returns when everything has arrived and the sent memory may be reused. Host
  // memory only. Messages from one rank to another arrive in the order in which they were sent. Called by one thread
  // only.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives) = 0;
  // Ends the processes of all ranks.
  [[noreturn]] virtual void abort_all(int code) noexcept = 0;
};

struct LinkOptions {
  // A rank that is silent for this long counts as lost: its process is dead or stopped, or the network is down.
  double timeout_seconds = 40;
  // Called on a thread of the link; the link then ends all ranks.
  void (*lost)(void* whose, int rank, double seconds) = nullptr;
  // Called repeatedly by a thread that waits for messages, to show that it does not hang.
  void (*waits)(void* whose) = nullptr;
  void* whose = nullptr;
};

// Function exported by the library of a backend. Returns null on failure and sets `problem` to the reason.
using OpenLink = Link* (*)(const LinkOptions& options, std::string& problem);
inline constexpr const char* open_link_symbol = "some_open_link";

// Transport of bytes between GPU memories without the host (NCCL): also a separate library. It is opened after a Link,
// which distributes the id of the NCCL communicator.
class GpuLink {
 public:
  virtual ~GpuLink() = default;
  // Queues the messages on `stream` (a cudaStream_t) after the work that is already there, and returns without waiting.
  // Messages are concurrent, and ordered per pair of ranks, as above. Returns the error; empty on success.
  virtual std::string exchange(void* stream, std::span<const Link::Message> sends,
                               std::span<const Link::Message> receives) = 0;
};

using MakeGpuId = std::string (*)(std::string& problem);  // called on rank 0
inline constexpr const char* make_gpu_id_symbol = "some_make_gpu_id";
// Collective; uses the current GPU of the calling thread.
using OpenGpuLink = GpuLink* (*)(int rank, int size, const std::string& id, std::string& problem);
inline constexpr const char* open_gpu_link_symbol = "some_open_gpu_link";

}  // namespace some
