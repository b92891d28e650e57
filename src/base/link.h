// What carries bytes between the ranks of a group (base/group.h). A backend is one class, in a library of its own that
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
  [[noreturn]] virtual void end_all(int code) noexcept = 0;
};

struct LinkOptions {
  // A rank that is not heard of for so long is taken for lost: its process is dead or stopped, or nothing comes
  // through.
  double patience_seconds = 40;
  // Told on a thread of the link's own; afterwards the link ends all ranks.
  void (*lost)(void* whose, int rank, double seconds) = nullptr;
  void* whose = nullptr;
};

// What a backend's library exports. Null where it cannot begin; then `problem` says why.
using OpenLink = Link* (*)(const LinkOptions& options, std::string& problem);
inline constexpr const char* open_link_symbol = "some_open_link";

}  // namespace some
