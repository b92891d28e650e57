// One served run: its model and engine on one thread, and a second thread that writes responses, so that the engine
// never waits for JSON or clients. Requests reach the engine through a bounded queue. A newer checkpoint is loaded
// while the current one is in use; requests in progress finish with the model that started them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "core/log.h"
#include "inference/engine.h"
#include "memory/memory.h"
#include "runs/run.h"
#include "serve/metrics.h"
#include "serve/reply.h"
#include "serve/sessions.h"

namespace some {

struct ModelSettings {
  std::string name, folder;  // model name used by clients; run folder
  OpenOptions open;          // checkpoint: "latest" and "best" are reloaded when they change
  EngineOptions engine;
  std::int64_t max_sequences = 0;  // concurrent sequences; 0: 32 on a CPU, 256 on a GPU
  ApiLimits limits;
  SessionLimits sessions;
  std::size_t max_requests = 256;                    // maximum number of requests accepted but not answered
  std::size_t max_requests_per_key = 0;              // maximum of these per API key; 0: all
  std::int64_t max_numbers = std::int64_t{1} << 24;  // maximum of tokens * (1 + logprobs) over all accepted requests
  std::chrono::milliseconds timeout{600000};         // maximum duration of one request
  std::chrono::milliseconds reload{5000};            // interval between polls for a newer checkpoint; 0: never
};

// Reserves a request's share of the server's limits; the destructor releases it.
class Admission {
 public:
  using Count = std::shared_ptr<std::atomic<std::int64_t>>;
  Admission() = default;
  ~Admission() {
    for (const auto& [from, count] : taken_) *from -= count;
  }
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  void take(const Count& from, std::int64_t count) {
    *from += count;
    taken_.emplace_back(from, count);
  }

 private:
  std::vector<std::pair<Count, std::int64_t>> taken_;
};

class ModelService {
 public:
  // Opens the run and starts. answered: called for each request with the endpoint and its status, from any thread.
  using Answered = std::function<void(const std::string& endpoint, int status)>;
  ModelService(ModelSettings settings, Answered answered, Log log);
  ~ModelService();  // ends all requests
  ModelService(const ModelService&) = delete;
  ModelService& operator=(const ModelService&) = delete;

  const std::string& name() const { return settings_.name; }
  const ModelSettings& settings() const { return settings_; }
  nlohmann::json description() const;  // an entry of /v1/models

  // The functions below throw Code::server_busy if the limits are reached, and bad_input for an impossible request.
  // They encode the prompts, so long ones take time. `holder`: number of the API key.
  void generate(GenerationRequest request, std::size_t holder, const Answer& answer);
  void embed(EmbeddingRequest request, std::size_t holder, const Answer& answer);
  // Runs on the model thread. changes: called when no sequence uses the session `name` of the holder and the model is
  // idle.
  using SessionWork = std::function<void(Sessions& sessions, OpenedRun& run, std::int64_t generation)>;
  void with_sessions(std::size_t holder, const std::string& name, bool changes, SessionWork work);

  std::int64_t accepted() const { return *requests_; }  // requests that are not answered yet
  bool healthy() const { return failures_ < 3; }
  void end_all();  // ends every request with an error, when the server stops
  // Appends the lines of one metric of metric_names.
  struct MetricName {
    const char *name, *type, *help;
  };
  static const std::vector<MetricName>& metric_names();
  void write_metric(std::string& out, std::size_t metric) const;

 private:
  struct Loaded;
  struct Running;
  struct Job;
  struct Output;

  std::shared_ptr<Loaded> load(std::int64_t step);
  void follow_checkpoints();
  void run();
  void accept_jobs();
  enum class Started : std::uint8_t { yes, session_busy, model_busy };
  Started start(const std::shared_ptr<Job>& job);
  void start_generation(const std::shared_ptr<Job>& job);
  void start_embedding(const std::shared_ptr<Job>& job);
  bool model_is_free();
  void add_choices(const std::shared_ptr<Running>& running);
  void look_after_requests();
  void step_engines();
  void end(Running& running, const Error& error);
  void sequence_ended(const std::shared_ptr<Running>& running);
  void push_outputs();
  void write_outputs();
  std::shared_ptr<Admission> admit(std::int64_t numbers, std::size_t holder);
  std::vector<std::vector<TokenId>> encode(const std::vector<Prompt>& prompts, const std::string& field) const;
  void submit(std::shared_ptr<Job> job);
  void count_answer(const std::string& endpoint, int status, std::chrono::steady_clock::time_point started);

  ModelSettings settings_;
  Answered answered_;
  Log log_;
  const Admission::Count requests_ = std::make_shared<std::atomic<std::int64_t>>(0),
                         numbers_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::atomic<int> failures_{0};  // of the engine, in sequence
  std::atomic<bool> stop_{false}, end_all_{false};
  Sessions sessions_;

  mutable std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> inbox_;
  std::map<std::size_t, Admission::Count> of_holders_;
  std::shared_ptr<Loaded> newest_;  // the model for new requests
  std::shared_ptr<Loaded> next_;    // loaded, not yet taken by the model thread
  std::int64_t reloads_ = 0, sessions_open_ = 0;
  EngineStatistics gone_;  // totals of replaced engines
  Histogram first_token_{latency_borders()}, whole_{latency_borders()};

  // Used by the model thread only.
  std::list<std::shared_ptr<Loaded>> loaded_;  // newest first
  std::deque<std::shared_ptr<Job>> pending_;
  std::list<std::shared_ptr<Running>> running_;
  std::vector<Output> outputs_;

  std::mutex output_mutex_;
  std::condition_variable output_changed_;
  std::vector<std::vector<Output>> written_;  // not yet taken by the writer
  std::size_t written_count_ = 0;
  bool outputs_end_ = false;

  std::thread thread_, writer_, loader_;
};

}  // namespace some
