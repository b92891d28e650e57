// Memories of sessions: each holds the text that a user of the server chose to store. A session belongs to the holder
// of one API key. Used by the model thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "runs/run.h"

namespace some {

struct SessionLimits {
  std::size_t sessions = 256;
  std::int64_t tokens = 65536;       // maximum tokens learned by one session
  std::int64_t slots = 1024;         // settings of its memory
  std::chrono::seconds idle{86400};  // a session unused for this long may be removed for a new one
};

struct Session {
  std::size_t holder = 0;  // number of the API key
  std::string name;
  // Belongs to the model of `generation`; for a newer model its texts are read again.
  std::optional<Memory> memory;
  std::int64_t generation = -1;
  std::int64_t slots_in_use = 0;
  int users = 0;  // sequences that currently read the memory, which must not change meanwhile
  std::chrono::steady_clock::time_point used;
};

class Sessions {
 public:
  // changed: called before a memory is destroyed or replaced and after it changed, so that copies can be discarded.
  Sessions(SessionLimits limits, std::function<void(const Memory&)> changed)
      : limits_(limits), changed_(std::move(changed)) {}

  Session* find(std::size_t holder, const std::string& name);
  // Creates the session if it does not exist. Throws Code::server_busy if too many sessions are in use.
  Session& open(std::size_t holder, const std::string& name);
  void remove(const Session& session);
  std::size_t size() const { return all_.size(); }
  std::int64_t tokens() const;
  nlohmann::json list(std::size_t holder) const;

  // Rebuilds the session's memory for this model if the model changed, by reading its texts again. `generation` counts
  // the models.
  void fit(Session& session, OpenedRun& run, std::int64_t generation);
  // Learns a text; returns false if it is too short, or already known. bad_input if the session would exceed its limit.
  bool learn(Session& session, OpenedRun& run, std::int64_t generation, const std::vector<TokenId>& tokens);
  // Forgets one text, given by its number from 1, exactly: as if it had never been learned. bad_input if the text does
  // not exist.
  void forget(Session& session, OpenedRun& run, std::int64_t generation, std::int64_t text);

 private:
  Memory empty_memory(OpenedRun& run, std::int64_t generation, const std::vector<TokenId>& tokens);
  void replace(Session& session, std::optional<Memory> memory, std::int64_t generation);
  SessionLimits limits_;
  std::function<void(const Memory&)> changed_;
  std::list<Session> all_;
  // An empty memory of the newest model, the template for those of sessions.
  std::optional<Memory> base_;
  std::int64_t base_generation_ = -1;
};

nlohmann::json session_json(const Session& session);

}  // namespace some
