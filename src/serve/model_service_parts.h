// Data shared by the threads of a ModelService; used by its source files only.
#pragma once

#include "serve/embedding_reply.h"
#include "serve/model_service.h"

namespace some {

inline Error ended_error(const char* why) { return {Fault::failure, Code::server_busy, why}; }

// A model with its engine.
struct ModelService::Loaded {
  explicit Loaded(OpenedRun opened) : run(std::move(opened)) {}
  OpenedRun run;
  std::unique_ptr<Engine> engine;
  EngineOptions engine_options;
  std::optional<Memory> memory;  // of the run
  std::int64_t generation = 0;
  std::int64_t created = 0;

  void make_engine() {
    engine.reset();
    engine = std::make_unique<Engine>(*run.model, run.tokenizer, engine_options);
  }
};

// A request waiting for the model thread.
struct ModelService::Job {
  std::shared_ptr<Reply> reply;  // set for a generation request; the next two are for embeddings and for sessions
  std::shared_ptr<EmbeddingReply> embedding;
  SessionWork work;
  bool changes = false;  // name of the session
  std::size_t holder = 0;
  std::string session;
  std::vector<TokenId> learned;
  std::shared_ptr<Admission> admission;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

  const char* endpoint() const {
    return embedding ? "/v1/embeddings" : reply->request().chat ? "/v1/chat/completions" : "/v1/completions";
  }
  bool is_open() const { return embedding ? embedding->is_open() : !reply || reply->is_open(); }
  void fail(const Error& error) const {
    if (embedding) embedding->fail(error);
    if (reply) reply->fail(error);
  }
};

// A request in progress in the engine.
struct ModelService::Running {
  std::shared_ptr<Job> job;
  std::shared_ptr<Loaded> loaded;
  std::vector<SequenceId> ids;
  std::size_t left = 0;  // unfinished sequences
  Session* session = nullptr;
  Memory* memory = nullptr;
  std::optional<SourceFinder> sources;
  bool first_token = false, ended = false;
  std::optional<Error> error;  // reason why the server ended it
};

// An output of the engine for the writer.
struct ModelService::Output {
  std::shared_ptr<Job> job;
  std::size_t choice = 0;
  std::variant<std::monostate, std::vector<PromptToken>, std::pair<TokenEvent, std::optional<TokenSources>>,
               FinishedSequence, Error>
      what;  // monostate: start of the response
};

}  // namespace some
