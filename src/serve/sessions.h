// Memories of sessions: what the users of a server told a model, each in a memory of its own. A session belongs to the
// holder of one API key. All of it is used by the thread of the model only.
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
  std::int64_t tokens = 65536;       // learned by one session
  std::int64_t slots = 1024;         // of its memory
  std::chrono::seconds idle{86400};  // a session that was not used for so long makes room for another
};

struct Session {
  std::size_t holder = 0;  // of the API key
  std::string name;
  // Belongs to the model of `generation`; with a newer one its texts are read again.
  std::optional<Memory> memory;
  std::int64_t generation = -1;
  std::int64_t slots_in_use = 0;
  int users = 0;  // sequences that read the memory now; it does not change meanwhile
  std::chrono::steady_clock::time_point used;
};

class Sessions {
 public:
  // changed: called before a memory is destroyed or replaced and after it changed, for whoever has copies of it.
  Sessions(SessionLimits limits, std::function<void(const Memory&)> changed)
      : limits_(limits), changed_(std::move(changed)) {}

  Session* find(std::size_t holder, const std::string& name);
  // Creates the session if there is none. Throws Code::server_busy if there are too many that are in use.
  Session& open(std::size_t holder, const std::string& name);
  void remove(const Session& session);
  std::size_t size() const { return all_.size(); }
  std::int64_t tokens() const;
  nlohmann::json list(std::size_t holder) const;

  // Makes the session's memory one of this model, reading its texts again if the model changed. `generation` counts the
  // models.
  void fit(Session& session, OpenedRun& run, std::int64_t generation);
  // Learns a text; returns false if it is too short to learn from, or known. bad_input if the session would become too
  // long.
  bool learn(Session& session, OpenedRun& run, std::int64_t generation, const std::vector<TokenId>& tokens);
  // Forgets one text, by its number from 1, as if it had never been learned. bad_input if there is no such text.
  void forget(Session& session, OpenedRun& run, std::int64_t generation, std::int64_t text);

 private:
  Memory empty_memory(OpenedRun& run, std::int64_t generation, const std::vector<TokenId>& tokens);
  void replace(Session& session, std::optional<Memory> memory, std::int64_t generation);
  SessionLimits limits_;
  std::function<void(const Memory&)> changed_;
  std::list<Session> all_;
  // An empty memory of the newest model, from which those of sessions are made.
  std::optional<Memory> base_;
  std::int64_t base_generation_ = -1;
};

nlohmann::json session_json(const Session& session);

}  // namespace some
