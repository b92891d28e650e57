// Interactive generation: streams the continuation of a prompt token by token with the experts of each token, followed
// by a trace.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "board/run_log.h"
#include "http/http.h"
#include "http/worker.h"
#include "inference/generate.h"
#include "memory/memory.h"
#include "runs/run.h"
#include "runtime/host.h"
#include "runtime/machine.h"

namespace some {

struct Asked {
  std::string run, prompt;
  GenerateOptions how;
  std::optional<int> experts_a_token;
  struct Off {
    int layer = 0, expert = 0;
  };
  std::optional<Off> off;  // an expert excluded from routing
  bool memory = false;
};
Asked parse_generate_request(const std::string& body);  // throws (bad_input) for an invalid request

constexpr std::size_t max_questions = 8;  // maximum number of queued requests

class GenerationService {
 public:
  GenerationService(const DeviceChoice& device, int threads);
  std::size_t waiting() const { return worker_.waiting(); }
  // Streams the answer as JSON lines: {"kind": "waiting" | "begin" | "read" | "token" | "end" | "error", ...}.
  void answer(const std::shared_ptr<RunLog>& run, Asked asked, const std::shared_ptr<Stream>& stream);
  // Callbacks of a running experiment: progress, and whether to stop because its reader disconnected or the board
  // closes.
  struct Talk {
    std::function<void(const nlohmann::json& line)> send;
    std::function<bool()> stopped;
  };
  // Queues an experiment on one or two runs, and streams {"kind": "end", "report"} when it is done.
  using Experiment = std::function<nlohmann::json(const std::vector<OpenedRun*>& opened, const Talk& talk)>;
  void experiment(std::vector<std::shared_ptr<RunLog>> runs, const std::shared_ptr<Stream>& stream,
                  Experiment experiment);

 private:
  struct Opened {
    std::string id;
    std::int64_t step = 0;
    OpenedRun run;
    std::string memory_file;
    std::int64_t memory_time = 0;
    std::optional<Memory> memory;
  };
  Opened& open(const RunLog& run);
  Memory* memory_of(Opened& opened, const RunLog& run);
  void write(const RunLog& run, Asked& asked, Stream& stream);
  void queue(const std::shared_ptr<Stream>& stream, std::function<void(Stream&)> task);
  DeviceChoice device_;
  int threads_;
  std::list<Opened> opened_;  // most recently used first; used only by the worker's thread
  Worker worker_;
};

}  // namespace some
